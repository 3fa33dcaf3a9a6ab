"""Pull secrets of pods in the warmer: kept for one image, until it is warm, and in no text."""

import pytest

from agent.core import warmref
from agent.warmer import podsecrets

NAME = f"r.io/ml/app@sha256:{1:064x}"
REFERENCE = warmref.parse(NAME)
OPENER = ("user", "s3cret")


class World(podsecrets.PodSecrets):
    def __init__(self):
        self.now = 0.0
        super().__init__(lambda: self.now)


@pytest.fixture
def secrets():
    found = World()
    assert found.promise({NAME: "s/1"}) == {NAME}
    assert found.lacks(REFERENCE)
    assert found.keep(NAME, OPENER)
    assert found.of(REFERENCE) == OPENER
    assert not found.lacks(REFERENCE)
    return found


def later(secrets):
    secrets.now += podsecrets.KEPT_SECONDS


DROPS = {
    "warm": lambda secrets: secrets.settle([]),
    "hinted no more": lambda secrets: secrets.promise({}),
    "another version": lambda secrets: secrets.promise({NAME: "s/2"}),
    "no secret any more": lambda secrets: secrets.promise({NAME: ""}),
    "too old": later,
}


@pytest.mark.parametrize("case", DROPS)
def test_what_drops_a_secret(secrets, case):
    DROPS[case](secrets)
    assert secrets.of(REFERENCE) is None
    secrets.settle([NAME])
    assert OPENER[1] not in str(vars(secrets))


def test_the_same_hint_keeps_it_and_is_no_news(secrets):
    assert secrets.promise({NAME: "s/1", "r.io/x:1": ""}) == set()
    assert secrets.of(REFERENCE) == OPENER


def test_what_nobody_promised_is_not_kept(secrets):
    assert not secrets.keep("r.io/other:v1", OPENER)
    assert secrets.of(warmref.parse("r.io/other:v1")) is None
    assert OPENER[1] not in repr(secrets)
