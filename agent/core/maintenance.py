"""Markers that say that somebody is at work on the node (faults.md section 2, design.md section 8).

Input: the Node's labels, the marker seen so far, now. Output: the marker to remember, and until when it is believed.

Invariant: always with a deadline, since the markers themselves get stuck. A marker past its deadline, or under which the
node has plainly gone on serving, is not believed; that it is still there is a finding.
"""

import datetime
from collections.abc import Iterator, Mapping

from agent.core.context import after
from agent.model.finding import Effect, Rule, Suspicion
from agent.model.history import Marker
from agent.model.policy import Policy
from agent.model.snapshot import Snapshot
from muster.model.reading import Known, Unknown
from muster.model.report import Maintenance, Verdict
from muster.model.vocabulary import Reason, Remedy

_STATE = "nvidia.com/mig.config.state"
_UPGRADE = "nvidia.com/gpu-driver-upgrade-state"
_DEPLOY = "nvidia.com/gpu.deploy."
_CLIENT = "nvidia.com/gpu.deploy.client"
_PAUSED = "paused-for-"
_PAUSED_FOR_DRIVER = "paused-for-driver"

AT_WORK = Rule(
    id="maintenance",
    cause="Maintenance",
    verdict=Verdict.TRANSIENT,
    effect=Effect.ZERO,
    reason=Reason.MAINTENANCE,
    remedy=Remedy.WAIT,
    clears_when="the marker is gone, its deadline has passed, or the node has gone on serving under it for 5 min",
)
UPGRADING = Rule(
    id="D5",
    cause="DriverUpgradeWindow",
    verdict=Verdict.TRANSIENT,
    effect=Effect.ZERO,
    reason=Reason.MAINTENANCE,
    remedy=Remedy.WAIT,
    clears_when="gpu-driver-upgrade-state is upgrade-done, or 30 min have passed",
)
UPGRADE_STUCK = Rule(
    id="D5-stuck",
    cause="DriverUpgradeWindow",
    verdict=Verdict.UNDER,
    reason=Reason.MAINTENANCE,
    remedy=Remedy.INVESTIGATE,
    clears_when="the marker is gone",
)
MIG_STUCK = Rule(
    id="C7",
    cause="MigManagerStuck",
    verdict=Verdict.UNDER,
    reason=Reason.MAINTENANCE,
    remedy=Remedy.INVESTIGATE,
    clears_when="the marker is gone",
)

RULES = (AT_WORK, UPGRADING, UPGRADE_STUCK, MIG_STUCK)


def marker_in(labels: Mapping[str, str]) -> str:
    """Return the marker among a Node's labels, as `key=value`; empty if nobody is at work.

    >>> marker_in({"nvidia.com/mig.config.state": "pending"})
    'nvidia.com/mig.config.state=pending'
    """
    return next(_markers(labels), "")


def _markers(labels: Mapping[str, str]) -> Iterator[str]:
    upgrade = labels.get(_UPGRADE, "")
    if upgrade not in ("", "upgrade-done", "upgrade-required"):
        yield f"{_UPGRADE}={upgrade}"
    if labels.get(_STATE) in ("pending", "rebooting"):
        yield f"{_STATE}={labels[_STATE]}"
    for key in sorted(labels):
        if key.startswith(_DEPLOY) and labels[key].startswith(_PAUSED):
            yield f"{key}={labels[key]}"
    if labels.get(_CLIENT, "true") != "true":
        yield f"{_CLIENT}={labels[_CLIENT]}"


def follow(
    labels: Mapping[str, str] | None,
    last: Marker | None,
    now: datetime.datetime,
    *,
    is_serving: bool,
    has_moved: bool = False,
) -> Marker | None:
    """Return the marker to remember; `labels` is None where the Node could not be read, and the last one stays.

    `has_moved`: the MIG instances are others than in the last sample.
    """
    if labels is None:
        return last
    name = marker_in(labels)
    if not name:
        return None
    key = name.partition("=")[0]
    # One piece of work goes through several states under one key; its clock starts with the first.
    since = last.since if last is not None and last.name.partition("=")[0] == key else now
    serving = (last.serving_since if last is not None else None) or now
    return Marker(
        name=name,
        since=min(since, now),
        serving_since=min(serving, now) if is_serving else None,
        moved_at=now if has_moved else (last.moved_at if last is not None else None),
    )


