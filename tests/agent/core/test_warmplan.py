"""The plan: what is pulled, kept and let go."""

import dataclasses
import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core import warmplan, warmref, warmth
from agent.core.warmplan import Candidate
from agent.model.warm import (
    Descriptor,
    Disk,
    Failure,
    Image,
    ImageRecord,
    Layer,
    Lease,
    Limits,
    Mode,
    Reason,
    Refused,
    Snapshot,
    StoreFacts,
    Wanted,
)
from muster.model.reading import Known, Unknown
from muster.model.warmth import Hold

AT = datetime.datetime(2026, 12, 1, tzinfo=datetime.UTC)
LATER = AT + datetime.timedelta(hours=20)
SOON = AT + datetime.timedelta(hours=2)
GIB = 1024**3
LIMITS = Limits(budget_bytes=100 * GIB)
ROOMY = Known(Disk(total_bytes=1000 * GIB, free_bytes=900 * GIB))
FULL = Known(Disk(total_bytes=100 * GIB, free_bytes=21 * GIB))
"""80 % is a GiB away."""


def image(name, size=GIB):
    layer = Layer(
        blob=Descriptor(digest=f"sha256:l{name}", size=size, kind="layer"), diff_id="d", chain_id=f"sha256:c{name}"
    )
    manifest = Descriptor(digest=f"sha256:m{name}", size=0, kind="manifest")
    config = Descriptor(digest=f"sha256:k{name}", size=0, kind="config")
    return Image(root=manifest, manifest=manifest, config=config, layers=(layer,))


def lease_of(name, expires_at=LATER, *, is_done=True):
    return Lease(id=f"lease-{name}", digest=f"sha256:m{name}", expires_at=expires_at, is_done=is_done)


def candidate(name, *, facts=None, size=GIB, mode=Mode.SHADOW, pin=False, is_hint=False, **more):
    made = image(name, size)
    return Candidate(
        **{
            "wanted": Wanted(reference=warmref.parse(f"r.io/{name}:1"), mode=mode, pin=pin, is_hint=is_hint),
            "image": made,
            "warmth": warmth.assess(made, facts or StoreFacts()),
            **more,
        }
    )


def shadow(name, size=GIB, **more):
    made = image(name, size)
    facts = StoreFacts(
        blobs={blob.digest: blob.size for blob in made.blobs},
        snapshots={made.top: warmth_snapshot()},
        leases=(lease_of(name),),
    )
    return candidate(name, facts=facts, size=size, **more)


def visible(name, **more):
    made = image(name)
    facts = StoreFacts(
        blobs={blob.digest: blob.size for blob in made.blobs},
        snapshots={made.top: warmth_snapshot()},
        records={f"r.io/{name}:1": ImageRecord(digest=made.root.digest)},
        leases=(lease_of(name),),
    )
    return candidate(name, facts=facts, mode=Mode.VISIBLE, **more)


def warmth_snapshot():
    from agent.model.warm import Snapshot  # noqa: PLC0415

    return Snapshot()


def planned(*candidates, leases=(), disk=ROOMY, limits=LIMITS, host_holds=None, busy="", pulling=""):
    return warmplan.plan(
        candidates, leases, disk, limits, host_holds=host_holds or {}, busy=busy, now=1000.0, utc=AT, pulling=pulling
    )


def test_the_first_that_is_not_warm_is_pulled():
    plan = planned(shadow("a"), candidate("b"), candidate("c"), leases=(lease_of("a"),))
    assert plan.pull.key == "r.io/b:1"
    assert plan.release == plan.renew == ()


def test_a_shadow_on_lazily_mounted_layers_is_warm():
    made = image("a")
    facts = StoreFacts(
        blobs={blob.digest: blob.size for blob in made.blobs},
        snapshots={made.top: Snapshot(is_remote=True)},
        leases=(lease_of("a"),),
    )
    plan = planned(candidate("a", facts=facts), leases=facts.leases)
    assert (plan.pull, plan.release) == (None, ())


def test_what_is_not_resolved_is_not_pulled_and_keeps_every_lease():
    """A registry that is away must not cost a node its shadows."""
    plan = planned(candidate("a", image=None, warmth=None), leases=(lease_of("x"),))
    assert plan.pull is None
    assert plan.release == ()


