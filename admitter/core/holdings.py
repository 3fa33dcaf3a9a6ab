"""What the gangs of the book hold, until when, and what their pods will take beside devices.

Input: the records. Output: Holdings for the queue, Claims for the layout of the supply.

Invariant: an end is known only by the gang's own declaration, and only while it keeps to it; one that runs longer is
overrun and ends nobody knows when. What has not started yet ends its whole runtime after a cold start from now.
"""

from collections.abc import Iterable

from admitter.model.nodefacts import Claim
from admitter.model.queue import Holding, QueuePolicy, runtime_seconds
from admitter.model.record import GangRecord
from muster.model.reading import Known, Reading, Unknown

NO_DECLARED_END = Unknown("NoDeclaredEnd")
OVERRUN = Unknown("Overrun")


def of(records: Iterable[GangRecord], policy: QueuePolicy, now: float) -> tuple[Holding, ...]:
    """Return what every gang with a lease holds, in order of arrival."""
    held = []
    for record in records:
        if record.lease is None:
            continue
        end = _end(record, policy, now)
        held.append(
            Holding(
                gang=record.gang,
                placements=record.lease.placements,
                since=_since(record, now),
                ends_at=end,
                is_overrun=end is OVERRUN,
            )
        )
    return tuple(held)


def claims(records: Iterable[GangRecord]) -> dict[str, tuple[Claim, ...]]:
    """Return what the leased pods take beside devices, by node."""
    found: dict[str, tuple[Claim, ...]] = {}
    for record in records:
        requests = {podset.name: podset.requests for podset in record.gang.podsets}
        for place in record.lease.placements if record.lease is not None else ():
            uids = [m.uid for m in record.members if (m.node, m.podset) == (place.node, place.podset)]
            claim = Claim(pods=place.pods, requests=requests.get(place.podset, {}), pod_uids=tuple(sorted(uids)))
            found[place.node] = (*found.get(place.node, ()), claim)
    return found


def _since(record: GangRecord, now: float) -> float:
    match record.timeline.admitted:
        case Known(stamp):
            return stamp.at
        case Unknown():
            return now


def _end(record: GangRecord, policy: QueuePolicy, now: float) -> Reading[float]:
    seconds = runtime_seconds(record.gang)
    if seconds is None:
        return NO_DECLARED_END
    match record.timeline.has_devices:
        case Known(stamp):
            end = stamp.at + seconds
        case Unknown():
            return Known(now + policy.start_seconds + seconds)
    if now > end + policy.overrun_grace_seconds:
        return OVERRUN
    return Known(max(end, now))
