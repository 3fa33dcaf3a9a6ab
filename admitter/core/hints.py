"""Which nodes are to have which images ready, for gangs that still wait.

In: the gangs at the head of the queue with the nodes that they will likely get, what their images are, what nodes have of
them, what was hinted last. Out: each node's images, best first, and what is remembered.

Invariants: only images of allowed registries, by digest, that the verification has passed. Only where the warmer works for
the snapshotter that the pods would use: for another it unpacks nothing, and the turn would never end. At most `herd` nodes
pull at once. A namespace's hints make nodes hold at most `namespace_bytes`, and begin at most `namespace_bytes_per_hour`.
What the plan names no more is given up by not being in the list.

Why a node that has begun keeps its turn: to stop half a pull for another half warms nobody.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from admitter.core import imagename
from admitter.core.readiness import Refusals, Secrets, names
from admitter.core.starting import Starts
from admitter.model.content import Answer, ImagePolicy, WarmImage
from admitter.model.gang import Gang
from muster.model import codec

HOUR = 3600.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Likely:
    """A gang that waits, and where it will be."""

    gang: Gang
    nodes: tuple[str, ...]
    """Most likely ones first, spares last."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Bytes that a namespace has made nodes fetch."""

    namespace: str
    at: float
    bytes: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Hints:
    """What nodes were told."""

    images: Mapping[str, tuple[WarmImage, ...]] = codec.mapping()
    """By node."""
    spent: tuple[Spent, ...] = ()
    refused: Refusals = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the plan rests on."""

    starts: Starts
    is_verified: Callable[[str], bool]
    """Of a name with digest."""
    is_refused: Callable[[str], bool] = lambda _: False
    """It was judged, and not let pass."""
    secrets: Secrets = codec.mapping()


NOTHING = Hints()


def plan(likely: Sequence[Likely], before: Hints, known: Known, policy: ImagePolicy, now: float) -> Hints:
    """Return what nodes are to be told now."""
    turn = _Turn(before, policy, now)
    wishes = [wish for each in likely for wish in _wishes(each, known, policy, turn)]
    # Those that have begun go first; a sort keeps the rest in the queue's order.
    for wish in sorted(wishes, key=lambda wish: not turn.has_begun(wish)):
        turn.take(wish)
    return Hints(images=codec.freeze(turn.ordered(wishes)), spent=turn.spent(), refused=turn.refused)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    namespace: str
    node: str
    name: str
    """In full, as the pods have it."""
    image: WarmImage
    missing: int
    total: int


def _wishes(likely: Likely, known: Known, policy: ImagePolicy, turn: "_Turn") -> list[_Wish]:
    found, namespace = [], likely.gang.namespace
    for node in likely.nodes:
        lacks: dict[str, int] = {}
        wanted: set[str] = set()
        for content in (podset.content for podset in likely.gang.podsets):
            if known.starts.warms(node, content):
                wanted.update(map(imagename.full, content.images))
                lacks.update(
                    (imagename.full(image), size) for image, size in known.starts.on(node, namespace, content).missing
                )
        for name in (each for each in names(likely.gang) if each in wanted):
            answer = known.starts.known(namespace, name)
            if answer is None or imagename.host(name) not in policy.registries:
                continue
            reference = imagename.at(name, answer.digest)
            if not known.is_verified(reference):
                if known.is_refused(reference):
                    turn.refuse(node, namespace, name, "the verification refused it")
            else:
                secret = known.secrets.get((namespace, imagename.host(name)))
                image = WarmImage(reference=reference, secret=secret.version if secret is not None else "")
                found.append(
                    _Wish(
                        namespace=namespace,
                        node=node,
                        name=name,
                        image=image,
                        missing=lacks.get(name, 0),
                        total=_total(answer),
                    )
                )
    return found


def _openable(first: WarmImage, other: WarmImage) -> WarmImage:
    return first if first.secret else other


def _total(answer: Answer) -> int:
    return answer.bytes_total or sum(layer.bytes for layer in answer.layers)


class _Turn:
    """One plan being made."""

    def __init__(self, before: Hints, policy: ImagePolicy, now: float) -> None:
        self._policy, self._now = policy, now
        self._begun = {(node, image.reference) for node, images in before.images.items() for image in images}
        self._spent = [spent for spent in before.spent if now - spent.at < HOUR]
        self._taken: dict[tuple[str, str], _Wish] = {}
        self._pulling: set[str] = set()
        self._held: dict[str, int] = {}
        self.refused: dict[tuple[str, str, str], str] = {}

    def refuse(self, node: str, namespace: str, name: str, why: str) -> None:
        """Note that a node is not told, for a reason that does not end by waiting a turn."""
        self.refused[node, namespace, name] = why

    def has_begun(self, wish: _Wish) -> bool:
        return (wish.node, wish.image.reference) in self._begun

    def take(self, wish: _Wish) -> None:
        """Take a wish if every bound allows it."""
        key = (wish.node, wish.image.reference)
        if key in self._taken:
            return
        held = self._held.get(wish.namespace, 0) + wish.total
        is_new = not self.has_begun(wish)
        if held > self._policy.namespace_bytes:
            self.refuse(wish.node, wish.namespace, wish.name, "it is over the namespace's budget of hints")
            return
        if wish.missing and wish.node not in self._pulling and len(self._pulling) >= self._policy.herd:
            return
        if is_new and wish.missing:
            hour = sum(spent.bytes for spent in self._spent if spent.namespace == wish.namespace)
            if hour + wish.missing > self._policy.namespace_bytes_per_hour:
                self.refuse(wish.node, wish.namespace, wish.name, "it is over the namespace's hourly budget of hints")
                return
            self._spent.append(Spent(namespace=wish.namespace, at=self._now, bytes=wish.missing))
        self._held[wish.namespace] = held
        self._taken[key] = wish
        if wish.missing:
            self._pulling.add(wish.node)

    def ordered(self, wishes: Sequence[_Wish]) -> dict[str, tuple[WarmImage, ...]]:
        """Return what was taken by node, in the queue's order; with a secret if any of those who want it has one."""
        found: dict[str, dict[str, WarmImage]] = {}
        for wish in wishes:
            if (wish.node, wish.image.reference) in self._taken:
                mine = found.setdefault(wish.node, {})
                mine[wish.image.reference] = _openable(mine.get(wish.image.reference, wish.image), wish.image)
        return {node: tuple(images.values()) for node, images in sorted(found.items())}

    def spent(self) -> tuple[Spent, ...]:
        return tuple(self._spent)
