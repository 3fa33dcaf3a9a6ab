"""Tokens are kept for whoever showed the same credential, for as long as they are good, and not without end."""

import pytest

from agent.warmer.tokens import MAX_TOKENS, Tokens

SCOPE = "repository:ml/app:pull"
USER = ("_json_key", "right")


@pytest.mark.parametrize(
    "other", [None, ("_json_key", "wrong"), ("_json_keyr", "ight"), ("", "_json_keyright")], ids=repr
)
def test_another_credential_is_another_token(other):
    tokens = Tokens(lambda: 0.0)
    tokens.keep("r.io", SCOPE, USER, "t0", 300)
    assert (tokens.known("r.io", SCOPE, USER), tokens.known("r.io", SCOPE, other)) == ("t0", "")
    assert (tokens.known("b.io", SCOPE, USER), tokens.known("r.io", "repository:x:pull", USER)) == ("", "")


def test_what_is_no_longer_good_is_not_kept():
    now = [0.0]
    tokens = Tokens(lambda: now[0])
    for number in range(5):
        tokens.keep("r.io", f"{number}", USER, "old", 100)
    now[0] = 80.0
    assert tokens.known("r.io", "0", USER) == ""
    tokens.keep("r.io", SCOPE, USER, "new", 100)
    assert (len(tokens), tokens.known("r.io", SCOPE, USER)) == (1, "new")


def test_no_more_are_kept_than_there_is_room_for():
    tokens = Tokens(lambda: 0.0)
    for number in range(MAX_TOKENS + 7):
        tokens.keep("r.io", f"{number}", USER, "t", 300)
    assert len(tokens) == MAX_TOKENS
    assert (tokens.known("r.io", "6", USER), tokens.known("r.io", "7", USER)) == ("", "t")


@pytest.mark.parametrize(
    "lifetime", [None, "soon", float("nan"), -5, [], 10**400, "9" * 400], ids=lambda each: repr(each)[:9]
)
def test_a_lifetime_of_nonsense_is_a_short_one(lifetime):
    now = [0.0]
    tokens = Tokens(lambda: now[0])
    tokens.keep("r.io", SCOPE, USER, "t", lifetime)
    assert tokens.known("r.io", SCOPE, USER) == "t"
    now[0] = 3600.0
    assert tokens.known("r.io", SCOPE, USER) == ""
