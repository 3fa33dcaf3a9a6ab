"""Take one clean sample of all planes.

In: the kubelet, its checkpoint, the reader and the admitter's slice, each behind a small protocol. Out: a `Sample`: one
planes.Observation with the moment at which each plane was read.

Invariant (faults.md P4): List and GetAllocatableResources are read before NVML and again after it; if the two pairs
differ the sample is discarded and taken again, at most `MAX_ATTEMPTS` times. Then both planes are Unknown(NotConsistent):
two truths are none. A plane that could not be read is not asked a second time in the same sample.

Why some planes are cached: process lists, PCI, MPS and CDI change slowly or cost much (design.md section 7). They keep
their value with its age until they are due, or until something happened (`fresh`).

Not here: what any of it means (core), and when to sample (loop.py).
"""

import asyncio
import dataclasses
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from agent.model import planes
from agent.sources import merge
from agent.sources.slice import SliceStore
from muster import clock
from muster.model import codec, kube
from muster.model.reading import NOT_COLLECTED, Known, Reading, Unknown

MAX_ATTEMPTS = 3

MAINTENANCE = Unknown("MAINTENANCE", "NVML is closed on request")
"""design.md section 3: makes TRANSIENT with admit 0, not BLIND."""

_NOT_CONSISTENT = Unknown("NotConsistent", f"List and GetAllocatableResources changed in {MAX_ATTEMPTS} samples")

Pods = Reading[tuple[planes.ListedPod, ...]]
Allocatable = Reading[tuple[planes.DeviceIds, ...]]


class Host(Protocol):
    """The reader's answer about boot, processes and sockets."""

    @property
    def boot(self) -> Reading[planes.Boot]: ...
    @property
    def kubelet_started_at(self) -> Reading[Any]: ...
    @property
    def plugins(self) -> Reading[tuple[kube.Plugin, ...]]: ...
    @property
    def dra_drivers(self) -> Reading[tuple[kube.DraDriver, ...]]: ...


class Reader(Protocol):
    """The privileged half; every call has its own deadline and never raises."""

    async def read_nvml(self, *, with_static: bool, with_processes: bool) -> Reading[planes.Nvml]: ...
    async def read_pci(self) -> Reading[tuple[planes.PciFunction, ...]]: ...
    async def read_device_nodes(self) -> Reading[tuple[planes.DeviceNode, ...]]: ...
    async def read_kernel_log(self) -> Reading[tuple[planes.KernelRecord, ...]]: ...
    async def read_host(self) -> Host: ...
    async def read_mps(self) -> Reading[planes.Mps]: ...
    async def read_cdi(self) -> Reading[tuple[planes.CdiSpec, ...]]: ...


class Kubelet(Protocol):
    """The pod-resources socket."""

    async def read_allocatable(self) -> Allocatable: ...
    async def read_pods(self) -> Pods: ...


