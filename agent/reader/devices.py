"""Read the driver and its devices through the session, each under its own deadline.

Input: requests by enumeration index. Output: Readings of the driver and of one GPU.

Invariant: a device that does not answer in time is answered TIMEOUT and does not delay any other. A GPU is named by the
UUID that this very read found, or by the one that identities.py still vouches for, or not at all.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from agent.core import nvml_codes
from agent.model import planes
from agent.reader import config, gpu, identities, library, nvml, session, workers
from muster.model.reading import Known, Reading, Unknown

T = TypeVar("T")

_PROCFS_SECONDS = 0.3
"""The driver's procfs is asked when a device has failed, and may hang with it; the answer is only a name."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """What is known without opening a device."""

    driver_version: Reading[str]
    kernel_module_version: Reading[str]
    device_count: int
    generation: int


class Devices:
    """The reads of one session."""

    def __init__(self, settings: config.ReaderConfig, owner: session.Session) -> None:
        self._settings = settings
        self._session = owner
        self._procfs = workers.Worker("driver-procfs")

    async def read_system(self) -> Reading[System]:
        """Open the session unless it is, and read what needs no device."""
        refused = await self._session.begin()
        if refused is not None:
            return refused
        try:
            ask = self._session.driver.worker.run(self._ask_system, self._settings.call_timeout_seconds)
            count, version, module = await ask
        except workers.Overdue:
            return Unknown(nvml_codes.TIMEOUT)
        finally:
            self._session.finish()
        match count:
            case Unknown(reason):
                self._session.driver.check_answer(reason)
                return count
            case Known(number):
                self._session.driver.check_module(module)
                self._session.identities.counted(number)
                return Known(
                    System(
                        driver_version=version,
                        kernel_module_version=module,
                        device_count=number,
                        generation=self._session.identities.generation,
                    )
                )

    def _ask_system(self) -> tuple[Reading[int], Reading[str], Reading[str]]:
        count, version = nvml.reading(nvml.device_count), nvml.reading(nvml.driver_version)
        return count, version, self._session.driver.read_module_version()

    async def read_device(self, index: int, *, with_static: bool, with_processes: bool) -> Reading[planes.Gpu]:
        """Read the device at an index."""
        refused = await self._session.begin()
        if refused is not None:
            return refused
        try:
            found = await self._read_in_time(index, with_static=with_static, with_processes=with_processes)
        finally:
            self._session.finish()
        return Known(await self._named(index, found))

    async def _read_in_time(self, index: int, *, with_static: bool, with_processes: bool) -> planes.Gpu:
        """Read what changes first, under the short deadline: what is slow must not delay the mark of a device that hangs."""
        worker, settings = self._session.device_worker(index), self._settings
        try:
            found = await worker.run(functools.partial(gpu.read, index), settings.call_timeout_seconds)
        except workers.Overdue:
            return planes.Gpu(uuid="", index=Known(index), error=nvml_codes.TIMEOUT)
        if found.error:
            return found
        more: dict[str, Any] = {}
        if with_static:
            more |= await self._more(index, functools.partial(gpu.read_static, index, found.uuid), gpu.STATIC)
        if with_processes:
            read = functools.partial(gpu.read_processes, index, found.uuid, settings.proc_root)
            more |= await self._more(index, read, ("processes",))
        return dataclasses.replace(found, **more)

    async def _more(self, index: int, read: Callable[[], Mapping[str, Any]], names: Iterable[str]) -> Mapping[str, Any]:
        try:
            return await self._session.device_worker(index).run(read, self._settings.static_timeout_seconds)
        except workers.Overdue:
            return dict.fromkeys(names, Unknown(nvml_codes.TIMEOUT))

    async def _named(self, index: int, found: planes.Gpu) -> planes.Gpu:
        known = self._session.identities
        match found.pci:
            case Known(address):
                known.saw(index, identities.Identity(uuid=found.uuid, pci=address))
                if found.error:
                    known.failed(index, {})
                return found
            case Unknown():
                was = known.failed(index, {}) or known.failed(index, await self._kernel_uuids())
                if was is None or found.uuid not in ("", was.uuid):
                    return found
                return dataclasses.replace(found, uuid=was.uuid, pci=Known(was.pci))

    async def _kernel_uuids(self) -> Mapping[str, str]:
        read = functools.partial(library.read_uuids, self._settings.proc_root)
        try:
            return await self._procfs.run(read, _PROCFS_SECONDS)
        except workers.Overdue:
            return {}

    async def with_drains(self, functions: tuple[planes.PciFunction, ...]) -> tuple[planes.PciFunction, ...]:
        """Add the driver's drain state to those of its functions that NVML does not list, while a session is held."""
        if not self._session.driver.is_open or self._session.mode is not session.Mode.OPEN:
            return functions
        return tuple([await self._with_drain(function) for function in functions])

    async def _with_drain(self, function: planes.PciFunction) -> planes.PciFunction:
        if function.driver != "nvidia" or function.address in self._session.identities.addresses():
            return function
        ask = functools.partial(nvml.reading, functools.partial(nvml.drain_state, function.address))
        drain: Reading[bool]
        if await self._session.begin() is not None:
            return function
        try:
            drain = await self._session.drains.run(ask, self._settings.call_timeout_seconds)
        except workers.Overdue:
            drain = Unknown(nvml_codes.TIMEOUT)
        finally:
            self._session.finish()
        return dataclasses.replace(function, drain=drain)