def test_while_a_pull_runs_other_leases_are_renewed_and_none_is_released():
    """It may take longer than a lease lives."""
    leases = (lease_of("a", SOON), lease_of("b", SOON, is_done=False), lease_of("x", SOON))
    plan = planned(shadow("a"), candidate("b"), leases=leases, pulling="sha256:mb")
    assert [lease.id for lease in plan.renew] == ["lease-a"]
    assert plan.release == ()


def unresolved(name, reason=None, **more):
    failure = None if reason is None else Failure(reason=reason, detail="", attempts=1, retry_at=2000.0)
    return candidate(name, image=None, warmth=None, failure=failure, **more)


@pytest.mark.parametrize("reason", [None, Reason.NOT_FOUND, Reason.UNAUTHORIZED, Reason.REGISTRY_UNREACHABLE])
def test_what_is_never_resolved_keeps_nothing_for_ever(reason):
    """Shadows that are nobody's end with their leases; those of known images are renewed."""
    plan = planned(unresolved("typo", reason), shadow("a"), leases=(lease_of("a", SOON), lease_of("withdrawn", SOON)))
    assert [lease.id for lease in plan.renew] == ["lease-a"]
    assert plan.release == ()


@pytest.mark.parametrize(
    ("reason", "released"),
    [
        (None, []),
        (Reason.REGISTRY_UNREACHABLE, []),
        (Reason.NOT_FOUND, ["lease-x"]),
        (Reason.UNAUTHORIZED, ["lease-x"]),
    ],
)
def test_what_is_nobodys_makes_room_unless_a_more_important_image_may_be_its_owner(reason, released):
    leases = (lease_of("b"), lease_of("x"))
    plan = planned(unresolved("typo", reason), candidate("a"), shadow("b"), leases=leases, disk=FULL)
    assert [lease.id for lease in plan.release] == (released or ["lease-b"])
    assert plan.waits["r.io/a:1"].reason is Reason.DISK_GUARD
    behind = planned(candidate("a"), shadow("b"), unresolved("typo", reason), leases=leases, disk=FULL)
    assert [lease.id for lease in behind.release] == ["lease-x"]


def test_nobody_wants_it_any_more():
    plan = planned(shadow("a"), leases=(lease_of("a"), lease_of("b")))
    assert [lease.id for lease in plan.release] == ["lease-b"]


def test_a_visible_image_needs_no_lease():
    assert [lease.id for lease in planned(visible("a"), leases=(lease_of("a"),)).release] == ["lease-a"]


def test_a_lease_is_renewed_in_its_second_half():
    plan = planned(shadow("a"), leases=(lease_of("a", SOON),))
    assert [lease.id for lease in plan.renew] == ["lease-a"]


@pytest.mark.parametrize(
    ("options", "fields", "reason"),
    [
        ({"busy": "a pod starts"}, {}, Reason.YIELDING),
        ({"host_holds": {"r.io": 1001.0}}, {}, Reason.HOST_HELD),
        ({}, {"failure": Failure(reason=Reason.NOT_FOUND, detail="", attempts=1, retry_at=1001.0)}, Reason.NOT_FOUND),
        ({}, {"image": Refused(reason=Reason.SCHEMA_1, detail="")}, Reason.SCHEMA_1),
        ({"disk": FULL}, {}, Reason.DISK_GUARD),
        ({"disk": Unknown("NotVisible")}, {}, Reason.DISK_GUARD),
        ({"limits": Limits(budget_bytes=GIB - 1)}, {}, Reason.OVER_BUDGET),
    ],
    ids=["busy", "host held", "failed", "refused", "disk", "a disk nobody can read", "budget"],
)
def test_what_keeps_an_image_waiting_is_said(options, fields, reason):
    plan = planned(candidate("a", **fields), **options)
    assert plan.pull is None
    assert plan.waits["r.io/a:1"].reason is reason


def test_a_hold_that_is_over_holds_nobody():
    failure = Failure(reason=Reason.STALLED, detail="", attempts=1, retry_at=1000.0)
    assert planned(candidate("a", failure=failure), host_holds={"r.io": 1000.0}).pull is not None


def test_hints_have_a_budget_of_their_own():
    limits = dataclasses.replace(LIMITS, hint_budget_bytes=GIB)
    plan = planned(shadow("a"), candidate("b", is_hint=True), candidate("c", is_hint=True), limits=limits)
    assert plan.pull.key == "r.io/b:1"
    assert plan.waits["r.io/c:1"].reason is Reason.OVER_BUDGET


