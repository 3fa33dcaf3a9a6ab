"""What would Muster have done? Gangs that another scheduler starts, each with our decision at the time and what became of it.

Input: a group as the cluster has it, the answer of the queue (order.py, the same as for pods that are held), the clock. Output: what is
remembered of the gang, and Events as the decision is made and as the gang ends one way or the other.

A gang is judged from the moment at which all of it is there until the scheduler binds its first pod, and once in any case; the decision that stands then is
held against what follows. *Ran*: every member has started. *Failed*: a kubelet refused one, or some of it runs and the rest has
waited for `patience` seconds. So there are five ends: let go and ran, held and ran (held wrongly), held and failed, let go but
to other nodes than the one that refused it, let go and failed.

Invariants: a gang counts once, with one verdict; what was bound before anybody looked (`past`) is not judged. Units that its own pods already
hold count as free for it (`back`): nobody is refused for room that it takes itself.

Not here: any write. Who decides in this mode has nothing to write with (observeloop.py).
"""

import collections
import dataclasses
import enum
from collections.abc import Collection, Iterable, Iterator, Mapping

import numpy as np

from admitter.core import order, strikes
from admitter.core.supply import Supply
from admitter.core.table import Numbers
from admitter.model.cluster import KubePod
from admitter.model.decision import Event, Explanation, Grant
from admitter.model.group import Group
from admitter.model.hold import Told
from admitter.model.nodecapacity import ClusterView
from admitter.model.nodefacts import POD_SLOTS
from muster.model import kube
from muster.model.reading import Known
from muster.model.report import ResourceReport

PARTLY = "PartlyStarted"
"""Some members run and others wait: no kubelet has said a word, and the gang does not run."""


class Verdict(enum.StrEnum):
    HELD = "held"
    GOES = "let-go"
    ELSEWHERE = "elsewhere"
    """Let go, and not to the node that refused it."""


class Outcome(enum.StrEnum):
    RAN = "ran"
    FAILED = "failed"


_KINDS = {
    (Verdict.HELD, Outcome.RAN): "held-wrongly",
    (Verdict.HELD, Outcome.FAILED): "failure-foreseen",
    (Verdict.ELSEWHERE, Outcome.FAILED): "failure-foreseen",
    (Verdict.GOES, Outcome.FAILED): "failure-missed",
}
"""What the decision log says of an end; one that went as decided has no line."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A gang that another scheduler starts."""

    uids: frozenset[str]
    """Of the members that are judged."""
    earlier: frozenset[str] = frozenset()
    """Of pods that were judged before them, in the same gang."""
    arrival: int
    verdict: Verdict | None = None
    reason: str = ""
    """Why it would be held."""
    detail: str = ""
    nodes: frozenset[str] = frozenset()
    """Where it would be let go to."""
    is_final: bool = False
    """The scheduler has begun to bind it."""
    started_at: float | None = None
    """When some of it was first seen to run, and some not."""
    outcome: Outcome | None = None


class Tally:
    """What was seen so far, for whoever shows it."""

    def __init__(self) -> None:
        self.ends: collections.Counter[tuple[Verdict, Outcome]] = collections.Counter()
        self.held: collections.Counter[str] = collections.Counter()
        """Gangs that would be held at this moment, by reason."""


def to_judge(pods: Iterable[KubePod], watched: Watched | None, past: Collection[str]) -> frozenset[str]:
    """Return the UIDs of those of a gang's pods that a decision is wanted on; none: it has been made.

    `past` are no business of ours. Of a gang that goes on (a member was made anew) only those count that are new, and those that
    wait with them.
    """
    if watched is None:
        return frozenset(pod.uid for pod in pods if pod.uid not in past)
    new = {pod.uid for pod in pods} - watched.uids - watched.earlier - set(past)
    if not new:
        return watched.uids if watched.outcome is None and not watched.is_final else frozenset()
    if watched.outcome is None:
        new |= {
            pod.uid for pod in pods if pod.uid in watched.uids and not pod.is_finished and not strikes.has_started(pod)
        }
    return frozenset(new)


def as_found(pod: KubePod) -> KubePod:
    """Return a pod as its scheduler found it: a fast kubelet has started or refused it before anybody could look."""
    return dataclasses.replace(pod, phase=kube.PodPhase.PENDING, reason="", message="", containers=(), restarts=0)


def answered(watched: Watched, answer: Grant | Explanation | Told, pods: Iterable[KubePod]) -> Watched:
    """Return a gang with the newest decision on it, which is the last once one of its pods is bound."""
    is_final = any(pod.node for pod in pods)
    match answer:
        case Grant(placements=placements):
            nodes = frozenset(name for place in placements for name in (place.pin or (place.node,)))
            change = {"verdict": Verdict.GOES, "reason": "", "detail": f"to {_named(nodes)}", "nodes": nodes}
        case Explanation(reason=reason, summary=summary) | Told(reason=reason, summary=summary):
            change = {"verdict": Verdict.HELD, "reason": str(reason), "detail": summary, "nodes": frozenset()}
    return dataclasses.replace(watched, is_final=is_final, **change)  # type: ignore[arg-type]


