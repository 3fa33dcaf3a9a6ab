"""Which GPU was last seen at each enumeration index, so that one that stops answering is still named.

Invariant: a failing index is named by a UUID only while nothing contradicts it: not after that UUID answered elsewhere,
not after the number of devices changed. Another UUID at an index ends the old one's claim at once. An unnamed GPU is
better than a wrong name: indices shift when a GPU drops out (faults.md D7).

`generation` rises when the set of devices changed, and from one reader process to the next within a boot.
"""

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    uuid: str
    pci: str


class Identities:
    """The memory of one reader process."""

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self._count: int | None = None
        self._by_index: dict[int, Identity] = {}
        self._answering: set[str] = set()

    @property
    def answering(self) -> frozenset[str]:
        """UUIDs whose last identifying query succeeded."""
        return frozenset(self._answering)

    def counted(self, count: int) -> None:
        """The driver enumerates so many devices."""
        if self._count is not None and self._count != count:
            self.generation += 1
            self._by_index.clear()
            self._answering.clear()
        self._count = count

    def saw(self, index: int, identity: Identity) -> None:
        """The GPU at this index answered."""
        before = self._by_index.get(index)
        if before is not None and before.uuid != identity.uuid:
            self.generation += 1
            self._answering.discard(before.uuid)
        for other in [place for place, known in self._by_index.items() if known.uuid == identity.uuid]:
            del self._by_index[other]
        self._by_index[index] = identity
        self._answering.add(identity.uuid)

    def failed(self, index: int, kernel_uuids: Mapping[str, str]) -> Identity | None:
        """The GPU at this index did not answer; return who it is.

        `kernel_uuids`: what the kernel module knows by bus address. It decides only by elimination: one index and one
        GPU are left.
        """
        known = self._by_index.get(index)
        if known is None and self._count is not None and len(self._by_index) == self._count - 1:
            named = {identity.uuid for identity in self._by_index.values()}
            left = [Identity(uuid=uuid, pci=pci) for pci, uuid in kernel_uuids.items() if uuid not in named]
            known = left[0] if len(left) == 1 else None
        if known is not None:
            self._answering.discard(known.uuid)
        return known

    def pci_of(self, uuid: str) -> str | None:
        """Return the bus address of a GPU seen before."""
        return next((known.pci for known in self._by_index.values() if known.uuid == uuid), None)

    def uuid_at(self, pci: str) -> str | None:
        """Return the UUID of the GPU seen at a bus address."""
        return next((known.uuid for known in self._by_index.values() if known.pci == pci), None)

    def addresses(self) -> frozenset[str]:
        """Bus addresses of all GPUs seen."""
        return frozenset(known.pci for known in self._by_index.values())
