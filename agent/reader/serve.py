"""The reader's gRPC service: one plane a call, and the Watch stream.

Invariant: a plane that cannot be read is an answer with its reason, never a failed call; a failed call means that the
reader itself is at fault. That holds for what nobody foresaw in a file of the host, too: one broad catch, logged. Nothing
here blocks the event loop on a device: every plane has a thread of its own and a deadline (workers.py).
"""

import contextlib
import dataclasses
import functools
import logging
import pathlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import grpc

from agent import unixserver
from agent.model import planes
from agent.reader import (
    cdi,
    config,
    device_nodes,
    devices,
    kernel_follow,
    kernel_log,
    mps,
    observer,
    pci,
    processes,
    session,
    socketcalls,
    sockets,
    watchers,
    workers,
)
from muster.model import pbform
from muster.model.reading import Known, Reading, Unknown
from muster.pb.muster.reader.v1 import reader_pb2, reader_pb2_grpc

T = TypeVar("T")

_log = logging.getLogger("muster.reader")

_MOST_DEVICES = 256
"""Each has a thread of its own; no machine has nearly so many."""


class ReaderService(reader_pb2_grpc.ReaderServiceServicer):
    """Answers the agent."""

    def __init__(
        self,
        settings: config.ReaderConfig,
        *,
        nvml_session: session.Session,
        log: kernel_log.KernelLog,
        follower: kernel_follow.Follower,
        happened: observer.Observer,
        streams: watchers.Watchers,
        end: Callable[[int, str], None],
    ) -> None:
        self._settings = settings
        self._session = nvml_session
        self._devices = devices.Devices(settings, nvml_session)
        self._log = log
        self._follower = follower
        self._happened = happened
        self._streams = streams
        self._end = end
        self._workers: dict[str, workers.Worker] = {}
        self.sockets = socketcalls.SocketCalls(self._list_sockets, settings.sockets_seconds)
        self._planes: dict[str, Callable[[Any, Any], Awaitable[Unknown | None]]] = {
            "nvml_system": self._nvml_system,
            "nvml_device": self._nvml_device,
            "pci": self._pci,
            "device_nodes": self._device_nodes,
            "kernel_log": self._kernel_log,
            "host": self._host,
            "mps": self._mps,
            "cdi": self._cdi,
        }

    async def Read(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Read one plane."""
        plane = request.WhichOneof("plane")
        if plane is None:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "plane: is required")
        response = reader_pb2.ReadResponse()
        worker = self._nvml_worker(request)
        busy_before = 0.0 if worker is None else worker.busy_seconds
        try:
            unreadable = await self._planes[plane](getattr(request, plane), response)
        except Exception as error:  # noqa: BLE001 -- whatever it is, the agent must hear a reason, not a dead call
            _log.exception("a plane could not be read: %s", plane)
            response, unreadable = reader_pb2.ReadResponse(), Unknown("ReadFailed", repr(error)[:200])
        if unreadable is not None:
            response.error.error, response.error.detail = unreadable.reason, unreadable.detail
        if worker is not None:
            response.nvml_us = round((worker.busy_seconds - busy_before) * 1_000_000)
        return response

    def _nvml_worker(self, request: Any) -> workers.Worker | None:
        """Return the thread whose time is NVML's for this request: concurrent reads of other devices are not it."""
        match request.WhichOneof("plane"):
            case "nvml_system":
                return self._session.driver.worker
            case "nvml_device" if 0 <= request.nvml_device.index < _MOST_DEVICES:
                return self._session.device_worker(request.nvml_device.index)
            case _:
                return None

    async def Watch(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802, ARG002
        """Stream what happens, after one `ready` event that says what is registered."""
        watcher = self._streams.subscribe()
        try:
            if self._session.mode is session.Mode.OPEN:
                await self._session.open()
            if self._session.pump is not None:
                await self._session.pump.registered_once(self._settings.static_timeout_seconds)
            ready = reader_pb2.WatchResponse()
            ready.ready.SetInParent()
            pump = self._session.pump
            for uuid, kinds in (pump.registered if pump is not None else {}).items():
                ready.ready.registered[uuid].items.extend(kinds)
            yield ready
            while (event := await watcher.next()) is not None:
                yield event
        finally:
            self._streams.unsubscribe(watcher)

    async def SetNvmlSession(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Change the session's mode."""
        try:
            mode = session.Mode(request.mode)
        except ValueError:
            words = ", ".join(session.Mode)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"mode: {request.mode!r} is none of {words}")
        left = await self._session.set_mode(mode, request.reason)
        return reader_pb2.SetNvmlSessionResponse(mode=mode.value, open_device_files=left)

    async def Exit(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002
        """End the process; whoever supervises it starts a new one."""
        self._end(0, request.reason)
        return reader_pb2.ExitResponse()

    # -- planes: each fills its part of the answer, or returns why it cannot

    async def _nvml_system(self, request: Any, response: Any) -> Unknown | None:  # noqa: ARG002
        match await self._devices.read_system():
            case Unknown() as unknown:
                return unknown
            case Known(system):
                answer = response.nvml_system
                answer.device_count, answer.generation = system.device_count, system.generation
                for name in ("driver_version", "kernel_module_version"):
                    _put(answer, name, getattr(system, name), functools.partial(setattr, answer, name))
                return None

    async def _nvml_device(self, request: Any, response: Any) -> Unknown | None:
        if not 0 <= request.index < _MOST_DEVICES:
            return Unknown("INVALID_ARGUMENT", f"index {request.index}")
        match await self._devices.read_device(
            request.index, with_static=request.with_static, with_processes=request.with_processes
        ):
            case Unknown() as unknown:
                return unknown
            case Known(gpu):
                xids = self._happened.xids_of(gpu.pci, has_source=self._listens_to(gpu))
                pbform.fill(response.nvml_device, dataclasses.replace(gpu, xids=xids))
                return None

    def _listens_to(self, gpu: planes.Gpu) -> Reading[bool]:
        pump = self._session.pump
        if pump is not None and "xid" in pump.registered.get(gpu.uuid, ()):
            return Known(True)  # noqa: FBT003
        return self._follower.state

    async def _pci(self, request: Any, response: Any) -> Unknown | None:  # noqa: ARG002
        found = await self._files("pci", lambda: pci.read(self._settings.sysfs_root))
        match found:
            case Known(functions):
                return _put_items(response.pci, Known(await self._devices.with_drains(functions)))
            case Unknown() as unknown:
                return unknown

    async def _device_nodes(self, request: Any, response: Any) -> Unknown | None:  # noqa: ARG002
        settings = self._settings
        found = await self._files("device_nodes", lambda: device_nodes.read(settings.dev_root, settings.proc_root))
        return _put_items(response.device_nodes, found)

    async def _files(self, plane: str, read: Callable[[], Reading[T]]) -> Reading[T]:
        """Read files on the plane's own thread: procfs of a driver that hangs can hang too."""
        if plane not in self._workers:
            self._workers[plane] = workers.Worker(f"files-{plane}")
        try:
            return await self._workers[plane].run(read, self._settings.call_timeout_seconds)
        except workers.Overdue:
            return Unknown("TIMEOUT")

    async def _kernel_log(self, request: Any, response: Any) -> Unknown | None:  # noqa: ARG002
        await self._follower.caught_up(self._settings.call_timeout_seconds)
        match self._follower.state:
            case Unknown() as unknown:
                return unknown
            case Known(_):
                return _put_items(response.kernel_log, Known(self._log.records))

    async def _host(self, request: Any, response: Any) -> Unknown | None:  # noqa: ARG002
        match await self._files("host", self._read_host):
            case Unknown() as unknown:
                return unknown
            case Known(found):
                answer = response.host
                answer.SetInParent()
                _put(answer, "boot", found.boot, functools.partial(pbform.fill, answer.boot))
                _put(answer, "kubelet_started_at", found.kubelet_started_at, answer.kubelet_started_at.FromDatetime)
                _put(answer, "plugins", found.plugins, lambda items: _put_items(answer.plugins, Known(items)))
                _put(answer, "dra_drivers", found.drivers, lambda items: _put_items(answer.dra_drivers, Known(items)))
                answer.usage.cpu_seconds, answer.usage.resident_bytes = processes.read_own_usage()
                return None

    def _read_host(self) -> "Reading[_Host]":
        settings = self._settings
        found = processes.list_named(settings.proc_root, (*settings.kubelet_names, *settings.plugin_names))
        listing = self._look_at_sockets()
        kubelets = processes.kubelet_pids(found, settings.kubelet_names)
        other = socketcalls.elsewhere(listing, self.sockets)
        facts = processes.SocketFacts(
            present=_mapped(listing.plugins, bool),
            connected=sockets.read_connected(settings.proc_root, kubelets) if isinstance(found, Known) else found,
            elsewhere=sockets.folder_on_host(other, settings.host_root) if other is not None else "",
            preferred_allocation=socketcalls.preferred_allocation(listing, self.sockets),
        )
        return Known(
            _Host(
                boot=processes.read_boot(settings.proc_root),
                kubelet_started_at=processes.kubelet_started_at(found, settings.kubelet_names),
                plugins=processes.plugins(found, settings.plugin_names, facts),
                drivers=socketcalls.drivers(listing, self.sockets),
            )
        )

    def _look_at_sockets(self) -> sockets.Listing:
        settings = self._settings
        return sockets.look(
            settings.device_plugins_dir, settings.plugins_registry_dir, settings.host_root, settings.kubelet_roots
        )

    async def _list_sockets(self) -> sockets.Listing:
        if "sockets" not in self._workers:
            self._workers["sockets"] = workers.Worker("files-sockets")
        return await self._workers["sockets"].run(self._look_at_sockets, self._settings.call_timeout_seconds)

    async def _mps(self, request: Any, response: Any) -> Unknown | None:  # noqa: ARG002
        match await self._files("mps", lambda: mps.read(self._settings.proc_root, self._settings.mps_root)):
            case Unknown() as unknown:
                return unknown
            case Known(found):
                response.mps.SetInParent()
                pbform.fill(response.mps, found)
                return None

    async def _cdi(self, request: Any, response: Any) -> Unknown | None:  # noqa: ARG002
        directories = [pathlib.Path(directory) for directory in self._settings.cdi_dirs]
        return _put_items(response.cdi, await self._files("cdi", lambda: cdi.read(directories)))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Host:
    """What the host's files say, in one look."""

    boot: Reading[Any]
    kubelet_started_at: Reading[Any]
    plugins: Reading[tuple[Any, ...]]
    drivers: Reading[tuple[Any, ...]]


def _mapped(reading: Reading[Any], change: Callable[[Any], T]) -> Reading[T]:
    match reading:
        case Known(value):
            return Known(change(value))
        case Unknown() as unknown:
            return unknown


def _put(answer: Any, name: str, value: Reading[T], put: Callable[[T], object]) -> None:
    match value:
        case Known(known):
            put(known)
        case Unknown(reason, detail):
            answer.errors[name].error, answer.errors[name].detail = reason, detail


def _put_items(message: Any, value: Reading[tuple[Any, ...]]) -> Unknown | None:
    match value:
        case Unknown() as unknown:
            return unknown
        case Known(items):
            message.SetInParent()
            for item in items:
                pbform.fill(message.items.add(), item)
            return None


@contextlib.asynccontextmanager
async def serving(service: ReaderService, socket: pathlib.Path) -> AsyncIterator[unixserver.File]:
    """Serve on the socket until the block ends; yield which file it is."""
    server = grpc.aio.server()
    reader_pb2_grpc.add_ReaderServiceServicer_to_server(service, server)
    own = await unixserver.start(server, socket, 0o660)
    try:
        yield own
    finally:
        await server.stop(grace=0.2)
