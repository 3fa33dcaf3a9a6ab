"""What a transfer says adds up, and never falls."""

from hypothesis import given
from hypothesis import strategies as st

from agent.core import warmprogress
from agent.core.warmprogress import Progress

EVENTS = st.builds(
    Progress,
    event=st.sampled_from(["waiting", "downloading", "complete", "extracting", "extracted", "saved", "new in 2.9"]),
    name=st.sampled_from(["layer-sha256:a", "layer-sha256:b"]),
    done=st.integers(0, 100),
    total=st.just(100),
)


def test_a_layer_from_waiting_to_unpacked():
    extent = warmprogress.NOTHING
    for event, done in [("waiting", 0), ("downloading", 40), ("complete", 100), ("extracting", 7), ("extracted", 100)]:
        extent = warmprogress.add(extent, Progress(event=event, name="layer-sha256:a", done=done, total=100))
    assert (extent.fetched_bytes, extent.unpacked) == (100, {"layer-sha256:a"})
    assert extent.unpacking == {"layer-sha256:a": 100}


@given(st.lists(EVENTS, max_size=20))
def test_counts_never_fall(events):
    extent = warmprogress.NOTHING
    for event in events:
        before, extent = extent, warmprogress.add(extent, event)
        assert extent.fetched_bytes >= before.fetched_bytes
        assert extent.unpacked >= before.unpacked
        assert all(extent.unpacking[name] >= count for name, count in before.unpacking.items())
