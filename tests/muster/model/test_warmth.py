"""The images of a node travel as changes, bounded, and what is applied is what was there."""

import dataclasses
import datetime

import hypothesis
import pytest
from hypothesis import strategies as st

from muster.model import warmth
from tests import values

NOW = datetime.datetime(2026, 12, 1, tzinfo=datetime.UTC)


@st.composite
def states(draw):
    """Draw a state as a warmer makes it: keys are unique, everything is sorted."""
    state = draw(values.of(warmth.NodeWarmth))
    names = draw(st.lists(st.sampled_from(["sha256:a", "sha256:b", "sha256:c"]), unique=True, max_size=3))
    images = [dataclasses.replace(draw(values.of(warmth.ImageWarmth)), digest=name, platform="p") for name in names]
    images = {image.key: image for image in images}
    tags = {tag.reference: tag for tag in state.tags}
    return dataclasses.replace(
        state,
        images=tuple(images[key] for key in sorted(images)),
        tags=tuple(tags[key] for key in sorted(tags)),
    )


@hypothesis.given(old=states(), new=states())
def test_a_change_applied_gives_the_new_state(old, new):
    assert warmth.apply(old, warmth.diff(old, new)) == new


@hypothesis.given(state=states())
def test_nothing_changed_is_steady(state):
    later = dataclasses.replace(state, observed_at=NOW)
    assert warmth.is_steady(warmth.diff(state, later))


@hypothesis.given(state=states())
def test_a_fresh_peer_is_told_everything(state):
    assert warmth.apply(warmth.NOTHING, warmth.diff(warmth.NOTHING, state)) == state


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        ({"layers": tuple(range(warmth.MAX_LAYERS + 1))}, "warmth.layers: 4097, at most 4096"),
        ({"store": warmth.ImageStore(problem="x" * 600)}, "warmth: a text is longer than 512"),
        (
            {"tags": tuple(warmth.TagObservation(reference=str(n), digest="", observed_at=NOW) for n in range(300))},
            "warmth.tags: 300, at most 256",
        ),
    ],
    ids=["too many layers", "a long text", "too many tags"],
)
def test_what_no_warmer_sends_is_refused_by_name(state, problem):
    assert problem in warmth.problems(dataclasses.replace(warmth.NOTHING, **state))
