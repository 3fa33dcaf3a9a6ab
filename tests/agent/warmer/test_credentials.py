"""The kubelet's credential provider: what it says, and all the ways in which it says nothing."""

import json
import sys

import pytest

from agent.core import warmref
from agent.warmer.credentials import CredentialProvider

IMAGE = warmref.parse("a.ecr.aws/team/app:1")


def provider(tmp_path, source, images=("*.ecr.aws",), clock=lambda: 0.0):
    script = tmp_path / "provider.py"
    script.write_text(source)
    return CredentialProvider((sys.executable, str(script)), images, clock)


def saying(answer, count=""):
    return f"import json, sys, pathlib\nrequest = json.load(sys.stdin)\nassert request['kind'] == 'CredentialProviderRequest'\n{count}\nprint({json.dumps(answer)!r})\n"


AUTH = {"a.ecr.aws": {"username": "u", "password": "p"}, "a.ecr.aws/team": {"username": "team", "password": "t"}}


async def test_the_longest_pattern_that_fits_wins(tmp_path):
    assert await provider(tmp_path, saying({"auth": AUTH})).credentials(IMAGE) == ("team", "t")


async def test_an_image_that_it_is_not_for_is_not_asked_about(tmp_path):
    asked = provider(tmp_path, "raise SystemExit(1)", images=("b.io",))
    assert await asked.credentials(IMAGE) is None


async def test_an_answer_is_kept_as_long_as_it_says(tmp_path):
    marks = tmp_path / "marks"
    count = f"open({str(marks)!r}, 'a').write('x')"
    now = [0.0]
    asked = provider(tmp_path, saying({"auth": AUTH, "cacheDuration": "1m"}, count), clock=lambda: now[0])
    for now[0] in (0.0, 59.0, 61.0):
        assert await asked.credentials(IMAGE) == ("team", "t")
    assert marks.read_text() == "xx"


@pytest.mark.parametrize(
    "source",
    [
        "raise SystemExit(3)",
        "print('no JSON')",
        "print('[]')",
        "print('[' * 100_000)",
        "while True: print('x' * 1000)",
        saying({"auth": None}),
        saying({"auth": {"a.ecr.aws": 5}}),
        saying({"auth": {"a.ecr.aws": {"username": "u"}}}),
        saying({"auth": {"b.io": {"username": "u", "password": "p"}}}),
    ],
    ids=["fails", "no JSON", "no object", "a well", "no end", "no auth", "no entry", "no password", "another registry"],
)
async def test_whatever_else_it_says_is_no_credential(tmp_path, source):
    assert await provider(tmp_path, source).credentials(IMAGE) is None


async def test_a_program_that_is_not_there_is_no_credential():
    assert await CredentialProvider(("/nowhere",), ("*.ecr.aws",)).credentials(IMAGE) is None


async def test_a_provider_that_failed_is_left_alone_for_a_while(tmp_path):
    marks = tmp_path / "marks"
    now = [0.0]
    source = f"open({str(marks)!r}, 'a').write('x')\nraise SystemExit(1)"
    asked = provider(tmp_path, source, clock=lambda: now[0])
    for now[0] in (0.0, 59.0, 61.0):
        assert await asked.credentials(IMAGE) is None
    assert marks.read_text() == "xx"
