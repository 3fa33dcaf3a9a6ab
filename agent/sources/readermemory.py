"""What the agent remembers of each GPU between two passes, so that one that fails is still named and described.

Input: the devices of one pass, some of them failed. Output: the same devices, named, with the facts that are not read on
every pass.

Invariant: a UUID appears once in a pass. A failed index takes the name it had only if nobody else in this pass has that
name and the number of devices is what it was; otherwise it is `unidentified-N`, which joins to nothing. A failed device
keeps facts that cannot change (product, memory), never a measurement.
"""

import dataclasses
import datetime
from collections.abc import Iterable
from typing import Any

from agent.model import planes
from muster.model.reading import NOT_COLLECTED, Known, Unknown

_STATIC = ("product", "memory_bytes", "numa_node", "nvlinks", "events_supported", "persistence", "licence")
"""Read when asked for, kept for a generation."""
_KEPT_OF_FAILED = ("pci", "product", "memory_bytes", "numa_node", "events_supported")
_KEPT = (*_STATIC, "processes")
"""Processes are read more rarely than the rest; in between the last list stands."""


class Memory:
    """One reader's devices, by UUID."""

    def __init__(self) -> None:
        self._generation: int | None = None
        self._count: int | None = None
        self._known: dict[str, planes.Gpu] = {}
        self._uuid_by_index: dict[int, str] = {}

    def begin(self, generation: int, count: int) -> None:
        """Start a pass: another generation makes static facts be read again, another count ends all names."""
        if generation != self._generation:
            self._known = {uuid: dataclasses.replace(gpu, nvlinks=NOT_COLLECTED) for uuid, gpu in self._known.items()}
        if count != self._count:
            self._uuid_by_index = {}
        self._generation, self._count = generation, count

    def knows(self, uuid: str) -> bool:
        """Static facts of this GPU have been read in this generation."""
        return uuid in self._known and self._known[uuid].nvlinks != NOT_COLLECTED

    def settle(self, devices: Iterable[planes.Gpu]) -> tuple[planes.Gpu, ...]:
        """Return the devices of a pass, each with a name and its remembered facts, in order of index."""
        read = tuple(devices)
        taken = {gpu.uuid for gpu in read if gpu.uuid}
        settled = []
        for index, gpu in enumerate(read):
            named = gpu if gpu.uuid else self._named(index, gpu, taken)
            taken.add(named.uuid)
            settled.append(self._completed(index, named))
        return tuple(settled)

    def _named(self, index: int, gpu: planes.Gpu, taken: set[str]) -> planes.Gpu:
        uuid = self._uuid_by_index.get(index)
        if uuid is None or uuid in taken:
            return dataclasses.replace(gpu, uuid=f"unidentified-{index}")
        return dataclasses.replace(gpu, uuid=uuid)

    def _completed(self, index: int, gpu: planes.Gpu) -> planes.Gpu:
        before = self._known.get(gpu.uuid)
        kept: Any = _KEPT_OF_FAILED if gpu.error else _KEPT
        if before is not None:
            missing = {name: getattr(before, name) for name in kept if getattr(gpu, name) == NOT_COLLECTED}
            gpu = dataclasses.replace(gpu, **missing)
        match gpu.pci:
            case Known(_) if not gpu.error:
                self._known[gpu.uuid] = gpu
                self._uuid_by_index = {i: uuid for i, uuid in self._uuid_by_index.items() if uuid != gpu.uuid}
                self._uuid_by_index[index] = gpu.uuid
            case Known() | Unknown():
                pass
        return gpu


def utc(stamp: Any) -> datetime.datetime:
    """Return a protobuf timestamp as a time."""
    instant: datetime.datetime = stamp.ToDatetime(tzinfo=datetime.UTC)
    return instant
