"""The operator's list: everything that is wrong with it at once, or nothing."""

import pytest

from agent.core import warmlist
from agent.model.warm import Mode

GOOD = {"budget_bytes": 10, "images": [{"image": "a.io/b:1", "pin": True}, {"image": "a.io/c:1", "mode": "shadow"}]}


def test_a_list_keeps_its_order():
    found = warmlist.parse(GOOD)
    assert [(str(wanted.reference), wanted.mode, wanted.pin) for wanted in found.wanted] == [
        ("a.io/b:1", Mode.AUTO, True),
        ("a.io/c:1", Mode.SHADOW, False),
    ]
    assert found.budget_bytes == 10


def test_an_entry_that_is_there_twice_counts_once():
    assert len(warmlist.parse({**GOOD, "images": [{"image": "a.io/b:1"}, {"image": "a.io/b:1"}]}).wanted) == 1


@pytest.mark.parametrize(
    ("content", "problems"),
    [
        ([], ["$: is not an object"]),
        ({}, ["$.budget_bytes: is required, a whole number of bytes above 0", "$.images: is required, an array"]),
        ({**GOOD, "budget_bytes": True}, ["$.budget_bytes: is required, a whole number of bytes above 0"]),
        ({**GOOD, "colour": 1}, ["$.colour: is not known"]),
        ({**GOOD, "images": [{"image": "a.io/b:1"}] * 10_000}, ["$.images: 10000 entries, at most 1000"]),
        (
            {**GOOD, "images": [{"image": "a.io/b"}, {"image": "a.io/c:1", "mode": "hot"}, 5, {}]},
            [
                "$.images[0].image: 'a.io/b' has no tag and no digest: `latest` moves, so say which",
                "$.images[1].mode: 'hot' is none of auto, visible, shadow",
                "$.images[2]: is not an object",
                "$.images[3].image: is required, a text",
            ],
        ),
        (
            {**GOOD, "images": [{"image": "a.io/b:1"}, {"image": "a.io/b:1", "pin": True}]},
            ["$.images[1]: disagrees with $.images[0] about a.io/b:1"],
        ),
        (
            {**GOOD, "images": [{"image": "a.io/b:1", "mode": "shadow", "pin": True}]},
            ["$.images[0].pin: what only a lease holds cannot be pinned"],
        ),
    ],
    ids=["no object", "empty", "a boolean budget", "unknown key", "10,000", "several", "disagree", "pinned shadow"],
)
def test_a_bad_list_names_every_problem(content, problems):
    with pytest.raises(warmlist.BadList) as raised:
        warmlist.parse(content)
    assert list(raised.value.problems) == problems


def test_problems_are_bounded():
    with pytest.raises(warmlist.BadList) as raised:
        warmlist.parse({"budget_bytes": 1, "images": [{}] * 500})
    assert len(raised.value.problems) == 21
    assert raised.value.problems[-1] == "and 480 more problems"
