"""What a stream says next follows from what it said last."""

import dataclasses
import datetime

from hypothesis import given
from hypothesis import strategies as st

from agent.publish.outbox import Outbox, PlaneAges, Published
from muster.model import delta, pbform, report, warmth
from muster.pb.muster.v1 import feed_pb2
from tests import feedworld


def published(free=8, topology=feedworld.TOPOLOGY, **fields):
    return Published(report=feedworld.a_report(free=free, **fields), topology=topology)


def say(outbox, newest, now=0.0, ages=None, leases=None):
    message = outbox.next(newest, ages or PlaneAges(), leases or feed_pb2.LeaseSet(), now)
    return (None, None) if message is None else (message.WhichOneof("message"), message)


def an_outbox(sequence=0, heartbeat_seconds=5.0):
    return Outbox(sequence, heartbeat_seconds, now=0.0)


def test_nothing_published_nothing_said():
    assert say(an_outbox(), None, now=100.0) == (None, None)


def test_the_first_word_is_a_snapshot_with_the_leases_that_are_known():
    leases = feed_pb2.LeaseSet(term=3, leases=[feed_pb2.NodeLease(id="a")])
    kind, message = say(an_outbox(sequence=41), published(), leases=leases)
    assert kind == "snapshot"
    assert message.snapshot.sequence == 42
    assert message.snapshot.leases == leases
    assert pbform.from_pb(report.NodeReport, message.snapshot.report) == feedworld.a_report()


def test_states_in_between_are_skipped():
    """A delta leads from what was sent to what is newest, however many states came between."""
    outbox = an_outbox()
    say(outbox, published(free=8))
    kind, message = say(outbox, published(free=2))
    assert (kind, message.delta.base, message.delta.sequence) == ("delta", 1, 2)
    change = pbform.from_pb(delta.Delta, message.delta)
    assert delta.apply(feedworld.a_report(free=8), change) == feedworld.a_report(free=2)


def test_a_steady_node_costs_a_heartbeat():
    outbox = an_outbox()
    say(outbox, published())
    later = published(taken_at=feedworld.AT + datetime.timedelta(seconds=5))
    assert say(outbox, later, now=4.9) == (None, None)
    kind, message = say(outbox, later, now=5.0, ages=PlaneAges(seconds={"nvml": 1.5}, taken_at=4.0))
    assert kind == "heartbeat"
    assert message.heartbeat.sequence == 1
    assert dict(message.heartbeat.plane_age_ms) == {"nvml": 2500}
    assert say(outbox, later, now=5.1) == (None, None)
    assert outbox.patience(now=6.0) == 4.0


def test_topology_travels_once_a_generation():
    outbox = an_outbox()
    say(outbox, published())
    _, message = say(outbox, published(free=7))
    assert not message.delta.HasField("topology")
    newer = dataclasses.replace(feedworld.TOPOLOGY, generation=2)
    _, message = say(outbox, published(free=7, topology=newer))
    assert message.delta.topology.generation == 2
    _, message = say(outbox, published(free=6, topology=newer))
    assert not message.delta.HasField("topology")


def test_a_resync_is_answered_whole():
    outbox = an_outbox()
    say(outbox, published())
    outbox.resync()
    kind, message = say(outbox, published())
    assert (kind, message.snapshot.sequence) == ("snapshot", 2)


def test_a_verdict_that_changes_alone_is_told():
    outbox = an_outbox()
    say(outbox, published())
    kind, _ = say(outbox, published(verdict=report.Verdict.TRANSIENT))
    assert kind == "delta"


@given(st.lists(st.one_of(st.integers(0, 8), st.just("resync"), st.just("beat")), max_size=30))
def test_the_other_end_always_ends_where_we_are(steps):
    """Applying what is said gives the newest state, and sequences rise by one."""
    outbox, theirs, sequence, newest = an_outbox(), None, 0, published()
    for now, step in enumerate(steps):
        if step == "resync":
            outbox.resync()
        elif step != "beat":
            newest = published(free=step)
        kind, message = say(outbox, newest, now=float(now))
        if kind == "snapshot":
            theirs = pbform.from_pb(report.NodeReport, message.snapshot.report)
            assert message.snapshot.sequence == sequence + 1
        elif kind == "delta":
            assert (message.delta.base, message.delta.sequence) == (sequence, sequence + 1)
            theirs = delta.apply(theirs, pbform.from_pb(delta.Delta, message.delta))
        elif kind == "heartbeat":
            assert message.heartbeat.sequence == sequence
        sequence = outbox.sequence
        assert theirs == newest.report


def test_images_travel_beside_the_report_and_alone():
    """A change of images makes a delta of its own; the admitter's state follows (muster.model.warmth.apply)."""
    at = datetime.datetime(2026, 12, 1, tzinfo=datetime.UTC)
    cold = warmth.NodeWarmth(observed_at=at, store=warmth.ImageStore(snapshotter="overlayfs"), layers=(1,))
    warm = dataclasses.replace(cold, layers=(1, 2))
    outbox, newest = an_outbox(), published()
    say(outbox, newest)
    kind, message = say(outbox, dataclasses.replace(newest, warmth=cold))
    assert kind == "delta"
    assert (list(message.delta.warmth.layers), message.delta.warmth.store.snapshotter) == ([1], "overlayfs")
    kind, message = say(outbox, dataclasses.replace(newest, warmth=warm))
    assert (list(message.delta.warmth.layers), message.delta.warmth.HasField("store")) == ([2], False)
    later = dataclasses.replace(warm, observed_at=at + datetime.timedelta(seconds=1))
    assert say(outbox, dataclasses.replace(newest, warmth=later)) == (None, None)
    outbox.resync()
    kind, message = say(outbox, dataclasses.replace(newest, warmth=later))
    assert (kind, list(message.snapshot.warmth.layers)) == ("snapshot", [1, 2])
