"""The parts of the wait sum to the whole."""

import hypothesis
import pytest
from hypothesis import strategies as st

from admitter.model.timeline import Delay, Stamp, StampedBy, Timeline, spans
from muster.model.reading import NOT_COLLECTED, Known

BOUNDARY = st.one_of(
    st.just(NOT_COLLECTED),
    st.builds(Known, st.builds(Stamp, at=st.floats(0, 1000), by=st.sampled_from(list(StampedBy)))),
)


@hypothesis.given(BOUNDARY, BOUNDARY, BOUNDARY, BOUNDARY, BOUNDARY)
def test_no_gap_no_overlap(admitted, scheduled, bound, has_devices, running):
    timeline = Timeline(
        asked=Stamp(at=0.0, by=StampedBy.ADMITTER),
        admitted=admitted,
        scheduled=scheduled,
        bound=bound,
        has_devices=has_devices,
        running=running,
    )
    parts = spans(timeline, 1000.0)
    assert [delay for span in parts for delay in span.delays] == list(Delay)
    assert all(span.seconds >= 0 for span in parts)
    end = running.value.at if isinstance(running, Known) else 1000.0
    stamps = [b.value.at for b in (admitted, scheduled, bound, has_devices, running) if isinstance(b, Known)]
    assert sum(span.seconds for span in parts) == pytest.approx(max([end, *stamps]))
