"""How long a gang's images take to be ready on each node: a preference of placement, and what a hold waits for.

In: nodes' warmth as their warmers measured it, what images consist of where a warmer has said so, to each namespace for
itself: what one's secret opens is nothing to another. Out: bytes missing and seconds, by node; by row, the units that a
slow start counts for.

Invariants: what is not known counts as cold: a node without a warmer, a store that cannot be read, a runtime handler that
nobody can follow. A penalty is 0..`preference_units`, whatever the delay, and no row is ever left out for it. A view has
a bound of work: the first contents that are asked for have a preference, whatever was worked out before, the rest has none.

Why layers before names: a node that has all layers of an image under another name starts it at once, and an image that no
node has seen can still share most of its bytes with one that is there (images.md section 5).
"""

import collections
import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

import numpy as np

from admitter.core import imagename
from admitter.core.table import Numbers, Table
from admitter.model.content import Answer, Content, ImagePolicy
from admitter.model.gang import Gang
from admitter.model.nodecapacity import ClusterView, NodeState
from muster.model.reading import Known, Reading, Unknown
from muster.model.warmth import Hold, ImageWarmth, Level, NodeWarmth

_Key: TypeAlias = tuple[Content, tuple[int, ...]]
"""A content, and which answer there is for each of its images; 0: none."""

_MIB = 1024 * 1024
DOWNLOAD_RATE = 50.0 * _MIB
UNPACK_RATE = 60.0 * _MIB
"""Compressed bytes a second where a node has not learned its own (images.md section 2)."""
START_SECONDS = 0.3
LAZY_SECONDS = 2.0
"""A lazily mounted image starts at once and reads slowly (images.md section 7)."""
UNSEEN_BYTES = 4 * 1024 * _MIB
"""An image of which nothing is known; CUDA images take 3 to 10 GiB."""
MOST_CONTENTS = 32
"""Looked at for one view, and remembered; all nodes' starts of one take 1 MiB at 5,000 nodes."""
MOST_STARTS = 50_000
"""Nodes times contents for one view, the least of contents being one: about half a second."""
_MOST_KNOWN = 512
"""Images of which it is known what they are; one with 500 layers takes 50 KiB."""
_MOST_COLUMNS = 64


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What one node lacks of some images."""

    seconds: float
    missing: tuple[tuple[str, int], ...] = ()
    """Image and bytes that have to come or to be unpacked, of every image that is not ready."""


def of_node(warmth: NodeWarmth | None, content: Content, known: Mapping[str, Answer]) -> Start:
    """Return what a node lacks of a pod's images; `known` by full name."""
    return _start(_Index(warmth), _asked(content, known))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Learned:
    answer: Answer
    number: int
    """The same for namespaces to which an image is the same: what is worked out is worked out once."""


_Column: TypeAlias = tuple[tuple[str, ...], Numbers]


