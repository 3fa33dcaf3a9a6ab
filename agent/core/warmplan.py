"""What to pull, keep and let go: the warmer's only decision.

In: what is wanted, best first, with how warm each is; our leases; the disk; failures; whether the node is busy; now.
Out: at most one pull, leases to renew or release, pins to set, and for every image that waits the reason.

Invariants: only leases of ours are ever released, only images that were asked for are ever pulled or pinned. No pull
starts that could take the disk above `disk_share`, while the node is busy, or at a host that asked to be left alone. A
disk that cannot be read is full. What is not resolved keeps every lease from being released, since it may be its own; it
renews none, so that one image that never resolves keeps nothing for longer than a lease. Same input, same plan.

Why one pull at a time: unpacking is serial and takes most of it; two would finish no sooner and starve the kubelet
(images.md section 6).
"""

import dataclasses
import datetime
from collections.abc import Mapping, Sequence

from agent.core.warmth import Warmth
from agent.model.warm import (
    Disk,
    DiskReading,
    Failure,
    Image,
    Lease,
    Limits,
    Mode,
    Reason,
    Refused,
    Wanted,
)
from muster.model.reading import Known, Unknown
from muster.model.warmth import Hold, Level

_MIB = 1024 * 1024

_UNANSWERED = frozenset(
    (
        Reason.REGISTRY_UNREACHABLE,
        Reason.STALLED,
        Reason.TOO_MANY_REQUESTS,
        Reason.HOST_HELD,
        Reason.RUNTIME_AWAY,
        Reason.SECRET_MISSING,
    )
)
"""A registry, or containerd, has not said yet what an image is; whatever else failed is an answer."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A wanted image and all that is known of it."""

    wanted: Wanted
    image: Image | Refused | None = None
    """None: not resolved yet."""
    warmth: Warmth | None = None
    failure: Failure | None = None
    took_credentials: bool = False
    lacks_secret: bool = False
    """A pod's pull secret opened it, and is not here any more."""

    @property
    def key(self) -> str:
        return str(self.wanted.reference)

    @property
    def purse(self) -> str:
        """Whose budget pays for it."""
        return "hint" if self.wanted.is_hint else "habit" if self.wanted.is_habit else "list"

    @property
    def hold(self) -> Hold:
        """How it is to be held; what a pod's secret opens is a hint, and those are AUTO."""
        if self.wanted.mode is Mode.AUTO:
            return Hold.SHADOW if self.took_credentials else Hold.VISIBLE
        return Hold.SHADOW if self.wanted.mode is Mode.SHADOW else Hold.VISIBLE

    @property
    def is_warm(self) -> bool:
        """Nothing is left to do; what is visible needs no shadow."""
        if self.warmth is None or self.warmth.level not in {Level.UNPACKED, Level.LAZY}:
            return False
        return self.warmth.hold is Hold.VISIBLE or self.warmth.hold is self.hold


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do now."""

    pull: Candidate | None = None
    release: tuple[Lease, ...] = ()
    renew: tuple[Lease, ...] = ()
    pin: tuple[Candidate, ...] = ()
    waits: Mapping[str, Refused] = dataclasses.field(default_factory=dict)
    """Reference -> why it is not being pulled."""


def plan(
    candidates: Sequence[Candidate],
    leases: Sequence[Lease],
    disk: DiskReading,
    limits: Limits,
    *,
    host_holds: Mapping[str, float],
    busy: str,
    now: float,
    utc: datetime.datetime,
    pulling: str = "",
) -> Plan:
    """Return what to do now.

    `busy` says why pulls of ours must stand back; empty: they need not. `pulling` is the manifest's digest of a pull that
    runs: its lease is its own until it ends, and no other is released meanwhile.
    """
    soon = utc + datetime.timedelta(seconds=limits.lease_seconds / 2)
    ending = tuple(lease for lease in leases if lease.expires_at < soon and lease.digest != pulling)
    leases = () if pulling else leases
    waits: dict[str, Refused] = {}
    affordable = _within_budget(candidates, limits, waits)
    release = {lease.id: lease for lease in leases if not _is_of_use(lease, affordable)}
    asked = {each.image.manifest.digest for each in affordable if isinstance(each.image, Image)}
    unasked = tuple(lease for lease in leases if lease.digest not in asked)
    pull = None
    for index, candidate in enumerate(affordable):
        if candidate.is_warm:
            continue
        wait = _wait(candidate, host_holds, busy, now)
        if wait is None:
            spare = () if any(map(_may_come, affordable[:index])) else unasked
            wait, dropped = _disk_wait(candidate, affordable[index + 1 :], leases, spare, disk, limits)
            release |= {lease.id: lease for lease in dropped}
        if wait is not None:
            waits[candidate.key] = wait
        elif pull is None and isinstance(candidate.image, Image):
            pull = candidate
    return Plan(
        pull=pull,
        release=tuple(release[key] for key in sorted(release)),
        renew=tuple(lease for lease in ending if lease.digest in asked and lease.id not in release),
        pin=tuple(candidate for candidate in affordable if _needs_pin(candidate)),
        waits=waits,
    )


def _within_budget(candidates: Sequence[Candidate], limits: Limits, waits: dict[str, Refused]) -> tuple[Candidate, ...]:
    """Return the candidates whose bytes fit, best first; a layer that two share counts once."""
    counted: set[str] = set()
    left = {"list": limits.budget_bytes, "hint": limits.hint_budget_bytes, "habit": limits.habit_budget_bytes}
    kept = []
    for candidate in candidates:
        if isinstance(candidate.image, Image):
            new = {blob.digest: blob.size for blob in candidate.image.blobs if blob.digest not in counted}
            size, purse = sum(new.values()), candidate.purse
            if size > left[purse]:
                detail = f"{size} bytes, {left[purse]} left of the budget"
                waits[candidate.key] = Refused(reason=Reason.OVER_BUDGET, detail=detail)
                continue
            left[purse] -= size
            counted |= new.keys()
        kept.append(candidate)
    return tuple(kept)


def _is_of_use(lease: Lease, candidates: Sequence[Candidate]) -> bool:
    """True for a lease whose image is wanted and has nothing else to hold it; what is not resolved yet keeps all."""
    for candidate in candidates:
        if candidate.image is None:
            return True
        if isinstance(candidate.image, Image) and candidate.image.manifest.digest == lease.digest:
            is_held = candidate.warmth is not None and candidate.warmth.hold is Hold.VISIBLE and candidate.is_warm
            disk_full = candidate.failure is not None and candidate.failure.reason is Reason.DISK_FULL
            return not is_held and not disk_full
    return False


def _may_come(candidate: Candidate) -> bool:
    """True for what nobody has said yet what it is: a lease that is nobody's may be its own."""
    return candidate.image is None and (candidate.failure is None or candidate.failure.reason in _UNANSWERED)


