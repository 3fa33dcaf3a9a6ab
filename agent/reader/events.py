"""NVML's events: register, wait, and build anew when that is due.

Input: the devices of an open session. Output: each event, with the UUID of the GPU it is about.

Invariant: what cannot be registered is left out and never refuses the rest: bits are masked per device, a lost or hung
device is skipped. No error makes this loop spin: rebuilds are at least a second apart and back off while they fail.

Why on the parents: MIG handles are not accepted (topology.md section 1.3). Why a short wait: a close is due within 2 s,
and an event set must not be freed under a waiting call.

Not here: the first scan, which must follow the registration; a poll finds what happened before it.
"""

import asyncio
import dataclasses
import functools
from collections.abc import Callable, Mapping

from agent.reader import identities, nvml, workers

_WAIT_MILLISECONDS = 500
_WAIT_OVERDUE_SECONDS = 5.0
_REBUILD_SECONDS = 1.0
_SLOWEST_REBUILD_SECONDS = 30.0
_EARLY_SECONDS = 0.05
"""A wait that returns without an event before this was refused rather than waited."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Registration:
    address: int
    identity: identities.Identity
    kinds: tuple[str, ...]


class Pump:
    """The event set of one session and the task that waits on it."""

    def __init__(
        self,
        system: workers.Worker,
        device_worker: Callable[[int], workers.Worker],
        known: identities.Identities,
        *,
        on_event: Callable[[str, nvml.Event], None],
        on_registered: Callable[[], None],
        timeout_seconds: float,
    ) -> None:
        self._system = system
        self._device_worker = device_worker
        self._identities = known
        self._on_event = on_event
        self._on_registered = on_registered
        self._timeout_seconds = timeout_seconds
        self._waiter = workers.Worker("nvml-events")
        self._stopping = asyncio.Event()
        self._was_registered = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._uuids: dict[int, str] = {}
        """UUID by address of the device's handle."""
        self._tried: frozenset[str] = frozenset()
        self.registered: Mapping[str, tuple[str, ...]] = {}
        """Event kinds by UUID."""

    def start(self) -> None:
        """Register and wait in the background."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def registered_once(self, timeout_seconds: float) -> None:
        """Wait until the first registration has been tried."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._was_registered.wait()
        except TimeoutError:
            pass

    async def stop(self) -> bool:
        """End the wait and free the set; False if a call of ours still runs in the driver."""
        self._stopping.set()
        if self._task is not None:
            await asyncio.wait((self._task,), timeout=_WAIT_MILLISECONDS / 1000 + self._timeout_seconds)
            self._task.cancel()
        self._waiter.stop()
        return not self._waiter.is_overdue and (self._task is None or self._task.done())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        delay = _REBUILD_SECONDS
        while not self._stopping.is_set():
            started, has_failed = loop.time(), False
            try:
                await self._register_and_wait()
            except (nvml.NvmlError, workers.Overdue):
                has_failed = True
            self._was_registered.set()
            elapsed = loop.time() - started
            is_repeated = has_failed and elapsed < 2 * delay
            delay = min(2 * delay, _SLOWEST_REBUILD_SECONDS) if is_repeated else _REBUILD_SECONDS
            await self._pause(max(0.0, delay - elapsed))

    async def _register_and_wait(self) -> None:
        """Return when the set has to be built anew."""
        event_set = await self._system.run(nvml.create_event_set, self._timeout_seconds)
        try:
            await self._register(event_set)
            self._was_registered.set()
            self._on_registered()
            while not self._stopping.is_set() and self._identities.answering <= self._tried:
                await self._wait_once(event_set)
        finally:
            self.registered = {}
            # On the waiter's thread: a wait that is overdue must end before its set is freed.
            await self._waiter.run(functools.partial(nvml.free_event_set, event_set), self._timeout_seconds)

    async def _register(self, event_set: nvml.Handle) -> None:
        count = await self._system.run(nvml.device_count, self._timeout_seconds)
        self._identities.counted(count)
        found = await asyncio.gather(*(self._register_device(index, event_set) for index in range(count)))
        registrations = [registration for registration in found if registration is not None]
        self._uuids = {registration.address: registration.identity.uuid for registration in registrations}
        self._tried = frozenset(self._uuids.values())
        self.registered = {entry.identity.uuid: entry.kinds for entry in registrations if entry.kinds}

    async def _register_device(self, index: int, event_set: nvml.Handle) -> _Registration | None:
        def register() -> _Registration:
            device = nvml.handle(index)
            identity = identities.Identity(uuid=nvml.uuid(device), pci=nvml.pci_address(device))
            try:
                kinds = nvml.register_events(device, event_set)
            except nvml.NvmlError:
                kinds = ()
            return _Registration(address=nvml.address(device), identity=identity, kinds=kinds)

        try:
            registration = await self._device_worker(index).run(register, self._timeout_seconds)
        except (nvml.NvmlError, workers.Overdue):
            self._identities.failed(index, {})  # The first read that it answers again makes the set due.
            return None
        self._identities.saw(index, registration.identity)
        return registration

    async def _wait_once(self, event_set: nvml.Handle) -> None:
        if not self.registered:
            await self._pause(_WAIT_MILLISECONDS / 1000)
            return
        loop = asyncio.get_running_loop()
        started = loop.time()
        wait = functools.partial(nvml.wait_event, event_set, _WAIT_MILLISECONDS)
        event = await self._waiter.run(wait, _WAIT_OVERDUE_SECONDS)
        if event is not None and event.device in self._uuids:
            self._on_event(self._uuids[event.device], event)
        elif loop.time() - started < _EARLY_SECONDS:
            await self._pause(_WAIT_MILLISECONDS / 1000)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass
