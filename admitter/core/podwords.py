"""When a gang's newest word goes on its first pod: only on change, and not more often than the API server likes.

In: what the adapter says of each gang, the clock. Out: the words that are due, each once.

Invariants: a word that stands on the pod already is not due, whoever wrote it. A gang's reason is due at once; the same reason
in other words waits `again_seconds` after the last, and so does one that could not be written. All gangs together take from one
bucket, by turns of their namespaces and in each the oldest first: a namespace in which much is said makes nobody else's words
wait. What is superseded before it was due is never written, and its successor has its place in the line.

Why the same reason waits: the numbers in a summary move with every pod that comes or goes anywhere.

Not here: the request (publish/pods.py), Events of Nodes (nodestatus.py).
"""

import collections
import dataclasses
from collections.abc import Mapping

from admitter.core import pace
from admitter.model.cluster import KubePod, Owner
from admitter.model.hold import HoldReason, Told
from muster.model import codec, labels

MAX_MESSAGE = 1024
PER_SECOND = 10
BURST = 20
AGAIN_SECONDS = 30.0
KEPT_SECONDS = 600.0
"""What was written is remembered so long: gangs go without a word. The pod itself remembers longer."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """What is to stand on a pod."""

    namespace: str
    pod: KubePod | None
    """The gang's first; None: none is there, since what makes them is suspended."""
    owner: Owner | None
    """What makes it: gets the Event too."""
    told: Told
    is_aside: bool = False
    """An Event alone: the condition goes on saying why the gang waits."""

    @property
    def uid(self) -> str:
        """Of what it stands on."""
        if self.pod is not None:
            return self.pod.uid
        return self.owner.uid if self.owner is not None else ""

    @property
    def is_placed(self) -> bool:
        """Return whether the condition is True."""
        return self.told.reason == HoldReason.RELEASED

    @property
    def message(self) -> str:
        """The summary, bounded."""
        return self.told.summary[:MAX_MESSAGE]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    uid: str
    reason: str
    message: str
    at: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What was said and is not written yet, and what was written last; by gang."""

    waiting: Mapping[str, Word] = codec.mapping()
    arrived: Mapping[str, int] = codec.mapping()
    """The place in the line of what waits: that of the first word that was not written."""
    arrivals: int = 0
    written: Mapping[str, Written] = codec.mapping()
    turns: Mapping[str, int] = codec.mapping()
    """Namespace -> the number of the turn in which it was served last, while words of it wait."""
    bucket: pace.Bucket


def empty(now: float) -> Words:
    """Return what is known at the start."""
    return Words(bucket=pace.full(BURST, 1 / PER_SECOND, now))


def said(words: Words, newest: Mapping[str, Word]) -> Words:
    """Take each gang's newest word, in place of what was not written yet; all of a look together, since this copies."""
    waiting, arrived, arrivals = {**words.waiting, **newest}, dict(words.arrived), words.arrivals
    for key, word in newest.items():
        if _stands(words.written.get(key), word):
            del waiting[key]
            arrived.pop(key, None)
        elif key not in arrived:
            arrived[key] = arrivals = arrivals + 1
    return dataclasses.replace(words, waiting=codec.freeze(waiting), arrived=codec.freeze(arrived), arrivals=arrivals)


def due(words: Words, now: float) -> tuple[Words, tuple[tuple[str, Word], ...]]:
    """Return the words to write now; of one namespace those of other reasons before those in other words."""
    bucket, waiting = words.bucket, dict(words.waiting)
    written = {key: last for key, last in words.written.items() if now - last.at < KEPT_SECONDS}
    lines = _lines(words, now)
    turns = {namespace: words.turns.get(namespace, 0) for namespace in lines}
    taken: list[tuple[str, Word]] = []
    while lines and (after := bucket.take(now)) is not None:
        bucket = after
        namespace = min(lines, key=lambda each: (turns[each], each))
        turns[namespace] = max(turns.values()) + 1
        key = lines[namespace].popleft()
        if not lines[namespace]:
            del lines[namespace]
        word = waiting.pop(key)
        taken.append((key, word))
        if word.is_placed:
            written.pop(key, None)
        else:
            written[key] = Written(uid=word.uid, reason=word.told.reason, message=word.message, at=now)
    words = Words(
        waiting=codec.freeze(waiting),
        arrived=codec.freeze({key: words.arrived.get(key, 0) for key in waiting}),
        arrivals=words.arrivals,
        written=codec.freeze(written),
        turns=codec.freeze(turns),
        bucket=bucket,
    )
    return words, tuple(taken)


def _lines(words: Words, now: float) -> dict[str, collections.deque[str]]:
    """Return the gangs of each namespace whose words may be written now, in order."""
    found: dict[str, list[tuple[bool, int, str]]] = {}
    for key, word in words.waiting.items():
        is_same = _is_same_reason(words, key)
        if not is_same or now - words.written[key].at >= AGAIN_SECONDS:
            found.setdefault(word.namespace, []).append((is_same, words.arrived.get(key, 0), key))
    return {namespace: collections.deque(key for *_, key in sorted(each)) for namespace, each in found.items()}


def failed(words: Words, lost: Mapping[str, Word], now: float) -> Words:
    """Take back words that got no answer: they are due again after a while, unless there are newer ones by then."""
    tried = {key: Written(uid=word.uid, reason=word.told.reason, message="", at=now) for key, word in lost.items()}
    return dataclasses.replace(
        words, waiting=codec.freeze({**lost, **words.waiting}), written=codec.freeze({**words.written, **tried})
    )


def _is_same_reason(words: Words, key: str) -> bool:
    last, word = words.written.get(key), words.waiting[key]
    return last is not None and (last.uid, last.reason) == (word.uid, word.told.reason)


def _stands(last: Written | None, word: Word) -> bool:
    """Return whether a pod has the word already: by us, or by the leader before us."""
    if last is not None and (last.uid, last.reason, last.message) == (word.uid, word.told.reason, word.message):
        return True
    if last is not None or word.pod is None:
        return False
    return any(
        each.type == labels.PLACED.full
        and (each.status, each.reason, each.message) == (_status(word), word.told.reason, word.message)
        for each in word.pod.conditions
    )


def _status(word: Word) -> str:
    return "True" if word.is_placed else "False"