class CheckpointSource(Protocol):
    """The checkpoint file."""

    def read(self) -> Reading[planes.Checkpoint]: ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One clean sample."""

    observation: planes.Observation
    api_server: bool
    read_at: Mapping[str, float]
    """Plane -> when it was last read, by the monotonic clock; planes that never were are missing."""
    attempts: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """What the kubelet says, both halves at once."""

    allocatable: Allocatable
    pods: Pods


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Periods:
    """How long slow planes keep their value, in seconds."""

    processes: float
    slow: float
    links: float = 60.0
    """Facts of a device that hardly ever change, NVLink states and the licence among them (topology.md section 1.2)."""


class Sampler:
    """Reads everything, remembering what is not read every time."""

    def __init__(
        self,
        *,
        node: str,
        time: clock.Clock,
        reader: Reader,
        kubelet: Kubelet,
        checkpoint: CheckpointSource,
        slices: SliceStore,
        periods: Periods,
    ) -> None:
        self._node, self._clock = node, time
        self._reader, self._kubelet, self._checkpoint, self._slices = reader, kubelet, checkpoint, slices
        self._periods = periods
        self._static_due = True
        self._static_read_at = -math.inf
        self._last_pods: Pods = NOT_COLLECTED
        self._read_at: dict[str, float] = {}
        self._cached: dict[str, Any] = {}

    async def sample(self, *, fresh: bool, nvml_closed: bool, expected: planes.Expected | None) -> Sample:
        """Return one sample. `fresh`: something happened, so that no cached plane may answer."""
        others = asyncio.ensure_future(self._read_others(fresh=fresh))
        try:
            pair, nvml, attempts = await self._read_consistently(fresh=fresh, nvml_closed=nvml_closed)
            other = await others
        finally:
            others.cancel()
        checkpoint = self._note("kubelet.checkpoint", self._checkpoint.read())
        view = self._slices.read(self._clock.monotonic())
        for name in ("node_object", "pods"):
            if view.read_at is not None:
                self._read_at[name] = view.read_at
        self._last_pods = pair.pods
        host: Host = other["host"]
        content = view.content
        observation = planes.Observation(
            node=self._node,
            taken_at=self._clock.utc(),
            boot=host.boot,
            nvml=nvml,
            pci=other["pci"],
            device_nodes=other["device_nodes"],
            kernel_log=other["kernel_log"],
            kubelet=Known(
                planes.Kubelet(
                    started_at=host.kubelet_started_at,
                    allocatable=pair.allocatable,
                    pods=pair.pods,
                    checkpoint=checkpoint,
                )
            ),
            plugins=merge.plugins(host.plugins, content.plugins),
            dra=merge.dra(host.dra_drivers, content.dra),
            cdi=other["cdi"],
            mps=other["mps"],
            desired_mig=content.desired_mig,
            node_object=content.node_object,
            pods=content.pods,
            rejections=content.rejections,
            expected=expected,
            features=content.features,
        )
        return Sample(
            observation=observation,
            api_server=view.api_server,
            read_at=codec.freeze(self._read_at),
            attempts=attempts,
        )

    async def _read_consistently(self, *, fresh: bool, nvml_closed: bool) -> tuple[Pair, Reading[planes.Nvml], int]:
        pair = await self._read_pair(None)
        nvml: Reading[planes.Nvml] = MAINTENANCE
        for attempt in range(1, MAX_ATTEMPTS + 1):
            if not nvml_closed:
                nvml = await self._read_nvml(fresh=fresh and attempt == 1, pods=pair.pods)
            again = await self._read_pair(pair)
            if again == pair:
                return self._noted(pair), nvml, attempt
            pair = again
        return Pair(allocatable=_inconsistent(pair.allocatable), pods=_inconsistent(pair.pods)), nvml, MAX_ATTEMPTS

    def _noted(self, pair: Pair) -> Pair:
        self._note("kubelet.allocatable", pair.allocatable)
        self._note("kubelet.pods", pair.pods)
        return pair

    async def _read_pair(self, before: Pair | None) -> Pair:
        """Read both halves at once: a hanging kubelet then costs one deadline, not two."""

        async def allocatable() -> Allocatable:
            if before is not None and isinstance(before.allocatable, Unknown):
                return before.allocatable
            return await self._kubelet.read_allocatable()

        async def pods() -> Pods:
            if before is not None and isinstance(before.pods, Unknown):
                return before.pods
            return await self._kubelet.read_pods()

        first, second = await asyncio.gather(allocatable(), pods())
        return Pair(allocatable=first, pods=second)

    async def _read_nvml(self, *, fresh: bool, pods: Pods) -> Reading[planes.Nvml]:
        """Read the hot facts; the others only when due, and never on the way of an event.

        The reader's client keeps static facts and process lists from pass to pass, by UUID, and reads a new device whole
        by itself. What an event changed in them is read at the next poll.
        """
        changed = pods != self._last_pods or "processes" not in self._read_at
        processes = changed or (not fresh and self._is_due("processes", self._periods.processes))
        static = (
            self._static_due or self._clock.monotonic() - self._static_read_at >= self._periods.links
        ) and not fresh
        reading = await self._reader.read_nvml(with_static=static, with_processes=processes)
        if isinstance(reading, Known):
            self._static_due = (self._static_due or fresh) and not static
            if static:
                self._static_read_at = self._clock.monotonic()
            self._note("nvml", reading)
            if processes:
                self._note("processes", reading)
        return reading

    async def _read_others(self, *, fresh: bool) -> Mapping[str, Any]:
        reader, slow = self._reader, self._periods.slow
        calls: Mapping[str, tuple[float, Callable[[], Awaitable[Any]]]] = {
            "host": (0, reader.read_host),
            "device_nodes": (0, reader.read_device_nodes),
            "kernel_log": (0, reader.read_kernel_log),
            "pci": (slow, reader.read_pci),
            "mps": (slow, reader.read_mps),
            "cdi": (slow, reader.read_cdi),
        }
        due = [name for name, (period, _) in calls.items() if fresh or self._is_due(name, period)]
        answers = await asyncio.gather(*(calls[name][1]() for name in due))
        for name, answer in zip(due, answers, strict=True):
            self._cached[name] = self._note(name, answer)
        return dict(self._cached)

    def _is_due(self, plane: str, period: float) -> bool:
        """Due when never read, when the last try failed, or when the value is old."""
        last = self._read_at.get(plane)
        failed = isinstance(self._cached.get(plane), Unknown)
        return last is None or failed or self._clock.monotonic() - last >= period

    def _note(self, plane: str, reading: Any) -> Any:
        if not isinstance(reading, Unknown):
            self._read_at[plane] = self._clock.monotonic()
        return reading


def _inconsistent(reading: Reading[Any]) -> Unknown:
    """Return why nothing can be said; a failure explains more than a disagreement."""
    return reading if isinstance(reading, Unknown) else _NOT_CONSISTENT
