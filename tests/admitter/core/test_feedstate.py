"""Accept or refuse: epochs, sequences and bases, without a socket."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitter.core import feedstate
from admitter.core.feedstate import Reason, Refusal
from admitter.model.feedmessages import Heartbeat, Hello, Snapshot
from admitter.model.nodecapacity import Epoch
from muster.model import delta as deltas
from muster.model import protocol, report, warmth
from muster.model.lease import LeaseSet, NodeLease
from muster.model.reading import Known
from tests import feedworld

HELLO = Hello(node="node-1", boot_id="boot-1", start_counter=1, agent_version="0.1.0", protocol=protocol.MINOR)


def a_snapshot(sequence=1, content=None, **fields):
    return Snapshot(
        **{
            "sequence": sequence,
            "report": content or feedworld.a_report(),
            "topology": feedworld.TOPOLOGY,
            "leases": LeaseSet(term=0),
            **fields,
        }
    )


def accepted(sequence=1, free=8, now=0.0):
    state = feedstate.accept_snapshot(None, HELLO, a_snapshot(sequence, feedworld.a_report(free=free)), now=now, term=1)
    assert not isinstance(state, Refusal), state
    return state


def reason_of(outcome):
    assert isinstance(outcome, Refusal), outcome
    return outcome.reason


def test_a_first_hello_begins_a_life():
    assert feedstate.greet(None, "node-1", HELLO).live == Epoch(boot_id="boot-1", start_counter=1)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"node": "node-2"}, Reason.WRONG_NODE),
        ({"protocol": protocol.MINOR + 3}, Reason.PROTOCOL_SKEW),
        ({"boot_id": ""}, Reason.MALFORMED),
        ({"agent_version": "x" * 1000}, Reason.MALFORMED),
    ],
)
def test_a_hello_that_does_not_fit_is_refused(fields, reason):
    assert reason_of(feedstate.greet(None, "node-1", dataclasses.replace(HELLO, **fields))) is reason


@pytest.mark.parametrize("skew", [-2, -1, 0, 1, 2])
def test_two_minor_versions_apart_still_talk(skew):
    hello = dataclasses.replace(HELLO, protocol=protocol.MINOR + skew)
    assert not isinstance(feedstate.greet(None, "node-1", hello), Refusal)


def test_epochs_only_go_forward():
    """Within a boot the counter rises; a new boot ends the old one for good, whatever its counter."""
    lives = feedstate.greet(None, "node-1", dataclasses.replace(HELLO, start_counter=5))
    lives = feedstate.greet(lives, "node-1", dataclasses.replace(HELLO, start_counter=5))
    assert reason_of(feedstate.greet(lives, "node-1", HELLO)) is Reason.OLD_EPOCH
    rebooted = dataclasses.replace(HELLO, boot_id="boot-2")
    lives = feedstate.greet(lives, "node-1", rebooted)
    assert lives.live == Epoch(boot_id="boot-2", start_counter=1)
    replayed = dataclasses.replace(HELLO, start_counter=9)
    assert reason_of(feedstate.greet(lives, "node-1", replayed)) is Reason.OLD_EPOCH


def test_only_so_many_ended_boots_are_remembered():
    lives = None
    for number in range(100):
        lives = feedstate.greet(lives, "node-1", dataclasses.replace(HELLO, boot_id=f"boot-{number}"))
    assert lives.ended_boots[0] == "boot-98"
    assert len(lives.ended_boots) == 16


def test_a_snapshot_is_the_state_whole():
    message = a_snapshot(7, leases=LeaseSet(term=3, leases=(NodeLease(id="a", gang="b/c", resource="d", units=2),)))
    state = feedstate.accept_snapshot(None, HELLO, message, now=5.0, term=4)
    assert (state.sequence, state.report, state.topology) == (7, message.report, message.topology)
    assert (state.leases, state.lease_term, state.snapshot_term) == (message.leases.leases, 3, 4)
    assert state.heard_at == 5.0


@pytest.mark.parametrize("sequence", [1, 4, 5])
def test_a_replayed_snapshot_is_refused(sequence):
    known = accepted(sequence=5)
    outcome = feedstate.accept_snapshot(known, HELLO, a_snapshot(sequence), now=1.0, term=1)
    assert reason_of(outcome) is Reason.BAD_SEQUENCE


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (a_snapshot(-1), Reason.BAD_SEQUENCE),
        (a_snapshot(content=feedworld.a_report(node="node-2")), Reason.WRONG_NODE),
        (a_snapshot(topology=report.Topology(generation=-1)), Reason.IMPOSSIBLE_REPORT),
        (
            a_snapshot(
                leases=LeaseSet(term=1, leases=(NodeLease(id="a", gang="b", resource="c", units=-1),)),
            ),
            Reason.IMPOSSIBLE_REPORT,
        ),
        (
            a_snapshot(leases=LeaseSet(term=1, leases=(NodeLease(id="a", gang="b", resource="c", units=1),) * 5000)),
            Reason.IMPOSSIBLE_REPORT,
        ),
        (
            a_snapshot(
                content=feedworld.a_report(resources={"a": feedworld.a_resource(admit_strict=Known(-8))}),
            ),
            Reason.IMPOSSIBLE_REPORT,
        ),
    ],
)
def test_a_snapshot_that_cannot_be_is_refused(message, reason):
    assert reason_of(feedstate.accept_snapshot(None, HELLO, message, now=0.0, term=1)) is reason


def test_a_delta_follows_its_base():
    known = accepted(sequence=5, free=8)
    change = deltas.diff(known.report, feedworld.a_report(free=2), base=5)
    state = feedstate.accept_delta(known, change, now=9.0)
    assert (state.sequence, state.report, state.heard_at) == (6, feedworld.a_report(free=2), 9.0)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"base": 4, "sequence": 5}, Reason.UNKNOWN_BASE),
        ({"base": 6, "sequence": 7}, Reason.UNKNOWN_BASE),
        ({"sequence": 7}, Reason.BAD_SEQUENCE),
        ({"sequence": 5}, Reason.BAD_SEQUENCE),
        ({"topology": report.Topology(generation=0)}, Reason.IMPOSSIBLE_REPORT),
        ({"resources": {"a": feedworld.a_resource(pick_risk=Known(float("nan")))}}, Reason.IMPOSSIBLE_REPORT),
    ],
)
def test_a_delta_that_does_not_fit_is_refused(fields, reason):
    known = accepted(sequence=5)
    change = dataclasses.replace(deltas.diff(known.report, known.report, base=5), **fields)
    assert reason_of(feedstate.accept_delta(known, change, now=9.0)) is reason


def test_a_delta_without_a_state_has_no_base():
    change = deltas.diff(feedworld.a_report(), feedworld.a_report(), base=0)
    assert reason_of(feedstate.accept_delta(None, change, now=0.0)) is Reason.UNKNOWN_BASE


def test_small_deltas_cannot_add_up_to_a_large_state():
    """Every delta alone is within bounds; the state they make must be too."""
    state = accepted()
    outcome = state
    for batch in range(10):
        more = {f"r{batch}-{index}": feedworld.a_resource() for index in range(100)}
        change = dataclasses.replace(deltas.diff(state.report, state.report, base=state.sequence), resources=more)
        outcome = feedstate.accept_delta(state, change, now=0.0)
        if isinstance(outcome, Refusal):
            break
        state = outcome
    assert reason_of(outcome) is Reason.IMPOSSIBLE_REPORT


def test_a_heartbeat_makes_the_accepted_state_young():
    state = feedstate.accept_heartbeat(accepted(), Heartbeat(sequence=1, plane_age_ms={"nvml": 7}), now=8.0)
    assert (state.heard_at, dict(state.plane_age_ms)) == (8.0, {"nvml": 7})
    assert state.report == accepted().report


@pytest.mark.parametrize(
    ("known", "message", "reason"),
    [
        (accepted(sequence=2), Heartbeat(sequence=1), Reason.BAD_SEQUENCE),
        (accepted(sequence=2), Heartbeat(sequence=3), Reason.BAD_SEQUENCE),
        (None, Heartbeat(sequence=0), Reason.BAD_SEQUENCE),
        (accepted(), Heartbeat(sequence=1, plane_age_ms={str(i): 1 for i in range(99)}), Reason.IMPOSSIBLE_REPORT),
    ],
)
def test_a_heartbeat_of_another_state_is_refused(known, message, reason):
    assert reason_of(feedstate.accept_heartbeat(known, message, now=9.0)) is reason


def test_a_long_list_of_problems_is_cut():
    names = {f"r{index}": feedworld.a_resource(admit_strict=Known(-1)) for index in range(100)}
    outcome = feedstate.accept_snapshot(
        None, HELLO, a_snapshot(content=feedworld.a_report(resources=names)), now=0.0, term=1
    )
    assert "and 92 more" in outcome.detail


_MESSAGES = st.one_of(
    st.tuples(st.just("snapshot"), st.integers(-2, 12), st.integers(-2, 8)),
    st.tuples(st.just("delta"), st.integers(-1, 12), st.integers(-1, 12), st.integers(-2, 8)),
    st.tuples(st.just("heartbeat"), st.integers(-1, 12)),
)


@given(st.lists(_MESSAGES, max_size=30))
def test_the_state_is_the_last_accepted_report(messages):
    """Any order of honest and hostile messages, against a model of three numbers: sequence, free units, heard at."""
    known, model = None, None
    for now, (kind, *numbers) in enumerate(messages):
        outcome = _send(known, kind, numbers, float(now))
        expected = _model(model, kind, numbers, float(now))
        if expected is None:
            assert isinstance(outcome, Refusal)
            continue
        known, model = outcome, expected
        units = known.report.resources["nvidia.com/gpu"].admit_strict.value
        assert (known.sequence, units, known.heard_at) == model


def _send(known, kind, numbers, now):
    if kind == "heartbeat":
        return feedstate.accept_heartbeat(known, Heartbeat(sequence=numbers[0]), now=now)
    resource = feedworld.a_resource(max(numbers[-1], 0), admit_strict=Known(numbers[-1]))
    content = feedworld.a_report(resources={"nvidia.com/gpu": resource})
    if kind == "snapshot":
        return feedstate.accept_snapshot(known, HELLO, a_snapshot(numbers[0], content), now=now, term=1)
    change = deltas.diff(feedworld.a_report(resources={}), content, base=numbers[0])
    return feedstate.accept_delta(known, dataclasses.replace(change, sequence=numbers[1]), now=now)


def _model(model, kind, numbers, now):
    sequence, units, _ = model or (-1, 0, 0)
    if kind == "heartbeat":
        return (sequence, units, now) if model and numbers[0] == sequence else None
    if numbers[-1] < 0:
        return None
    if kind == "snapshot":
        return (numbers[0], numbers[1], now) if numbers[0] > sequence else None
    base, following, new = numbers
    return (following, new, now) if model and base == sequence and following == base + 1 else None


IMAGES = dataclasses.replace(warmth.NOTHING, layers=(1, 2))


def test_images_follow_the_same_sequence_as_the_report():
    """Images that come with a delta are applied to those that the snapshot told; without any they stay."""
    state = feedstate.accept_snapshot(None, HELLO, a_snapshot(warmth=IMAGES), now=0.0, term=1)
    assert state.warmth == IMAGES
    steady = deltas.diff(state.report, state.report, base=1)
    state = feedstate.accept_delta(state, steady, now=1.0)
    assert state.warmth == IMAGES
    change = warmth.diff(IMAGES, dataclasses.replace(IMAGES, layers=(2, 3)))
    state = feedstate.accept_delta(
        state, dataclasses.replace(deltas.diff(state.report, state.report, base=2), warmth=change), now=2.0
    )
    assert state.warmth.layers == (2, 3)


def test_images_beyond_the_bounds_are_refused():
    flood = dataclasses.replace(warmth.NOTHING, layers=tuple(range(warmth.MAX_LAYERS + 1)))
    outcome = feedstate.accept_snapshot(None, HELLO, a_snapshot(warmth=flood), now=0.0, term=1)
    assert reason_of(outcome) is Reason.IMPOSSIBLE_REPORT
    change = warmth.diff(warmth.NOTHING, flood)
    state = accepted()
    delta = dataclasses.replace(deltas.diff(state.report, state.report, base=1), warmth=change)
    assert reason_of(feedstate.accept_delta(state, delta, now=1.0)) is Reason.IMPOSSIBLE_REPORT