def test_habits_have_a_budget_of_their_own():
    def habit(name):
        made = candidate(name)
        return dataclasses.replace(made, wanted=dataclasses.replace(made.wanted, is_habit=True))

    limits = dataclasses.replace(LIMITS, habit_budget_bytes=GIB)
    plan = planned(shadow("a"), habit("b"), habit("c"), limits=limits)
    assert plan.pull.key == "r.io/b:1"
    assert plan.waits["r.io/c:1"].reason is Reason.OVER_BUDGET
    assert planned(habit("b")).waits["r.io/b:1"].reason is Reason.OVER_BUDGET, "without one none is pulled"


def test_a_broken_mount_is_not_pulled_over():
    """Everything is there for a pull; only the snapshotter can mend its mount."""
    made = image("a", GIB)
    broken = Snapshot(is_remote=True, problem="Transport endpoint is not connected")
    plan = planned(candidate("a", facts=StoreFacts(snapshots={made.top: broken})))
    assert plan.pull is None
    assert plan.waits["r.io/a:1"] == Refused(reason=Reason.LAZY_BROKEN, detail=broken.problem)


def test_less_important_shadows_make_room():
    """And only as many as it takes, from the least important."""
    leases = tuple(lease_of(name) for name in "bcd")
    plan = planned(candidate("a"), shadow("b"), shadow("c"), shadow("d"), leases=leases, disk=FULL)
    assert [lease.id for lease in plan.release] == ["lease-d"]
    assert plan.pull is None, "until the room is there"
    more_important = planned(shadow("b"), candidate("a"), leases=(lease_of("b"),), disk=FULL)
    assert more_important.release == ()


def test_a_disk_that_was_full_gets_its_bytes_back():
    failure = Failure(reason=Reason.DISK_FULL, detail="", attempts=1, retry_at=9999.0)
    half = lease_of("a", is_done=False)
    assert planned(candidate("a", failure=failure), leases=(half,)).release == (half,)


def test_a_pin_is_set_where_it_is_asked_for():
    assert [each.key for each in planned(visible("a", pin=True), leases=()).pin] == ["r.io/a:1"]


def test_auto_is_shadow_where_credentials_were_needed():
    assert candidate("a", mode=Mode.AUTO).hold is Hold.VISIBLE
    assert candidate("a", mode=Mode.AUTO, took_credentials=True).hold is Hold.SHADOW


@given(
    names=st.lists(st.sampled_from("abcdef"), unique=True),
    leased=st.sets(st.sampled_from("abcdefgh")),
    warm=st.sets(st.sampled_from("abcdef")),
    free=st.integers(0, 100),
    busy=st.sampled_from(["", "a pod starts"]),
)
def test_no_plan_breaks_a_promise(names, leased, warm, free, busy):
    """Only given leases are released or renewed, none both; no pull while busy or beyond the disk's share."""
    leases = tuple(lease_of(name) for name in sorted(leased))
    disk = Disk(total_bytes=100 * GIB, free_bytes=free * GIB)
    candidates = [shadow(name) if name in warm else candidate(name) for name in names]
    plan = planned(*candidates, leases=leases, disk=Known(disk), busy=busy)
    assert set(plan.release) <= set(leases)
    assert set(plan.renew) <= set(leases)
    assert not set(plan.release) & set(plan.renew)
    if plan.pull is not None:
        assert not busy
        assert not plan.pull.is_warm
        used = disk.total_bytes - disk.free_bytes + warmplan.bytes_needed(plan.pull, LIMITS)
        assert used <= LIMITS.disk_share * disk.total_bytes
    assert planned(*candidates, leases=leases, disk=Known(disk), busy=busy) == plan


@pytest.mark.parametrize(("secret", "reason"), [("s/1", Reason.SECRET_MISSING), ("", Reason.UNAUTHORIZED)])
def test_what_only_a_pods_secret_opens_waits_for_it(secret, reason):
    """Not from failure to failure: the admitter sends it once this is told."""
    hinted = Wanted(reference=warmref.parse("r.io/a:1"), is_hint=True, secret=secret)
    lacking = candidate("a", wanted=hinted, took_credentials=True, lacks_secret=True)
    plan = planned(lacking, limits=Limits(budget_bytes=0, hint_budget_bytes=2 * GIB))
    assert (plan.pull, plan.waits["r.io/a:1"].reason) == (None, reason)
    assert lacking.hold is Hold.SHADOW
    held = dataclasses.replace(lacking, lacks_secret=False)
    assert planned(held, limits=Limits(budget_bytes=0, hint_budget_bytes=2 * GIB)).pull == held
