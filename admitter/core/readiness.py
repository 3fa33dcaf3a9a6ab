"""May a gang that has a place be let go, as far as its images are concerned?

In: the place, what nodes report of images, what their warmers answer. Out: an Explanation of why not yet, or None; the
questions that nodes are to be asked.

Invariants: only a registry's own word that an image is not there holds a gang without end, and such a gang keeps no place
from others. 401 is such a word only if the pod's pull secret was shown; 404 only if it was, or if the pods name none, and if
no node of the place has the image. Whatever is not known in time (no warmer, no answer, a host that is left alone) holds
nobody. A hold for warmth ends after `hold_seconds`, and at once for an image that will not get warm. Nothing is leased for
a gang that is held.

Not here: which nodes are to be warmed (hints.py).
"""

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from admitter.core import imagename, imagewhy
from admitter.core.starting import Starts
from admitter.model.content import Answer, Content, ImagePolicy, PullSecret, Question
from admitter.model.decision import Explanation, Grant
from admitter.model.gang import Gang
from admitter.model.nodecapacity import ClusterView
from muster.model.vocabulary import WaitReason

MAX_LAYERS = 500
MAX_TEXT = 1024
_MIB = 1024 * 1024
_MAX_KNOWN = 4096
_HOLD_REMEMBERED_SECONDS = 600.0
"""As long as a withdrawn gang's place in the queue."""

Secrets = Mapping[tuple[str, str], PullSecret]
"""Namespace and registry -> what a readable pull secret holds for it."""
Refusals = Mapping[tuple[str, str, str], str]
"""Node, namespace and full name -> why that node is not told to warm that image, and will not be soon (hints.py)."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A question under way."""

    question: Question
    node: str
    namespace: str
    at: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Heard:
    answer: Answer
    at: float
    with_secret: bool


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Gone:
    """A gang whose images cannot be pulled, as far as was heard."""

    heard: Mapping[str, _Heard]
    """By full name."""
    nodes: tuple[str, ...]
    why: Explanation