class Starts:
    """The starts on all nodes, worked out once per node and content until the node's images change."""

    def __init__(self, policy: ImagePolicy) -> None:
        self._policy = policy
        self._nodes: Mapping[str, NodeState] = {}
        self._indices: dict[str, _Index] = {}
        self._known: dict[tuple[str, str], _Learned] = {}
        """By namespace and full name, oldest first."""
        self._last_number = 0
        self._starts: collections.OrderedDict[_Key, tuple[_Asked, dict[str, Start]]] = collections.OrderedDict()
        self._columns: collections.OrderedDict[tuple[_Key, ...], _Column] = collections.OrderedDict()
        self._is_synced = False
        self._seen: set[_Key] = set()
        """Contents that were asked for since the last look."""

    def look(self, view: ClusterView) -> None:
        """Take a view; nothing is worked out before somebody asks."""
        self._nodes, self._is_synced = view.nodes, False
        self._seen.clear()

    def learn(self, namespace: str, name: str, answer: Answer) -> None:
        """Take what an image is to a namespace, by its full name."""
        # What is asked again has another id, and is the same all the same; so is what others were answered.
        plain = dataclasses.replace(answer, id=0)
        same = (each.number for (_, its), each in self._known.items() if its == name and each.answer == plain)
        number = next(same, None)
        if number is None:
            number = self._last_number = self._last_number + 1
        self._known.pop((namespace, name), None)
        self._known[namespace, name] = _Learned(answer=plain, number=number)
        while len(self._known) > _MOST_KNOWN:
            # Whoever names most makes room.
            most, _ = collections.Counter(each for each, _ in self._known).most_common(1)[0]
            del self._known[next(key for key in self._known if key[0] == most)]

    def known(self, namespace: str, name: str) -> Answer | None:
        """Return what an image is to a namespace, if a warmer has said so."""
        learned = self._known.get((namespace, name))
        return learned.answer if learned is not None else None

    def on(self, node: str, namespace: str, content: Content) -> Start:
        """Return what a node lacks of a content."""
        self._sync()
        _, starts = self._starts.get(self._key(namespace, content), (None, {}))
        return starts[node] if node in starts else _start(self._index(node), self._asked(namespace, content))

    def has(self, node: str, content: Content, name: str) -> bool:
        """Return whether a node's runtime has an image by its full name, and need not ask the registry."""
        self._sync()
        index = self._index(node)
        snapshotter = index.snapshotter(content.handler)
        if not index.is_readable or snapshotter is None:
            return False
        found = _entry(index, name, imagename.digest(name), snapshotter)
        is_there = found is not None and found.hold is Hold.VISIBLE and not found.unverified
        return found is not None and is_there and found.level in {Level.UNPACKED, Level.LAZY}

    def warms(self, node: str, content: Content) -> bool:
        """Return whether a node's warmer works for the snapshotter that pods of a content would use there."""
        self._sync()
        index = self._index(node)
        snapshotter = index.snapshotter(content.handler)
        return index.warmth is not None and snapshotter is not None and snapshotter == index.warmth.store.snapshotter

    def everywhere(self, namespace: str, content: Content) -> Mapping[str, Start] | None:
        """Return the starts on the nodes that have a warmer; None: enough contents were looked at for this view."""
        self._sync()
        key = self._key(namespace, content)
        return self._of(namespace, key)[1] if self._may_look({key}) else None

    def penalty(self, gang: Gang, table: Table) -> Numbers | None:
        """Return by row the units that a gang's slow start counts for; None: it is no different anywhere."""
        contents = dict.fromkeys(podset.content for podset in gang.podsets if podset.content.images)
        if not contents or not self._policy.preference_units:
            return None
        self._sync()
        keys = tuple(self._key(gang.namespace, content) for content in contents)
        if not self._indices or not self._may_look(keys):
            return None
        kept = self._columns.get(keys)
        if kept is None or kept[0] is not table.names:
            kept = self._columns[keys] = table.names, self._column(gang.namespace, keys, table.names)
            while len(self._columns) > _MOST_COLUMNS:
                self._columns.popitem(last=False)
        self._columns.move_to_end(keys)
        column = kept[1]
        return column if len(column) and int(column.min()) != int(column.max()) else None

    def _key(self, namespace: str, content: Content) -> _Key:
        learned = (self._known.get((namespace, imagename.full(image))) for image in content.images)
        return content, tuple(each.number if each is not None else 0 for each in learned)

    def _asked(self, namespace: str, content: Content) -> "_Asked":
        names = map(imagename.full, content.images)
        answers = {name: answer for name in names if (answer := self.known(namespace, name)) is not None}
        return _asked(content, answers)

    def _may_look(self, keys: Collection[_Key]) -> bool:
        """Return whether the view's bound allows these; what is worked out already counts, so that memory decides nothing."""
        most = max(1, min(MOST_CONTENTS, MOST_STARTS // max(1, len(self._indices))))
        wanted = self._seen.union(keys)
        if len(wanted) > max(most, len(self._seen)):
            return False
        self._seen = wanted
        return True

    def _column(self, namespace: str, keys: Iterable[_Key], names: tuple[str, ...]) -> Numbers:
        slowest = np.zeros(len(names))
        for key in keys:
            asked, starts = self._of(namespace, key)
            cold = _start(_NOWHERE, asked).seconds
            found = [starts[name].seconds if name in starts else cold for name in names]
            slowest = np.maximum(slowest, found)
        share = np.minimum(slowest - START_SECONDS, self._policy.preference_seconds) / self._policy.preference_seconds
        column: Numbers = np.rint(np.maximum(share, 0) * self._policy.preference_units).astype(np.int64)
        return column

    def _of(self, namespace: str, key: _Key) -> "tuple[_Asked, dict[str, Start]]":
        """Return what a content asks for, and the starts on the nodes that have a warmer."""
        if key not in self._starts:
            asked = self._asked(namespace, key[0])
            self._starts[key] = asked, {node: _start(index, asked) for node, index in self._indices.items()}
            while len(self._starts) > MOST_CONTENTS:
                self._starts.popitem(last=False)
        self._starts.move_to_end(key)
        return self._starts[key]

    def _index(self, node: str) -> "_Index":
        return self._indices.get(node, _NOWHERE)

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
        for asked, starts in self._starts.values():
            for node in gone:
                starts.pop(node, None)
            starts.update((node, _start(self._indices[node], asked)) for node in changed)


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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A content, with what does not depend on the node."""

    images: tuple[tuple[str, str, Answer | None], ...]
    """As the pods name it, in full, and what it is."""
    handler: str | None


def _asked(content: Content, known: Mapping[str, Answer]) -> _Asked:
    names = {image: imagename.full(image) for image in content.images}
    return _Asked(
        images=tuple((image, name, known.get(name)) for image, name in names.items()), handler=content.handler
    )


def _start(index: _Index, asked: _Asked) -> Start:
    download = unpack = 0
    seconds, missing = START_SECONDS, []
    for image, name, answer in asked.images:
        fetch, open_, lazy = _missing(index, name, asked.handler, answer)
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
