"""Which nodes are believed: after a broken promise nothing is leased on a node until it is known why.

Input: kubelets' refusals of pods, and the views that follow. Output: the nodes on which nothing new is granted, each with
its reason; Events that link lease, snapshot, node and the kubelet's words, and outlive the pod.

Invariants: the first refusal of a pod that we let go closes the node. It opens when its own verdict has said a cause (or it
has been rebooted, or a scheduler that overbooks explains it) and two samples after that are clean; without a cause after
`quarantine_seconds`, and clean. Refusals of pods that others let go close nothing: several of one scheduler on one node are a
note on that scheduler's name.

Why no sample from before the refusal counts: it is what the broken promise rested on.
"""

import collections
import dataclasses
from collections.abc import Iterable, Mapping

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
_MOST_REJECTIONS = 1_000
"""Remembered of pods that others let go: a storm is counted within a minute."""


class Trust:
    """Belongs to one book."""

    def __init__(self, events: list[Event], policy: TrustPolicy | None = None) -> None:
        self.quarantined: dict[str, Quarantine] = {}
        """By node."""
        self._events = events
        self._policy = policy or TrustPolicy()
        self._snapshots: collections.OrderedDict[str, tuple[str, int]] = collections.OrderedDict()
        """Lease id -> gang and the snapshot that it was granted on; leases end before their pods are refused."""
        self._strangers: collections.deque[Rejection] = collections.deque(maxlen=_MOST_REJECTIONS)
        self._blamed: dict[tuple[str, str], float] = {}
        """Scheduler, node -> when the last storm was noted."""
        self._barred: Mapping[str, str] = codec.EMPTY

    def note_lease(self, gang: str, lease: Lease) -> None:
        """Remember what a lease rested on."""
        self._snapshots[lease.id] = gang, lease.snapshot_version
        while len(self._snapshots) > _MOST_LEASES:
            self._snapshots.popitem(last=False)

    def hear(self, rejections: Iterable[Rejection], view: ClusterView) -> None:
        """Take what kubelets have refused since the last pass."""
        for rejection in rejections:
            if rejection.lease_id:
                self._broken(rejection, view)
            else:
                self._stranger(rejection)

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

    def _broken(self, rejection: Rejection, view: ClusterView) -> None:
        node, state = rejection.node, view.nodes.get(rejection.node)
        known = self.quarantined.get(node)
        gang, snapshot = self._snapshots.get(rejection.lease_id, (rejection.gang, 0))
        self._note(
            "broken-promise",
            gang or rejection.gang,
            f"{rejection.pod}: {rejection.reason}: {rejection.message}; leased on snapshot {snapshot or 'of another term'}",
            node=node,
            reason=rejection.reason,
            lease_id=rejection.lease_id,
        )
        if known is None:
            boot = state.epoch.boot_id if state is not None else ""
            self.quarantined[node] = Quarantine(first=rejection, since=view.now, boot_id=boot, sampled_at=view.now)
            self._note(
                "quarantine-began", gang or rejection.gang, rejection.reason, node=node, lease_id=rejection.lease_id
            )
        else:
            self.quarantined[node] = dataclasses.replace(
                known, rejections=known.rejections + 1, clean=0, sampled_at=view.now
            )
        self._explain(node, rejection)

    def _stranger(self, rejection: Rejection) -> None:
        """Count a refusal of a pod that somebody else placed; several are a note on whoever did."""
        self._strangers.append(rejection)
        key = rejection.scheduler, rejection.node
        pods = {each.uid for each in self._strangers if self._is_of(each, key, rejection.at)}
        if len(pods) < self._policy.storm:
            return
        if rejection.at - self._blamed.get(key, float("-inf")) > self._policy.storm_seconds:
            self._blamed = {
                each: at for each, at in self._blamed.items() if rejection.at - at <= self._policy.storm_seconds
            }
            self._blamed[key] = rejection.at
            detail = (
                f"{len(pods)} pods of scheduler {rejection.scheduler} refused within a minute, last {rejection.reason}"
            )
            self._note("overbooked", "", detail, node=rejection.node, reason=rejection.reason)
        self._explain(rejection.node, rejection)

    def _explain(self, node: str, latest: Rejection) -> None:
        """A scheduler that overbooks the node is a cause that the node's agent cannot see."""
        known = self.quarantined.get(node)
        if known is None or known.cause:
            return
        for scheduler, at in self._blamed.items():
            if scheduler[1] == node and latest.at - at <= self._policy.storm_seconds:
                self.quarantined[node] = dataclasses.replace(known, cause=f"scheduler {scheduler[0]} overbooks it")

    def _is_of(self, rejection: Rejection, key: tuple[str, str], now: float) -> bool:
        is_recent = now - rejection.at <= self._policy.storm_seconds
        return is_recent and (rejection.scheduler, rejection.node) == key

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
