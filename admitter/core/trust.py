"""Which nodes are believed: after a broken promise nothing is leased on a node until it is known why.

Input: kubelets' refusals of pods, the leases that we granted or that agents report, the views that follow. Output: the nodes
on which nothing new is granted, each with its reason; Events that link lease, snapshot, node and the kubelet's words, and
outlive the pod.

Invariants: a refusal closes a node only under a lease of the pod's namespace that holds a place there: what a pod says of
itself closes nothing (at a change of leader: three nodes a namespace at the most, until the refusal is an hour old). It
opens when its own verdict has said a cause (or it has been rebooted, or a scheduler that overbooks explains it) and two
samples after that are clean; without a cause after `quarantine_seconds`, and clean. One workload closes `most_nodes` nodes
at the most, then it is the workload; all of them together `most_share` of the fleet.

Why no sample from before the refusal counts: it is what the broken promise rested on.
"""

import collections
import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from admitter.core.recover import Orphan
from admitter.model.decision import Event
from admitter.model.lease import Lease
from admitter.model.nodecapacity import ClusterView, NodeState
from admitter.model.promise import Quarantine, Rejection, TrustPolicy
from muster.model import codec
from muster.model.report import Verdict

FAULTLESS = frozenset({Verdict.OK, Verdict.UNDER, Verdict.CONTENDED})
_PLANES = ("nvml", "kubelet.allocatable", "kubelet.pods")
"""A sample is as old as the oldest of these."""
_MOST_LEASES = 20_000
_MOST_REMEMBERED = 20_000
"""Refused pods, pairs of scheduler and node, workloads that were blamed."""
_LEASE_ID = re.compile(r"t\d+-[0-9a-f]+-\d+")


