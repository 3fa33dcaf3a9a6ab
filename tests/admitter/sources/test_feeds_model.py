"""Any order of honest and hostile messages, over the wire, against a model of what must be accepted."""

import contextlib
import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admitter.core.feedstate import Reason
from muster.model import delta as deltas
from muster.model import pbform
from muster.model.reading import Known
from muster.pb.muster.v1 import feed_pb2
from tests import feedworld

_SEQUENCE = st.integers(-1, 6)
_FREE = st.integers(-1, 8)
"""-1 is the hostile one."""
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("hello"), st.sampled_from("abc"), st.integers(1, 3)),
        st.tuples(st.just("snapshot"), _SEQUENCE, _FREE),
        st.tuples(st.just("delta"), _SEQUENCE, st.integers(1, 2), _FREE),
        st.tuples(st.just("heartbeat"), _SEQUENCE),
        st.tuples(st.just("noise")),
    ),
    max_size=14,
)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return feedworld.World(tmp_path_factory.mktemp("pki"))


@dataclasses.dataclass
class Model:
    """What a careful reader of design.md section 5 would believe."""

    live: tuple[str, int] | None = None
    ended: set[str] = dataclasses.field(default_factory=set)
    state: tuple[int, int] | None = None
    """Sequence and free units."""
    is_open: bool = False
    awaits_snapshot: bool = False

    def hello(self, boot, start):
        if boot in self.ended or (self.live and boot == self.live[0] and start < self.live[1]):
            return False
        if self.live and boot != self.live[0]:
            self.ended.add(self.live[0])
        if self.live != (boot, start):
            self.state = None
        self.live, self.is_open, self.awaits_snapshot = (boot, start), True, False
        return True

    def message(self, kind, *numbers):
        """Return nothing; change what is believed."""
        if self.awaits_snapshot and kind in ("delta", "heartbeat"):
            return
        follows = self._follows(kind, *numbers)
        if follows and numbers[-1] >= 0:
            self.state, self.awaits_snapshot = self._next(kind, *numbers), False
        elif kind == "noise" or follows:
            self.is_open = False
        else:
            self.awaits_snapshot = True

    def _follows(self, kind, *numbers):
        sequence = self.state[0] if self.state else None
        if kind == "snapshot":
            return numbers[0] >= 0 and (sequence is None or numbers[0] > sequence)
        if kind == "delta":
            return sequence == numbers[0] and numbers[1] == 1
        return kind == "heartbeat" and sequence == numbers[0]

    def _next(self, kind, *numbers):
        if kind == "heartbeat":
            return self.state
        return (numbers[0] + (kind == "delta"), numbers[-1])


def a_message(kind, *numbers):
    if kind == "noise":
        return b"\xff\xff\xff"
    if kind == "heartbeat":
        return feed_pb2.ConnectRequest(heartbeat=feed_pb2.Heartbeat(sequence=numbers[0])).SerializeToString()
    resource = feedworld.a_resource(max(0, numbers[-1]), admit_strict=Known(numbers[-1]))
    content = feedworld.a_report(resources={"nvidia.com/gpu": resource})
    if kind == "snapshot":
        snapshot = feedworld.a_snapshot(numbers[0], content)
        return feed_pb2.ConnectRequest(snapshot=snapshot).SerializeToString()
    change = deltas.diff(feedworld.a_report(resources={}), content, base=numbers[0])
    change = dataclasses.replace(change, sequence=numbers[0] + numbers[1])
    return feed_pb2.ConnectRequest(delta=pbform.fill(feed_pb2.Delta(), change)).SerializeToString()


def taken(hub):
    """How many messages the hub has decided on."""
    refused = sum(count for reason, count in hub.refused.items() if reason is not Reason.SUPERSEDED)
    return sum(hub.accepted.values()) + refused


@settings(max_examples=25)
@given(steps=_STEPS)
async def test_the_view_is_always_the_last_accepted_report_of_the_live_epoch(world, steps):
    model = Model()
    async with world.hub() as (hub, address), contextlib.AsyncExitStack() as stack:
        wire = None
        for kind, *numbers in [("hello", "a", 1), *steps]:
            if kind == "hello":
                newer = await stack.enter_async_context(world.wire(address))
                await newer.say(hello=feedworld.a_hello(boot_id=numbers[0], start_counter=numbers[1]))
                if model.hello(*numbers):
                    wire = newer
                    assert (await wire.hear()).WhichOneof("message") == "welcome"
                else:
                    await newer.hear_end()
            elif model.is_open:
                before = taken(hub)
                await wire.say_bytes(a_message(kind, *numbers))
                await feedworld.until(lambda before=before: taken(hub) > before)
                model.message(kind, *numbers)
            state = hub.view().nodes.get("node-1")
            assert (state and (state.sequence, feedworld.free_in(hub))) == model.state