def deadline_of(marker: Marker, policy: Policy) -> datetime.datetime:
    """Return until when the marker is believed at most; a layout that still changes has more time, and not for ever."""
    if is_of_driver(marker.name):
        return after(marker.since, policy.wait("maintenance-driver"))
    ends = after(marker.since, policy.wait("maintenance-mig"))
    if marker.moved_at is None:
        return ends
    moving = after(marker.moved_at, policy.wait("maintenance-moving"))
    return max(ends, min(moving, after(ends, policy.wait("maintenance-mig"))))


def is_of_driver(name: str) -> bool:
    """True for a driver upgrade, or a request that all clients leave the GPUs."""
    return name.startswith((_UPGRADE, _CLIENT)) or f"={_PAUSED_FOR_DRIVER}" in name


def believed_until(marker: Marker | None, now: datetime.datetime, policy: Policy) -> datetime.datetime | None:
    """Return the deadline while the marker is believed; None once it is not, or there is none."""
    if marker is None:
        return None
    if marker.serving_since is not None and now - marker.serving_since >= policy.wait("maintenance-serving"):
        return None
    ends = deadline_of(marker, policy)
    return ends if now < ends else None


def rule_of(marker: Marker) -> Rule:
    """Return the rule that a believed marker hits."""
    return UPGRADING if marker.name.startswith(_UPGRADE) else AT_WORK


def is_serving(snapshot: Snapshot) -> bool:
    """True if the kubelet offers GPUs, nothing is cordoned or paused, and the driver, where asked, shows them."""
    match snapshot.observation.node_object:
        case Known(node):
            is_paused = any(value.startswith(_PAUSED) for value in node.labels.values())
            if node.unschedulable or is_paused:
                return False
        case Unknown():
            return False
    is_seen = isinstance(snapshot.nvml, Unknown) or bool(snapshot.units)
    return is_seen and any(view.ids() for view in snapshot.resources)


def labels_of(snapshot: Snapshot) -> Mapping[str, str] | None:
    """Return the Node's labels; none at all without an API server, None where it could not be read."""
    match snapshot.observation.node_object:
        case Known(node):
            return node.labels
        case Unknown():
            return None if snapshot.api_server else {}


def report_of(marker: Marker | None, policy: Policy) -> Maintenance | None:
    """Return what the report says about it."""
    if marker is None:
        return None
    return Maintenance(marker=marker.name, since=marker.since, deadline=deadline_of(marker, policy))


def find(snapshot: Snapshot, marker: Marker | None, policy: Policy) -> Iterator[Suspicion]:
    """Yield that somebody is at work; or, past the deadline, that the marker is stuck."""
    if marker is None:
        return
    ends = believed_until(marker, snapshot.now, policy)
    names = [view.name for view in snapshot.resources] or [""]
    if ends is not None:
        for name in names:
            yield Suspicion(rule=rule_of(marker), resource=name, until=ends, detail=marker.name)
        return
    rule = UPGRADE_STUCK if is_of_driver(marker.name) else MIG_STUCK
    detail = f"{marker.name} since {marker.since:%Y-%m-%dT%H:%M:%SZ} and nothing moves"
    dry = [view.name for view in snapshot.resources if not view.ids() and _is_without_gpus(snapshot)]
    for name in dry or [""]:
        verdict = Verdict.UNDER if dry else Verdict.OK
        yield Suspicion(rule=rule, resource=name, detail=detail, verdict=verdict)


def _is_without_gpus(snapshot: Snapshot) -> bool:
    """True if no resource offers anything: then the marker has taken the node's GPUs away."""
    return not any(view.ids() for view in snapshot.resources)