def _needs_pin(candidate: Candidate) -> bool:
    warmth = candidate.warmth
    return (
        candidate.wanted.pin
        and candidate.is_warm
        and warmth is not None
        and warmth.hold is Hold.VISIBLE
        and not warmth.is_pinned
    )


def _wait(candidate: Candidate, host_holds: Mapping[str, float], busy: str, now: float) -> Refused | None:
    """Return what keeps a candidate from being pulled now, the disk aside."""
    host, failure = candidate.wanted.reference.host, candidate.failure
    if isinstance(candidate.image, Refused):
        return candidate.image
    if candidate.warmth is not None and candidate.warmth.problem:
        # A pull finds everything there; only the snapshotter can mend its mount.
        return Refused(reason=Reason.LAZY_BROKEN, detail=candidate.warmth.problem)
    if candidate.lacks_secret:
        reason = Reason.SECRET_MISSING if candidate.wanted.secret else Reason.UNAUTHORIZED
        return Refused(reason=reason, detail="what opens it is the pull secret of a pod, which is not here")
    if failure is not None and failure.retry_at > now:
        return Refused(reason=failure.reason, detail=failure.detail)
    if host_holds.get(host, now) > now:
        return Refused(reason=Reason.HOST_HELD, detail=f"{host} is left alone for a while")
    if busy:
        return Refused(reason=Reason.YIELDING, detail=busy)
    return None


def _disk_wait(
    candidate: Candidate,
    later: Sequence[Candidate],
    leases: Sequence[Lease],
    spare: tuple[Lease, ...],
    disk: DiskReading,
    limits: Limits,
) -> tuple[Refused | None, tuple[Lease, ...]]:
    """Return why the disk is too full, and the leases that go so that it will not be.

    First the `spare` ones, which nobody is known to want and whose sizes nobody knows; then less important images'.
    """
    match disk:
        case Unknown(reason, detail):
            return Refused(reason=Reason.DISK_GUARD, detail=f"the disk cannot be read: {reason} {detail}".rstrip()), ()
        case Known(read):
            missing = bytes_needed(candidate, limits) - _room(read, limits)
    if missing <= 0:
        return None, ()
    if spare:
        return Refused(reason=Reason.DISK_GUARD, detail="what nobody is known to want makes room"), spare
    dropped: list[Lease] = []
    for other in reversed(later):
        if (
            missing > 0
            and other.warmth is not None
            and other.warmth.hold is Hold.SHADOW
            and other.warmth.lease in leases
        ):
            assert other.warmth.lease is not None
            dropped.append(other.warmth.lease)
            missing -= round(other.warmth.bytes_total * (1 + limits.unpack_ratio))
    if missing > 0:
        detail = f"{-(-missing // _MIB)} MiB too many to stay under {limits.disk_share:.0%} of the disk"
        return Refused(reason=Reason.DISK_GUARD, detail=detail), ()
    # The room comes with containerd's garbage collection; the next look sees it.
    return Refused(reason=Reason.DISK_GUARD, detail="shadows of less important images make room"), tuple(dropped)


def _room(disk: Disk, limits: Limits) -> int:
    return round(disk.total_bytes * limits.disk_share) - (disk.total_bytes - disk.free_bytes)


def bytes_needed(candidate: Candidate, limits: Limits) -> int:
    """Return what a pull will add to the disk: missing blobs, and layers unpacked."""
    if candidate.warmth is None:
        return 0
    return candidate.warmth.bytes_missing + round(candidate.warmth.unpack_missing_bytes * limits.unpack_ratio)
