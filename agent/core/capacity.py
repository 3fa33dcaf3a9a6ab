"""How many units of a resource may be admitted: judged findings + snapshot -> numbers (design.md section 3, faults.md P3).

Input: a ResourceView, what the enforced findings take away, the snapshot. Output: `Numbers`, each a Reading.

Invariant: admit_strict <= admit_lenient <= min(advertised, present) under the default policy, and never negative:
everything is computed in signed integers and clamped once, at the end. A side that could not be read makes the counts
that rest on it Unknown; the admits are then null, or 0 where a finding knows that nothing starts.

Why strict is 0 with one bad id: nobody above the kubelet can choose the device (faults.md P3a). The same holds for ids that
another name may give away first: of two names over one GPU, one at most admits it strictly.
"""

import collections
import dataclasses
from collections.abc import Iterable
from typing import Any

from agent.core import holders, shape
from agent.model.finding import Effect, Judged
from agent.model.snapshot import DeviceId, ResourceView, Snapshot
from muster.model.reading import Known, Reading, Unknown
from muster.model.report import CountedPod, Verdict


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """The counts of one resource."""

    admit_strict: Reading[int]
    admit_lenient: Reading[int]
    pick_risk: Reading[float]
    advertised: Reading[int]
    present: Reading[int]
    allocated: Reading[int]
    usable: Reading[int]
    free: Reading[int]
    free_devices: tuple[str, ...] = ()
    counted: tuple[CountedPod, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What the enforced findings of a resource do to it."""

    bad: frozenset[str]
    contended: frozenset[str]
    contested: frozenset[str]
    """Free ids that another name may give away first: they count for lenient and are a risk to every pick."""
    held: frozenset[str]
    ceiling: int | None
    """No more than this may start, whatever is free; None: no such limit."""
    is_blind: bool


def count(view: ResourceView, snapshot: Snapshot, judged: Iterable[Judged]) -> Numbers:
    """Return the numbers of one resource from its findings."""
    taken = _taken(judged)
    usable, free, risk = _sets(view, snapshot, taken)
    lenient, strict, pick_risk = _admits(view, snapshot, taken, free, risk)
    return Numbers(
        admit_strict=strict,
        admit_lenient=lenient,
        pick_risk=pick_risk,
        advertised=_map_len(view.advertised),
        present=_present(view, snapshot),
        allocated=_map_len(view.held),
        usable=_map_len(usable),
        free=_map_len(free),
        free_devices=_good_devices(view, free),
        counted=_counted(view, snapshot),
    )


def _taken(judged: Iterable[Judged]) -> Taken:
    sets: dict[Effect, set[str]] = {effect: set() for effect in Effect}
    contested: set[str] = set()
    blocked: list[int] = []
    paused = False
    blind = False
    for item in judged:
        if not item.is_enforced:
            continue
        effect = item.suspicion.rule.effect
        sets[effect].update(item.suspicion.ids)
        contested.update(item.suspicion.contested)
        if effect is Effect.BLOCK:
            blocked.append(max(0, item.suspicion.available))
        elif effect is Effect.ZERO:
            paused = True
        elif effect is Effect.BLIND and item.finding.verdict is Verdict.BLIND:
            blind = True
        elif effect is Effect.BLIND:
            paused = True  # it may yet pass (faults.md H4): nothing starts, and nobody is told "unknown"
    return Taken(
        bad=frozenset(sets[Effect.BAD] | sets[Effect.BLIND]),
        contended=frozenset(sets[Effect.TAKEN]),
        contested=frozenset(contested),
        held=frozenset(sets[Effect.HELD]),
        # Blindness is null, and only BLOCKED is worse than it (design.md section 3).
        ceiling=min([*blocked, *([0] if paused and not blind else [])], default=None),
        is_blind=blind,
    )


Ids = Reading[frozenset[str]]


def _sets(view: ResourceView, snapshot: Snapshot, taken: Taken) -> tuple[Ids, Ids, Reading[float]]:
    """Return the usable ids, the free ones, and the share of bad ones among those that may be picked."""
    match snapshot.nvml, view.advertised:
        case Known(), Known(devices):
            advertised = frozenset(device.id for device in devices)
        case Unknown() as unread, _:
            return unread, unread, unread
        case _, unread:
            return unread, unread, unread  # type: ignore[return-value]
    usable = advertised - taken.bad
    match view.held:
        case Unknown() as unread:
            return Known(usable), unread, unread
        case Known(held):
            pick = advertised - frozenset(held)
    free = (usable & pick) - taken.contended - taken.held
    bad = pick & (taken.bad | taken.contended | taken.contested)
    return Known(usable), Known(free), Known(len(bad) / len(pick) if pick else 0.0)


def _admits(
    view: ResourceView, snapshot: Snapshot, taken: Taken, free: Ids, risk: Reading[float]
) -> tuple[Reading[int], Reading[int], Reading[float]]:
    """Return admit_lenient, admit_strict and pick_risk."""
    if taken.ceiling == 0:
        return Known(0), Known(0), risk if isinstance(risk, Known) and not taken.is_blind else Known(0.0)
    limit = _limit(view, snapshot)
    if taken.is_blind:
        blind = Unknown("Blind")
        return blind, blind, blind
    match free, limit:
        case Unknown() as unread, _:
            return unread, unread, unread
        case _, Unknown() as unread:
            return unread, unread, unread
        case Known(ids), Known((left, waiting)):
            lenient = len(ids) - waiting
            lenient = lenient if left is None else min(lenient, left)
            lenient = lenient if taken.ceiling is None else min(lenient, taken.ceiling)
            lenient = max(0, lenient)
            strict = 0 if isinstance(risk, Known) and risk.value > 0 else lenient
            return Known(lenient), Known(strict), risk
    raise AssertionError("unreachable")


def _limit(view: ResourceView, snapshot: Snapshot) -> Reading[tuple[int | None, int]]:
    """Return alloc less requests (None without an API server), and w."""
    if not snapshot.api_server:
        return Known((None, 0))
    waiting = waiting_units(view, snapshot) + _waiting_elsewhere(view, snapshot)
    if view.is_dra:
        return Known((None, waiting))  # the Node does not count claims (faults.md S21)
    match view.allocatable, view.requests:
        case _, Unknown() as unread:
            return unread
        case Unknown("KeyAbsent"), _:
            allocatable = 0  # the scheduler refuses what the Node does not name (faults.md S2)
        case Unknown() as unread, _:
            return unread
        case Known(value), _:
            allocatable = value
    assert isinstance(view.requests, Known)
    return Known((allocatable - sum(view.requests.value.values()), waiting))


def _waiting_elsewhere(view: ResourceView, snapshot: Snapshot) -> int:
    """Return the ids of this name that pods will take who wait for the same GPUs under another (faults.md A14)."""
    total = 0
    for other in snapshot.resources:
        if other.name == view.name:
            continue
        promised = {device.uuid for device in other.ids() if device.unit is not None}
        shared = collections.Counter(device.uuid for device in view.ids() if device.uuid in promised)
        if shared:
            total += min(waiting_units(other, snapshot), len(shared)) * max(shared.values())
    return total


def waiting_units(view: ResourceView, snapshot: Snapshot) -> int:
    """Return w: units of bound, unfinished pods that neither List nor a GPU process shows yet.

    Pods that share a name share its entry in List: what the entry does not cover still waits, and the one that is seen
    by its process covers itself first.
    """
    match view.requests, snapshot.listed:
        case Known(requests), Known(listed):
            pass
        case _:
            return 0
    owners = holders.owners_of_processes(snapshot)
    waiting = {uid: units for uid, units in requests.items() if uid not in owners}
    total = 0
    for item in listed:
        ids = item.ids.get(view.name, ())
        if not ids:
            continue
        sharing = [waiting.pop(uid) for uid in item.uids if uid in waiting]
        if len(item.uids) > 1:
            asked = sum(requests.get(uid, 0) for uid in item.uids)
            total += min(sum(sharing), max(0, asked - len(ids)))
    return total + sum(waiting.values())


def _present(view: ResourceView, snapshot: Snapshot) -> Reading[int]:
    match snapshot.nvml, view.advertised:
        case Unknown() as unread, _:
            return unread
        case _, Unknown() as unread:
            return unread
        case _, Known(devices):
            return Known(sum(1 for device in devices if is_present(view.name, device)))
    raise AssertionError("unreachable")


def is_present(name: str, device: DeviceId) -> bool:
    """True if the driver can open the id's unit in the promised shape, or a VM can be given it (faults.md F4)."""
    return device.is_passthrough or (device.unit is not None and shape.fits(name, device.unit))


def _map_len(reading: Reading[Any]) -> Reading[int]:
    match reading:
        case Known(value):
            return Known(len(value))
        case Unknown() as unread:
            return unread


def _good_devices(view: ResourceView, free: Ids) -> tuple[str, ...]:
    match free:
        case Known(ids):
            return tuple(sorted({device.uuid for device in view.ids() if device.id in ids}))
        case Unknown():
            return ()


def _counted(view: ResourceView, snapshot: Snapshot) -> tuple[CountedPod, ...]:
    """Return the pods whose units the numbers contain: bound ones (seen, or waited for), and listed ones not bound."""
    units: dict[str, int] = {}
    match view.requests:
        case Known(requests):
            units.update(requests)
        case Unknown():
            pass
    match snapshot.listed:
        case Known(listed):
            for item in listed:
                for uid in item.uids:
                    held = len(item.ids.get(view.name, ()))
                    if held:
                        units[uid] = max(units.get(uid, 0), held)
        case Unknown():
            pass
    return tuple(CountedPod(uid=uid, units=units[uid]) for uid in sorted(units))
