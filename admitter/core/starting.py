"""How long a gang's images take to be ready on each node: a preference of placement, and what a hold waits for.

In: nodes' warmth as their warmers measured it, what images consist of where a warmer has said so. Out: bytes missing and
seconds, by node; by row, the units that a slow start counts for.

Invariants: what is not known counts as cold: a node without a warmer, a store that cannot be read, a runtime handler that
nobody can follow. A penalty is 0..`preference_units`, whatever the delay, and no row is ever left out for it.

Why layers before names: a node that has all layers of an image under another name starts it at once, and an image that no
node has seen can still share most of its bytes with one that is there (images.md section 5).
"""

import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np

from admitter.core import imagename
from admitter.core.table import Numbers, Table
from admitter.model.content import Answer, Content, ImagePolicy
from admitter.model.gang import Gang
from admitter.model.nodecapacity import ClusterView, NodeState
from muster.model.reading import Known, Reading, Unknown
from muster.model.warmth import ImageWarmth, Level, NodeWarmth

_MIB = 1024 * 1024
DOWNLOAD_RATE = 50.0 * _MIB
UNPACK_RATE = 60.0 * _MIB
"""Compressed bytes a second where a node has not learned its own (images.md section 2)."""
START_SECONDS = 0.3
LAZY_SECONDS = 2.0
"""A lazily mounted image starts at once and reads slowly (images.md section 7)."""
UNSEEN_BYTES = 4 * 1024 * _MIB
"""An image of which nothing is known; CUDA images take 3 to 10 GiB."""
_KEPT = 512
"""Contents remembered."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What one node lacks of some images."""

    seconds: float
    missing: tuple[tuple[str, int], ...] = ()
    """Image and bytes that have to come or to be unpacked, of every image that is not ready."""


def of_node(warmth: NodeWarmth | None, content: Content, known: Mapping[str, Answer]) -> Start:
    """Return what a node lacks of a pod's images; `known` by full name."""
    index = _Index(warmth)
    return _start(index, content, known)


class Starts:
    """The starts on all nodes, worked out once per node and content until the node's images change."""

    def __init__(self, policy: ImagePolicy) -> None:
        self._policy = policy
        self._nodes: Mapping[str, NodeState] = {}
        self._indices: dict[str, _Index] = {}
        self._known: dict[str, Answer] = {}
        self._starts: dict[Content, dict[str, Start]] = {}
        self._columns: dict[tuple[Content, ...], tuple[tuple[str, ...], Numbers]] = {}
        self._is_synced = False

    def look(self, view: ClusterView) -> None:
        """Take a view; nothing is worked out before somebody asks."""
        self._nodes, self._is_synced = view.nodes, False

    def learn(self, name: str, answer: Answer) -> None:
        """Take what an image is, by its full name."""
        # What is asked again has another id, and is the same all the same.
        plain = dataclasses.replace(answer, id=0)
        if self._known.get(name) != plain:
            self._known[name] = plain
            self._starts.clear()
            self._columns.clear()

    def known(self, name: str) -> Answer | None:
        """Return what an image is, if a warmer has said so."""
        return self._known.get(name)

    def on(self, node: str, content: Content) -> Start:
        """Return what a node lacks of a content."""
        self._sync()
        found = self._of(content).get(node)
        return found if found is not None else _start(_NOWHERE, content, self._known)

    def penalty(self, gang: Gang, table: Table) -> Numbers | None:
        """Return by row the units that a gang's slow start counts for; None: it is no different anywhere."""
        contents = tuple(dict.fromkeys(podset.content for podset in gang.podsets if podset.content.images))
        if not contents or not self._policy.preference_units:
            return None
        self._sync()
        if not self._indices:
            return None
        kept = self._columns.get(contents)
        if kept is None or kept[0] is not table.names:
            if len(self._columns) >= _KEPT:
                self._columns.clear()
            kept = self._columns[contents] = table.names, self._column(contents, table.names)
        column = kept[1]
        return column if len(column) and int(column.min()) != int(column.max()) else None

    def _column(self, contents: Iterable[Content], names: tuple[str, ...]) -> Numbers:
        slowest = np.zeros(len(names))
        for content in contents:
            starts, cold = self._of(content), _start(_NOWHERE, content, self._known).seconds
            found = [starts[name].seconds if name in starts else cold for name in names]
            slowest = np.maximum(slowest, found)
        share = np.minimum(slowest - START_SECONDS, self._policy.preference_seconds) / self._policy.preference_seconds
        column: Numbers = np.rint(np.maximum(share, 0) * self._policy.preference_units).astype(np.int64)
        return column

    def _of(self, content: Content) -> dict[str, Start]:
        """Return the starts on the nodes that have a warmer."""
        if content not in self._starts:
            if len(self._starts) >= _KEPT:
                self._starts.clear()
            self._starts[content] = {node: _start(index, content, self._known) for node, index in self._indices.items()}
        return self._starts[content]

    def _sync(self) -> None:
        """Bring everything that was worked out up to the newest view."""
        if self._is_synced:
            return
        self._is_synced = True
        warm = {node: state.warmth for node, state in self._nodes.items() if state.warmth is not None}
        gone = self._indices.keys() - warm.keys()
        changed = [
            node
            for node, warmth in warm.items()
            if node not in self._indices or self._indices[node].warmth is not warmth
        ]
        for node in gone:
            del self._indices[node]
        self._indices.update((node, _Index(warm[node])) for node in changed)
        if gone or changed:
            self._columns.clear()
        for content, starts in self._starts.items():
            for node in gone:
                starts.pop(node, None)
            starts.update((node, _start(self._indices[node], content, self._known)) for node in changed)


