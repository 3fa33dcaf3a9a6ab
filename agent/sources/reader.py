"""The agent's side of the reader: ask for planes, follow what happens, remember who was who.

Input: the reader's unix socket. Output: Readings of the planes of agent.model.planes, and an endless stream of events.

Invariant: never an exception and never an unbounded wait. A reader that is away is Unknown(ReaderUnavailable), one that is
late Unknown(TIMEOUT); a device that failed keeps its UUID, bus address and static facts, and says so in `error`. One
device's failure leaves every other device's values as they were read.

Why memory here and not only in the reader: it survives a reader that was killed.

Not here: the reader's process (readerprocess.py), and what a failure means (core/rules).
"""

import asyncio
import dataclasses
import pathlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeAlias, TypeVar

import grpc

from agent.core import nvml_codes
from agent.model import planes
from agent.sources import readeranswers, readermemory
from agent.sources.readeranswers import Counters, Host, Usage
from muster.model import codec, kube, pbform
from muster.model.reading import Known, Reading, Unknown
from muster.pb.muster.reader.v1 import reader_pb2, reader_pb2_grpc

T = TypeVar("T")

UNAVAILABLE = "ReaderUnavailable"
_GRACE_SECONDS = 0.7
"""The reader keeps its own deadlines; this much later it is the reader that does not answer."""
_CLOSE_SECONDS = 5.0
_MOST_DEVICES = 256
"""The reader serves no more; a count beyond it is not one of GPUs."""
_NO_ANSWER = (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE)
_RETRY_SECONDS = (0.2, 5.0)
"""First and longest pause before the stream is dialled again."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The stream is open and events are registered: scan now, nothing before this was seen."""

    registered: Mapping[str, tuple[str, ...]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceEvent:
    uuid: str
    kind: str
    """xid, mig_config, gpu_unavailable, recovery_action, ecc_double, ..."""
    xid: planes.Xid | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SessionEvent:
    state: str
    """`opened` or `closed`; `reader_away` when the stream broke."""
    detail: str = ""


Event: TypeAlias = Ready | DeviceEvent | SessionEvent | planes.KernelRecord


class ReaderClient:
    """One reader. All its methods are safe to run concurrently."""

    def __init__(
        self, socket: pathlib.Path, *, call_timeout_seconds: float = 2.0, static_timeout_seconds: float = 10.0
    ) -> None:
        self._target = f"unix:{socket}"
        self._call_timeout_seconds = call_timeout_seconds
        self._static_timeout_seconds = static_timeout_seconds
        self._channel: grpc.aio.Channel | None = None
        self._memory = readermemory.Memory()
        self._mode, self._mode_reason = "open", ""
        self._telling_mode = asyncio.Lock()
        self._silent_since: float | None = None
        self._unanswered_since: float | None = None
        self._timed_out: dict[int, float] = {}
        """Index of a device that the reader gave up on -> since when."""
        self.counters = Counters()

    async def close(self) -> None:
        """Give the connection back."""
        if self._channel is not None:
            channel, self._channel = self._channel, None
            await channel.close(None)

    @property
    def silent_since(self) -> float | None:
        """When (event-loop time) the reader stopped answering for the driver; None while it answers.

        An answer that says why the driver cannot be read is one; TIMEOUT, or no answer, is not.
        """
        return self._silent_since

    @property
    def unanswered_since(self) -> float | None:
        """When (event-loop time) the reader stopped answering anything at all; None while it answers, be it that NVML hangs."""
        return self._unanswered_since

    @property
    def stuck_since(self) -> float | None:
        """Since when (event-loop time) the reader has been giving up on the same device; None where it does on none."""
        return min(self._timed_out.values(), default=None)

    # -- planes

    async def read_nvml(self, *, with_static: bool = False, with_processes: bool = False) -> Reading[planes.Nvml]:
        """Read the driver, then its devices at the same time, each under its own deadline."""
        if self._mode != "open":
            await self._send_mode()
        system = await self._read(reader_pb2.ReadRequest(nvml_system=reader_pb2.NvmlSystemRequest()))
        self._heard(system)
        match system:
            case Unknown(nvml_codes.MAINTENANCE) as unknown if self._mode == "open":
                await self._send_mode()  # It has not heard, or has forgotten, that the work is over.
                return unknown
            case Unknown() as unknown:
                return unknown
            case Known(answer):
                found = answer.nvml_system
        self._memory.begin(found.generation, found.device_count)
        read = [
            self._read_device(index, with_static=with_static, with_processes=with_processes)
            for index in range(min(found.device_count, _MOST_DEVICES))
        ]
        devices = self._memory.settle(await asyncio.gather(*read))
        self._note_timeouts(devices)
        timeouts = sum(gpu.error == "TIMEOUT" for gpu in devices)
        self._count(timeouts=timeouts)
        return Known(
            planes.Nvml(
                driver_version=readeranswers.field(found, "driver_version"),
                kernel_module_version=readeranswers.field(found, "kernel_module_version"),
                device_count=Known(int(found.device_count)),
                devices=devices,
            )
        )

    async def _read_device(self, index: int, *, with_static: bool, with_processes: bool) -> planes.Gpu:
        gpu = await self._ask_device(index, with_static=with_static, with_processes=with_processes)
        if not with_static and not gpu.error and not self._memory.knows(gpu.uuid):
            return await self._ask_device(index, with_static=True, with_processes=with_processes)
        return gpu

    async def _ask_device(self, index: int, *, with_static: bool, with_processes: bool) -> planes.Gpu:
        request = reader_pb2.NvmlDeviceRequest(index=index, with_static=with_static, with_processes=with_processes)
        # The reader reads static facts and processes after the rest, each with the longer deadline.
        timeout = self._call_timeout_seconds + self._static_timeout_seconds * (with_static + with_processes)
        match await self._read(reader_pb2.ReadRequest(nvml_device=request), timeout):
            case Unknown(reason):
                return planes.Gpu(uuid="", index=Known(index), error=reason)
            case Known(answer):
                try:
                    return pbform.from_pb(planes.Gpu, answer.nvml_device)
                except codec.Malformed as error:
                    return planes.Gpu(
                        uuid="", index=Known(index), error="Malformed", product=Unknown("Malformed", str(error))
                    )

    async def read_pci(self) -> Reading[tuple[planes.PciFunction, ...]]:
        """Read NVIDIA's functions on the bus."""
        request = reader_pb2.ReadRequest(pci=reader_pb2.PciRequest())
        return await self._read_items(request, planes.PciFunction, lambda answer: answer.pci.items)

    async def read_device_nodes(self) -> Reading[tuple[planes.DeviceNode, ...]]:
        """Read the driver's device files."""
        request = reader_pb2.ReadRequest(device_nodes=reader_pb2.DeviceNodesRequest())
        return await self._read_items(request, planes.DeviceNode, lambda answer: answer.device_nodes.items)

    async def read_kernel_log(self) -> Reading[tuple[planes.KernelRecord, ...]]:
        """Read the GPU-related records since boot."""
        request = reader_pb2.ReadRequest(kernel_log=reader_pb2.KernelLogRequest())
        return await self._read_items(request, planes.KernelRecord, lambda answer: answer.kernel_log.items)

    async def read_cdi(self) -> Reading[tuple[planes.CdiSpec, ...]]:
        """Read the vendor's CDI specs."""
        request = reader_pb2.ReadRequest(cdi=reader_pb2.CdiRequest())
        return await self._read_items(request, planes.CdiSpec, lambda answer: answer.cdi.items)

    async def read_mps(self) -> Reading[planes.Mps]:
        """Read the MPS daemon's state."""
        match await self._read(reader_pb2.ReadRequest(mps=reader_pb2.MpsRequest())):
            case Unknown() as unknown:
                return unknown
            case Known(answer):
                return readeranswers.decoded(lambda: pbform.from_pb(planes.Mps, answer.mps))

    async def read_host(self) -> Host:
        """Read the boot and when kubelet and plugins started."""
        match await self._read(reader_pb2.ReadRequest(host=reader_pb2.HostRequest())):
            case Unknown() as unknown:
                return Host(boot=unknown, kubelet_started_at=unknown, plugins=unknown, dra_drivers=unknown)
            case Known(answer):
                host = answer.host
                if host.HasField("usage"):
                    usage = Usage(cpu_seconds=host.usage.cpu_seconds, resident_bytes=host.usage.resident_bytes)
                    self.counters = dataclasses.replace(self.counters, usage=Known(usage))
                return Host(
                    boot=readeranswers.field(host, "boot", lambda value: pbform.from_pb(planes.Boot, value)),
                    kubelet_started_at=readeranswers.field(host, "kubelet_started_at", readermemory.utc),
                    plugins=readeranswers.field(
                        host, "plugins", lambda value: tuple(pbform.from_pb(kube.Plugin, item) for item in value.items)
                    ),
                    dra_drivers=readeranswers.field(
                        host,
                        "dra_drivers",
                        lambda value: tuple(pbform.from_pb(kube.DraDriver, item) for item in value.items),
                    ),
                )

    # -- the session and the stream

    async def set_session(self, mode: str, reason: str) -> Reading[tuple[str, ...]]:
        """Set the session's mode: open, closed or short. Return the device files still open: closed is proved by none.

        The mode is kept here and said again to every new reader, before it is asked for anything of NVML.
        """
        self._mode, self._mode_reason = mode, reason
        return await self._send_mode()

    async def _send_mode(self) -> Reading[tuple[str, ...]]:
        # One word at a time, and the newest last: two in flight could arrive the other way round, and the reader would
        # stay closed while everybody here believes it open.
        async with self._telling_mode:
            request = reader_pb2.SetNvmlSessionRequest(mode=self._mode, reason=self._mode_reason)
            answer = await self._call(lambda stub: stub.SetNvmlSession(request, timeout=_CLOSE_SECONDS))
        match answer:
            case Known(answer):
                return Known(tuple(answer.open_device_files))
            case Unknown() as unknown:
                return unknown

    async def exit(self, reason: str) -> bool:
        """Ask the reader to end, so that a new one starts; False if it did not answer."""
        request = reader_pb2.ExitRequest(reason=reason)
        return isinstance(await self._call(lambda stub: stub.Exit(request, timeout=self._call_timeout_seconds)), Known)

    async def watch(self) -> AsyncIterator[Event]:
        """Yield what happens, for ever; a broken stream is said and dialled again."""
        pause = _RETRY_SECONDS[0]
        while True:
            try:
                if self._mode != "open":
                    await self._send_mode()
                async for message in self._stub().Watch(reader_pb2.WatchRequest(), wait_for_ready=False):
                    event = _event(message)
                    pause = _RETRY_SECONDS[0]
                    if event is not None:
                        yield event
                detail = "the reader ended the stream"
            except grpc.aio.AioRpcError as error:
                detail = f"{error.code().name}: {error.details()}"
            yield SessionEvent(state="reader_away", detail=detail)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _RETRY_SECONDS[1])

    # -- calls

    def _stub(self) -> Any:
        if self._channel is None:
            # A new reader listens on a new socket file: reconnect soon, and do not answer from the back-off for long.
            options = (("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 1000))
            self._channel = grpc.aio.insecure_channel(self._target, options=options)
        return reader_pb2_grpc.ReaderServiceStub(self._channel)  # Its types are those of the synchronous stub.

    async def _read(self, request: Any, timeout_seconds: float | None = None) -> Reading[Any]:
        timeout = (timeout_seconds or self._call_timeout_seconds) + _GRACE_SECONDS
        match await self._call(lambda stub: stub.Read(request, timeout=timeout)):
            case Known(answer):
                self._count(nvml_seconds=answer.nvml_us / 1_000_000)
                if answer.HasField("error"):
                    return Unknown(answer.error.error, answer.error.detail)
                return Known(answer)
            case Unknown() as unknown:
                return unknown

    async def _call(self, call: Callable[[Any], Any]) -> Reading[Any]:
        self._count(calls=1)
        try:
            answer = await call(self._stub())
        except grpc.aio.AioRpcError as error:
            self._note_answer(is_one=error.code() not in _NO_ANSWER)
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                self._count(timeouts=1)
                return Unknown("TIMEOUT", "the reader does not answer")
            self._count(failures=1)
            return Unknown(UNAVAILABLE, f"{error.code().name}: {error.details()}")
        self._note_answer(is_one=True)
        return Known(answer)

    def _note_answer(self, *, is_one: bool) -> None:
        if is_one:
            self._unanswered_since = None
        elif self._unanswered_since is None:
            self._unanswered_since = asyncio.get_running_loop().time()

    async def _read_items(self, request: Any, cls: type[T], items: Callable[[Any], Any]) -> Reading[tuple[T, ...]]:
        match await self._read(request):
            case Unknown() as unknown:
                return unknown
            case Known(answer):
                return readeranswers.decoded(lambda: tuple(pbform.from_pb(cls, item) for item in items(answer)))

    def _note_timeouts(self, devices: tuple[planes.Gpu, ...]) -> None:
        now = asyncio.get_running_loop().time()
        late = [index for index, gpu in enumerate(devices) if gpu.error == "TIMEOUT"]
        self._timed_out = {index: self._timed_out.get(index, now) for index in late}

    def _heard(self, system: Reading[Any]) -> None:
        match system:
            case Unknown("TIMEOUT") | Unknown("ReaderUnavailable"):
                if self._silent_since is None:
                    self._silent_since = asyncio.get_running_loop().time()
            case _:
                self._silent_since = None

    def _count(self, *, calls: int = 0, timeouts: int = 0, failures: int = 0, nvml_seconds: float = 0.0) -> None:
        self.counters = dataclasses.replace(
            self.counters,
            calls=self.counters.calls + calls,
            timeouts=self.counters.timeouts + timeouts,
            failures=self.counters.failures + failures,
            nvml_seconds=self.counters.nvml_seconds + nvml_seconds,
        )


def _event(message: Any) -> Event | None:
    """Return the event, or None for one that this version does not know."""
    match message.WhichOneof("event"):
        case "ready":
            registered = {uuid: tuple(kinds.items) for uuid, kinds in message.ready.registered.items()}
            return Ready(registered=codec.freeze(registered))
        case "device":
            device = message.device
            xid = pbform.from_pb(planes.Xid, device.xid) if device.HasField("xid") else None
            return DeviceEvent(uuid=device.uuid, kind=device.kind, xid=xid)
        case "kernel_record":
            return pbform.from_pb(planes.KernelRecord, message.kernel_record)
        case "session":
            return SessionEvent(state=message.session.state, detail=message.session.detail)
        case _:
            return None