_Pair: TypeAlias = tuple[str, str]
"""Scheduler and node."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Granted:
    """What a lease lets pods do."""

    gang: str
    nodes: frozenset[str]
    """On which its pods may be."""
    snapshot: int = 0
    is_by_its_word: bool = False
    """Nobody but the pod knows of the lease."""


class Trust:
    """Belongs to one book."""

    def __init__(self, events: list[Event], policy: TrustPolicy | None = None) -> None:
        self.quarantined: dict[str, Quarantine] = {}
        """By node."""
        self._events = events
        self._policy = policy or TrustPolicy()
        self._leases: collections.OrderedDict[str, _Granted] = collections.OrderedDict()
        """By id; leases end before their pods are refused."""
        self._heard: collections.OrderedDict[str, None] = collections.OrderedDict()
        """UIDs of refused pods: a new term of the same book tells of them again."""
        self._began_at: float | None = None
        """When it was first told anything, by the clock of the refusals."""
        self._strangers: collections.OrderedDict[_Pair, collections.deque[float]] = collections.OrderedDict()
        """When the last pods that others let go were refused."""
        self._overbooked: collections.OrderedDict[_Pair, float] = collections.OrderedDict()
        """When the last storm was noted."""
        self._blamed: collections.OrderedDict[str, float] = collections.OrderedDict()
        """Workload -> since when it closes no node any more."""
        self._fleet = 0
        self._is_full = False
        self._barred: Mapping[str, str] = codec.EMPTY

    def note_lease(self, gang: str, lease: Lease) -> None:
        """Remember what a lease rested on, and where it may be used."""
        nodes = frozenset(node for place in lease.placements for node in (place.node, *place.pin))
        self._leases[lease.id] = _Granted(gang=gang, nodes=nodes, snapshot=lease.snapshot_version)
        _shorten(self._leases, _MOST_LEASES)

    def hear(
        self,
        rejections: Sequence[Rejection],
        view: ClusterView,
        now: float,
        orphans: Mapping[str, Orphan] = codec.EMPTY,
    ) -> None:
        """Take what kubelets have refused since the last pass; `orphans`: the leases of other terms that agents report.

        `now` is of the clock of the refusals, which is not the view's.
        """
        self._began_at = now if self._began_at is None else self._began_at
        self._fleet = _fleet(view) if rejections else 0
        for rejection in rejections:
            if rejection.uid in self._heard:
                continue
            self._heard[rejection.uid] = None
            _shorten(self._heard, _MOST_REMEMBERED)
            granted = self._granted(rejection, orphans) if rejection.lease_id else None
            if granted is None:
                self._stranger(rejection)
            else:
                self._broken(rejection, granted, view, now)

    def look(self, view: ClusterView) -> None:
        """Compare the nodes in question with what their agents say now."""
        for node, before in list(self.quarantined.items()):
            state = view.nodes.get(node)
            known = before if state is None or view.is_stale(node) else self._sampled(before, state)
            self.quarantined[node] = known
            is_late = view.now - known.since > self._policy.quarantine_seconds
            if known.clean >= self._policy.clean_samples and (known.cause or is_late):
                self._open(node, known, known.cause or "no cause was found")
            elif state is None and is_late:
                self._open(node, known, "the node is gone")
        barred = {node: _why(known) for node, known in self.quarantined.items()}
        if barred != self._barred:
            self._barred = codec.freeze(barred)

    def bar(self, view: ClusterView) -> ClusterView:
        """Return the view with these nodes closed."""
        return dataclasses.replace(view, barred=self._barred) if self._barred else view

    def _granted(self, rejection: Rejection, orphans: Mapping[str, Orphan]) -> "_Granted | None":
        """Return the lease under which a pod was let go to the node; None: no such lease, whatever the pod says."""
        granted = self._leases.get(rejection.lease_id)
        if granted is None and (orphan := orphans.get(rejection.lease_id)) is not None:
            granted = _Granted(gang=orphan.gang, nodes=frozenset(orphan.parts))
        if granted is not None:
            is_its_own = _namespace(granted.gang) == _namespace(rejection.pod) and rejection.node in granted.nodes
            return granted if is_its_own else None
        # The last leader took the lease back after the refusal: all that is left of it is what the pod carries.
        is_from_before = self._began_at is not None and rejection.at <= self._began_at
        if is_from_before and _LEASE_ID.fullmatch(rejection.lease_id):
            gang = rejection.gang or rejection.pod
            return _Granted(gang=gang, nodes=frozenset({rejection.node}), is_by_its_word=True)
        return None

    def _broken(self, rejection: Rejection, granted: "_Granted", view: ClusterView, now: float) -> None:
        node, gang = rejection.node, granted.gang
        known = self.quarantined.get(node)
        self._note(
            "broken-promise",
            gang,
            f"{rejection.pod}: {rejection.reason}: {rejection.message}; "
            f"leased on snapshot {granted.snapshot or 'of another term'}",
            node=node,
            reason=rejection.reason,
            lease_id=rejection.lease_id,
        )
        if known is not None:
            self.quarantined[node] = dataclasses.replace(
                known, rejections=known.rejections + 1, clean=0, sampled_at=view.now
            )
        elif self._may_close(rejection, granted, view):
            state = view.nodes.get(node)
            boot = state.epoch.boot_id if state is not None else ""
            # What the last leader has waited is not waited again; a stamp may be of any time.
            age = min(max(0.0, now - rejection.at), self._policy.quarantine_seconds)
            since = view.now - age
            self.quarantined[node] = Quarantine(
                first=rejection,
                workloads=_workloads(rejection, granted),
                since=since,
                boot_id=boot,
                sampled_at=view.now,
            )
            self._note("quarantine-began", gang, rejection.reason, node=node, lease_id=rejection.lease_id)
        self._explain(node, rejection)

    def _may_close(self, rejection: Rejection, granted: "_Granted", view: ClusterView) -> bool:
        """Return whether one more node may be closed, and for this workload."""
        seconds, most = self._policy.quarantine_seconds, self._policy.most_nodes
        for workload in _workloads(rejection, granted):
            if view.now - self._blamed.get(workload, float("-inf")) <= seconds:
                return False
            closed = sum(workload in known.workloads for known in self.quarantined.values())
            if closed >= most:
                self._blamed[workload] = view.now
                _shorten(self._blamed, _MOST_REMEMBERED)
                detail = f"{workload}: refused on {closed + 1} nodes; it closes no more, look at its pods"
                self._withhold(granted.gang, rejection, detail)
                return False
        most = max(1, int(self._fleet * self._policy.most_share))
        is_full = len(self.quarantined) >= most
        if is_full and not self._is_full:
            self._withhold(granted.gang, rejection, f"{most} of {self._fleet} nodes are closed, and that is the most")
        self._is_full = is_full
        return not is_full

    def _withhold(self, gang: str, rejection: Rejection, detail: str) -> None:
        self._note("quarantine-withheld", gang, detail, node=rejection.node, reason=rejection.reason)

    def _stranger(self, rejection: Rejection) -> None:
        """Count a refusal of a pod that somebody else placed; several are a note on whoever did."""
        key, policy = (rejection.scheduler, rejection.node), self._policy
        times = self._strangers.setdefault(key, collections.deque(maxlen=policy.storm))
        times.append(rejection.at)
        self._strangers.move_to_end(key)
        _shorten(self._strangers, _MOST_REMEMBERED)
        if len(times) < policy.storm or max(times) - min(times) > policy.storm_seconds:
            return
        if rejection.at - self._overbooked.get(key, float("-inf")) > policy.storm_seconds:
            self._overbooked[key] = rejection.at
            self._overbooked.move_to_end(key)
            _shorten(self._overbooked, _MOST_REMEMBERED)
            detail = f"{len(times)} pods or more of scheduler {key[0]} refused within a minute, last {rejection.reason}"
            self._note("overbooked", "", detail, node=rejection.node, reason=rejection.reason)
        self._explain(rejection.node, rejection)

    def _explain(self, node: str, latest: Rejection) -> None:
        """A scheduler that overbooks the node is a cause that the node's agent cannot see."""
        known = self.quarantined.get(node)
        if known is None or known.cause:
            return
        for (scheduler, where), at in self._overbooked.items():
            if where == node and latest.at - at <= self._policy.storm_seconds:
                self.quarantined[node] = dataclasses.replace(known, cause=f"scheduler {scheduler} overbooks it")

    def _sampled(self, known: Quarantine, state: NodeState) -> Quarantine:
        """Take one more sample, if there is one: read after the last one that was looked at, all of it."""
        if known.boot_id and state.epoch.boot_id != known.boot_id:
            known = dataclasses.replace(known, boot_id=state.epoch.boot_id, cause=known.cause or "rebooted since")
        ages = [state.plane_age_ms[plane] for plane in _PLANES if plane in state.plane_age_ms]
        at = state.heard_at - max(ages, default=0) / 1000
        if at <= known.sampled_at:
            return known
        known = dataclasses.replace(known, sampled_at=at)
        if state.report.verdict in FAULTLESS:
            return dataclasses.replace(known, clean=known.clean + 1)
        return dataclasses.replace(known, clean=0, cause=known.cause or _cause(state))

    def _open(self, node: str, known: Quarantine, cause: str) -> None:
        del self.quarantined[node]
        self._note("quarantine-ended", known.first.gang, f"{known.rejections} refused; {cause}", node=node)

    def _note(self, kind: str, gang: str, detail: str, *, node: str, reason: str = "", lease_id: str = "") -> None:
        self._events.append(
            Event(
                kind=kind,
                gang=gang,
                actor="admitter",
                rule="trust",
                detail=detail[:512],
                lease_id=lease_id,
                node=node,
                reason=reason,
            )
        )