class Readiness:
    """What is known of the images of gangs, and who is held for them. Belongs to one event loop."""

    def __init__(self, policy: ImagePolicy) -> None:
        self.policy = policy
        self.starts = Starts(policy)
        self.secrets: Secrets = {}
        self.read: frozenset[tuple[str, str]] | None = None
        """Namespace and name of the pull secrets that were read, or may not be; None: none are ever read."""
        self._reading: dict[str, float] = {}
        """Gang -> since when its secrets are awaited."""
        self.refused: Refusals = {}
        self.waived: dict[str, str] = {}
        """Gang -> what of its place is not warm and was not waited for, as it was judged last."""
        self.held: dict[str, tuple[Gang, tuple[str, ...]]] = {}
        """Gang -> the nodes of the place that it would have."""
        self._view: ClusterView | None = None
        self._since: dict[str, float] = {}
        """Gang -> when it was first held until warm; a launcher that asks again and again is held no longer for it."""
        self._asked: dict[tuple[str, str], _Asked] = {}
        """By namespace and full name: what one namespace's secret opens is no answer for another."""
        self._heard: dict[tuple[str, str], _Heard] = {}
        self._gone: dict[str, _Gone] = {}
        """By gang."""
        self._last_id = 0
        self.note: Callable[[], None] = lambda: None
        """Called when there is a question that was not there before."""
        self.version = 0
        """Rises with every answer."""

    def look(self, view: ClusterView) -> None:
        """Take the view that a pass decides from."""
        self._view = view
        self.starts.look(view)

    def forget(self, living: Iterable[str]) -> None:
        """Drop what is known of the places of gangs that wait no more."""
        names = set(living)
        self.held = {name: place for name, place in self.held.items() if name in names}
        self.waived = {name: why for name, why in self.waived.items() if name in names}
        self._gone = {name: gone for name, gone in self._gone.items() if name in names}
        self._reading = {name: since for name, since in self._reading.items() if name in names}

    def stand_by(self) -> None:
        """Forget gangs, and what their secrets hold: another admitter has them."""
        self.secrets, self.read = {}, frozenset() if self.read is not None else None
        self._asked.clear()
        self.forget(())

    def judge(self, gang: Gang, grant: Grant, now: float) -> Explanation | None:
        """Return why a gang with a place may not be let go yet; None: it may."""
        nodes = tuple(sorted({place.node for place in grant.placements}))
        content = {podset.name: podset.content for podset in gang.podsets if podset.content.images}
        if not content:
            return None
        why = self._unresolved(gang, content, nodes, now) if self.policy.is_checked else None
        if why is None and self.policy.hold_seconds:
            why = self._cold(gang, grant, content, now)
        if why is None:
            self.held.pop(gang.full_name, None)
        else:
            self.held[gang.full_name] = (gang, nodes)
        return why

    # -- is it there?

    def unavailable(self, gang: Gang, now: float) -> Explanation | None:
        """Return why a gang needs no place before another answer has come; its images are asked for again meanwhile."""
        gone = self._gone.get(gang.full_name)
        if gone is None:
            return None
        asked = names(gang)
        if any(self._heard.get((gang.namespace, name)) is not heard for name, heard in gone.heard.items()) or (
            not gone.heard.keys() <= set(asked)
        ):
            del self._gone[gang.full_name]
            return None
        others = self._view.nodes if self._view is not None else ()
        for name in asked:
            self.ask(gang.namespace, name, itertools.chain(gone.nodes, others), now)
        return gone.why

    def _unresolved(
        self, gang: Gang, content: Mapping[str, Content], nodes: tuple[str, ...], now: float
    ) -> Explanation | None:
        if self._awaits_secrets(gang, content.values(), now):
            text = "its pull secrets are being read"
            return imagewhy.why(gang, WaitReason.IMAGES_UNRESOLVED, text, now + self.policy.check_seconds)
        gone: dict[str, _Heard] = {}
        open_ = []
        for name in names(gang):
            heard = self.ask(gang.namespace, name, nodes, now)
            if heard is not None and self._holds(name, heard, content.values(), nodes):
                gone[name] = heard
            elif heard is None and self._is_awaited(gang.namespace, name, now):
                open_.append(name)
        if gone:
            said = [f"{name}: {heard.answer.reason} {heard.answer.detail}".rstrip() for name, heard in gone.items()]
            why = imagewhy.why(gang, WaitReason.IMAGE_UNAVAILABLE, f"cannot be pulled: {imagewhy.some(said)}", None)
            self._gone[gang.full_name] = _Gone(heard=gone, nodes=nodes, why=why)
            return why
        if open_:
            text = f"its images are being resolved: {imagewhy.some(open_)}"
            return imagewhy.why(gang, WaitReason.IMAGES_UNRESOLVED, text, now + self.policy.check_seconds)
        return None

    def _awaits_secrets(self, gang: Gang, content: Iterable[Content], now: float) -> bool:
        """Return whether a question would go without a secret that is only about to be read: its answer would prove nothing."""
        named = {(gang.namespace, name) for each in content for name in each.pull_secrets}
        if self.read is None or named <= self.read:
            return False
        self.note()
        return now - self._reading.setdefault(gang.full_name, now) < self.policy.check_seconds

    def _holds(self, name: str, heard: _Heard, content: Collection[Content], nodes: Iterable[str]) -> bool:
        """Return whether the registry would tell the pods the same: some hide from strangers what they have."""
        mine = [each for each in content if name in map(imagename.full, set(each.images).difference(each.unpulled))]
        if not mine or not _is_gone(heard) or (not heard.with_secret and any(each.pull_secrets for each in mine)):
            return False
        return not any(self.starts.has(node, each, name) for node in nodes for each in mine)

    def ask(
        self, namespace: str, name: str, nodes: Iterable[str], now: float, *, fresh_seconds: float | None = None
    ) -> "_Heard | None":
        """Return what an image is, if that was heard lately; have a node asked if it was not, and nobody is being asked."""
        key = (namespace, name)
        heard, fresh = self._heard.get(key), self.policy.fresh_seconds if fresh_seconds is None else fresh_seconds
        secret = self.secrets.get((namespace, imagename.host(name)))
        # What was refused without a secret may be answered with one.
        is_new = heard is not None and not heard.answer.digest and not heard.with_secret and secret is not None
        is_old = heard is None or now - heard.at > fresh or is_new
        asked = self._asked.get(key)
        if is_old and (asked is None or now - asked.at > fresh):
            node = next((node for node in nodes if self._can_ask(node)), "")
            if node:
                self._last_id += 1
                credential = secret.credential if secret is not None else None
                question = Question(id=self._last_id, reference=name, credential=credential)
                self.note()
                self._asked[key] = _Asked(question=question, node=node, namespace=namespace, at=now)
        # An old no stands until there is another answer: a registry that has gone quiet has not found the image.
        return heard if heard is not None and (not is_old or _is_gone(heard)) else None

    def answered(self, node: str, answers: Iterable[Answer], now: float) -> bool:
        """Take a node's answers; return whether any was asked for."""
        open_ = {asked.question.id: key for key, asked in self._asked.items() if asked.node == node}
        is_news = False
        for answer in answers:
            key = open_.get(answer.id)
            if key is None:
                continue
            if _is_absurd(answer):
                continue
            is_news = True
            self.version += 1
            asked = self._asked.pop(key)
            plain = dataclasses.replace(answer, layers=())
            self._heard[key] = _Heard(answer=plain, at=now, with_secret=asked.question.credential is not None)
            if answer.digest:
                self.starts.learn(*key, answer)
        while len(self._heard) > _MAX_KNOWN:
            del self._heard[next(iter(self._heard))]
        return is_news

    def questions(self, now: float) -> dict[str, tuple[Question, ...]]:
        """Return what each node is to be asked."""
        found: dict[str, tuple[Question, ...]] = {}
        for key, asked in list(self._asked.items()):
            if now - asked.at > self.policy.fresh_seconds:
                del self._asked[key]
            else:
                found[asked.node] = (*found.get(asked.node, ()), asked.question)
        return found

    def _can_ask(self, node: str) -> bool:
        state = self._view.nodes.get(node) if self._view is not None else None
        if state is None or self._view is None or self._view.is_stale(node) or state.warmth is None:
            return False
        return not state.warmth.store.problem.startswith(imagewhy.WARMER_AWAY)

    def _is_awaited(self, namespace: str, name: str, now: float) -> bool:
        asked = self._asked.get((namespace, name))
        return asked is not None and now - asked.at < self.policy.check_seconds

    # -- is it warm?

    def _cold(self, gang: Gang, grant: Grant, content: Mapping[str, Content], now: float) -> Explanation | None:
        missing = list(self._missing(gang, grant, content))
        refused = [f"{image} on {node}: {why}" for node, image, _, why in missing if why]
        missing = [each for each in missing if not each[3]]
        self.waived.pop(gang.full_name, None)
        if refused:
            self.waived[gang.full_name] = f"not waited for: {imagewhy.some(refused)}"
        if not missing:
            return None
        since = self._since.get(gang.full_name, float("-inf"))
        if now - since > self.policy.hold_seconds + _HOLD_REMEMBERED_SECONDS:
            self._since.pop(gang.full_name, None)
            since = self._since[gang.full_name] = now
            while len(self._since) > _MAX_KNOWN:
                del self._since[next(iter(self._since))]
        until = since + self.policy.hold_seconds
        if now >= until:
            return None
        parts = [f"{node} misses {-(-size // _MIB)} MiB of {image}" for node, image, size, _ in missing]
        also = f"; {self.waived[gang.full_name]}" if refused else ""
        text = f"has a place, held until its images are warm there: {imagewhy.some(parts)}{also}"
        return imagewhy.why(gang, WaitReason.IMAGES_COLD, text, until)

    def _missing(self, gang: Gang, grant: Grant, content: Mapping[str, Content]) -> Iterator[tuple[str, str, int, str]]:
        """Yield what nodes of the place lack of images that somebody is to warm there, and why it will not come."""
        seen: set[tuple[str, str]] = set()
        for place in sorted(grant.placements, key=lambda each: (each.node, each.podset)):
            if place.podset not in content or not self._can_ask(place.node):
                continue
            if not self.starts.warms(place.node, content[place.podset]):
                continue
            for image, size in self.starts.on(place.node, gang.namespace, content[place.podset]).missing:
                is_hinted = imagename.host(imagename.full(image)) in self.policy.registries
                if is_hinted and (place.node, image) not in seen:
                    seen.add((place.node, image))
                    yield place.node, image, size, self._refusal(place.node, gang.namespace, imagename.full(image))

    def _refusal(self, node: str, namespace: str, name: str) -> str:
        """Return why an image will not get warm on a node; empty: it may."""
        refused, answer = self.refused.get((node, namespace, name)), self.starts.known(namespace, name)
        if refused is not None:
            return refused
        said: list[tuple[str, str]] = []
        state, heard = (
            self._view.nodes.get(node) if self._view is not None else None,
            self._heard.get((namespace, name)),
        )
        if answer is None and heard is not None:
            said = [(heard.answer.reason, heard.answer.detail)]
        elif answer is not None and state is not None and state.warmth is not None:
            reference = imagename.at(name, answer.digest)
            said = [(image.reason, image.detail) for image in state.warmth.images if image.reference == reference]
        return next((f"{reason} {detail}".rstrip() for reason, detail in said if reason in imagewhy.NOT_WARMED), "")


def names(gang: Gang) -> tuple[str, ...]:
    """Return the full names of a gang's images, sorted."""
    found = {imagename.full(image) for podset in gang.podsets for image in podset.content.images}
    return tuple(sorted(found - {""}))


def _is_absurd(answer: Answer) -> bool:
    """Return whether no warmer of ours says so: what is accepted is kept in memory."""
    sizes = (answer.bytes_total, *(layer.bytes for layer in answer.layers))
    texts = (answer.digest, answer.reason, answer.detail)
    is_digest = not answer.digest or imagename.is_digest(answer.digest)
    return min(sizes) < 0 or len(answer.layers) > MAX_LAYERS or max(map(len, texts)) > MAX_TEXT or not is_digest


def _is_gone(heard: _Heard) -> bool:
    reason = heard.answer.reason
    return reason == imagewhy.NOT_FOUND or (reason == imagewhy.UNAUTHORIZED and heard.with_secret)