def followed(watched: Watched, group: Group, patience: float, now: float) -> tuple[Watched, str]:
    """Return a gang as it has gone on, and at its end what there is to say of it."""
    refused = [pod for pod in group.ended if pod.uid in watched.uids and strikes.is_rejection(pod)]
    if refused:
        first = min(refused, key=lambda pod: pod.name)
        is_elsewhere = watched.verdict is Verdict.GOES and first.node not in watched.nodes
        verdict = Verdict.ELSEWHERE if is_elsewhere else watched.verdict
        words = f"{first.name} was refused by {first.node}, {first.reason}: {first.message}"
        return dataclasses.replace(watched, verdict=verdict, outcome=Outcome.FAILED), words
    mine = [pod for pod in (*(member.pod for member in group.members), *group.ended) if pod.uid in watched.uids]
    late = [pod for pod in mine if not strikes.has_started(pod)]
    if not late:
        is_whole = len(mine) == len(watched.uids)
        return dataclasses.replace(watched, outcome=Outcome.RAN if is_whole else None), "all of it has started"
    if len(late) == len(mine):
        return watched, ""
    if watched.started_at is None:
        return dataclasses.replace(watched, started_at=now), ""
    if now - watched.started_at <= patience:
        return watched, ""
    words = f"{PARTLY}: {len(mine) - len(late)} of {len(mine)} run, {min(pod.name for pod in late)} does not"
    return dataclasses.replace(watched, outcome=Outcome.FAILED), words


def decision(key: str, before: Watched | None, after: Watched) -> Iterator[Event]:
    """Yield the line for the decision log if the decision is another one."""
    if after.verdict is not None and (
        before is None or (before.verdict, before.reason) != (after.verdict, after.reason)
    ):
        kind = "would-hold" if after.verdict is Verdict.HELD else "would-let-go"
        detail = f"{after.reason}: {after.detail}" if after.reason else after.detail
        yield _event(kind, key, detail, after.reason)


def end(key: str, watched: Watched, words: str) -> Iterator[Event]:
    """Yield the line for the decision log at a gang's end, unless it went as decided."""
    if watched.verdict is None or watched.outcome is None:
        return
    kind = _KINDS.get((watched.verdict, watched.outcome))
    if kind is not None:
        said = f"held, {watched.reason}: {watched.detail}" if watched.reason else f"let go {watched.detail}"
        yield _event(kind, key, f"{words[:240]}; it would have been {said}", watched.reason)


def _event(kind: str, key: str, detail: str, reason: str) -> Event:
    return Event(kind=kind, gang=key, actor="admitter", rule="observe", detail=detail[:512], reason=reason)


def _named(nodes: Collection[str]) -> str:
    names = sorted(nodes)
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def back(pods: Iterable[KubePod], view: ClusterView, supply: Supply) -> Supply:
    """Return the supply with what these pods hold of it already given back to it."""
    given: dict[str, list[tuple[int, int]]] = {}
    for pod in pods:
        row = supply.table.row.get(pod.node) if pod.node else None
        if row is None:
            continue
        for resource, units in _held(pod, view).items():
            given.setdefault(resource, []).append((row, units))
    amounts = [(resource, _column(rows), _column(units)) for resource, (rows, units) in _columns(given).items()]
    table = supply.table.changed(amounts)
    return dataclasses.replace(supply, table=table, start=table)


def _held(pod: KubePod, view: ClusterView) -> dict[str, int]:
    """Return what the numbers of a pod's node have subtracted for it."""
    state, facts = view.nodes.get(pod.node), (view.facts or {}).get(pod.node)
    if state is None or view.is_stale(pod.node) or pod.node in view.barred:
        return {}
    held = {name: _device(report, pod.uid) for name, report in state.report.resources.items()}
    if facts is not None and pod.uid in facts.counted:
        held |= {name: units for name, units in {**pod.requests, POD_SLOTS: 1}.items() if name not in held}
    return {name: units for name, units in held.items() if units}


def _device(report: ResourceReport, uid: str) -> int:
    """Return the units that would be admitted beside today's if the pod were away.

    No more than the well ones that nobody else is counted on, and none while the kubelet may pick a bad one: of what a node
    promises too much, nothing is free.
    """
    counted = {each.uid: each.units for each in report.counted}
    match report.admit_strict, report.usable, report.pick_risk:
        case Known(value=strict), Known(value=usable), Known(value=0.0):
            return min(counted.get(uid, 0), max(0, usable - sum(counted.values()) + counted.get(uid, 0) - strict))
    return 0


def _columns(given: Mapping[str, list[tuple[int, int]]]) -> dict[str, tuple[list[int], list[int]]]:
    return {name: ([row for row, _ in pairs], [units for _, units in pairs]) for name, pairs in given.items()}


def _column(numbers: list[int]) -> Numbers:
    return np.array(numbers, dtype=np.int64)


def answers(outcome: order.Outcome) -> dict[str, Grant | Explanation]:
    """Return the queue's answers by gang."""
    return {each.gang.full_name: each.answer for each in outcome.answers}