def _workloads(rejection: Rejection, granted: _Granted) -> tuple[str, ...]:
    """Return the names under which nodes that this workload closes are counted."""
    namespace = _namespace(rejection.pod)
    if granted.is_by_its_word:
        return (f"namespace {namespace} under an earlier leader",)
    # One name for all resources: who asks for them chooses which one is lacking.
    reason = "OutOf..." if rejection.reason.startswith("OutOf") else rejection.reason
    return f"gang {granted.gang}", f"namespace {namespace} with {reason}"


def _fleet(view: ClusterView) -> int:
    """Return how many nodes have GPUs, by the API server too: at the beginning of a term few agents have spoken."""
    facts = (view.facts or {}).values()
    return max(len(view.nodes), sum(any(map(_is_gpu, each.allocatable)) for each in facts))


def _is_gpu(resource: str) -> bool:
    return resource.startswith("nvidia.com/")


def _namespace(full_name: str) -> str:
    return full_name.partition("/")[0]


def _shorten(memory: "collections.OrderedDict[Any, Any]", most: int) -> None:
    """Forget the oldest."""
    while len(memory) > most:
        memory.popitem(last=False)


def _cause(state: NodeState) -> str:
    """Return what the node's verdict says is wrong."""
    report = state.report
    groups = (report.node_findings, *(resource.findings for resource in report.resources.values()))
    reasons = sorted({item.reason for group in groups for item in group if not item.observed})
    return f"{report.verdict.value} {', '.join(reasons[:3])}".strip()


def _why(known: Quarantine) -> str:
    """Return why nothing is leased on a node, for a person; no number in it that changes by itself."""
    cause = f"cause: {known.cause}, until two samples are clean" if known.cause else "no cause known yet"
    return f"refused {known.first.pod} with {known.first.reason}; {cause}"