class _Index:
    """One node's images, by name."""

    def __init__(self, warmth: NodeWarmth | None) -> None:
        self.warmth = warmth
        self.is_readable = warmth is not None and not warmth.store.problem
        self.images: dict[tuple[str, str], ImageWarmth] = {}
        for image in warmth.images if warmth is not None else ():
            for name in (image.reference, image.digest):
                self.images.setdefault((name, image.snapshotter), image)
        self.tags = {tag.reference: tag.digest for tag in warmth.tags} if warmth is not None else {}
        self.layers = frozenset(warmth.layers) if warmth is not None else frozenset()

    def snapshotter(self, handler: str | None) -> str | None:
        """Return the snapshotter that a handler leads to; None: nobody can say."""
        if self.warmth is None or handler is None:
            return None
        store = self.warmth.store
        return store.handlers.get(handler, store.snapshotter if not handler else None)


_NOWHERE = _Index(None)


def _start(index: _Index, content: Content, known: Mapping[str, Answer]) -> Start:
    download = unpack = 0
    seconds, missing = START_SECONDS, []
    for image in content.images:
        name = imagename.full(image)
        fetch, open_, lazy = _missing(index, name, content.handler, known.get(name))
        download, unpack, seconds = download + fetch, unpack + open_, seconds + lazy
        if max(fetch, open_):
            missing.append((image, max(fetch, open_)))
    store = index.warmth.store if index.warmth is not None else None
    seconds += download / _rate(store.download_bytes_per_second if store is not None else None, DOWNLOAD_RATE)
    seconds += unpack / _rate(store.unpack_bytes_per_second if store is not None else None, UNPACK_RATE)
    return Start(seconds=seconds, missing=tuple(missing))


def _missing(index: _Index, name: str, handler: str | None, answer: Answer | None) -> tuple[int, int, float]:
    """Return the bytes to fetch and to unpack, and seconds beside them."""
    total = answer.bytes_total if answer is not None and answer.bytes_total else UNSEEN_BYTES
    snapshotter = index.snapshotter(handler)
    if index.warmth is None or not index.is_readable or snapshotter is None:
        return total, total, 0.0
    digest = answer.digest if answer is not None else imagename.digest(name)
    found = _entry(index, name, digest, snapshotter)
    if found is not None and found.unverified:
        return total, total, 0.0
    if found is not None and found.level is Level.LAZY:
        return 0, 0, LAZY_SECONDS
    if found is not None and found.level is Level.UNPACKED:
        return 0, 0, 0.0
    if answer is not None and answer.layers and snapshotter == index.warmth.store.snapshotter:
        absent = sum(layer.bytes for layer in answer.layers if layer.prefix not in index.layers)
        is_partial = found is not None and found.level is Level.PARTIAL
        return min(absent, found.bytes_missing) if is_partial and found is not None else absent, absent, 0.0
    if found is not None and found.layers_total:
        return found.bytes_missing, round(found.bytes_total * found.layers_missing / found.layers_total), 0.0
    return total, total, 0.0


def _entry(index: _Index, name: str, digest: str, snapshotter: str) -> ImageWarmth | None:
    """Return what a node says of an image. Under a tag only if the tag was the same image when it was looked at."""
    if digest:
        by_digest = index.images.get((digest, snapshotter)) or index.images.get(
            (imagename.at(name, digest), snapshotter)
        )
        if by_digest is not None:
            return by_digest
        if index.tags.get(name, digest) != digest:
            return None
    return index.images.get((name, snapshotter))


def _rate(reading: Reading[float] | None, usual: float) -> float:
    match reading:
        case Known(value) if value > 0:
            return value
        case Known() | Unknown() | None:
            return usual
