"""The kubelet's credential provider: what it says, and all the ways in which it says nothing."""

import asyncio
import json
import sys

import pytest

from agent.core import warmref
from agent.warmer import credentials
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


def image(number):
    return warmref.parse(f"a.ecr.aws/team/app{number}:1")


async def test_no_password_is_kept_beyond_its_time(tmp_path):
    """Each repository is asked about once, and perhaps never again."""
    now = [0.0]
    asked = provider(tmp_path, saying({"auth": AUTH, "cacheDuration": "1m"}), clock=lambda: now[0])
    for number in range(3):
        assert await asked.credentials(image(number)) == ("team", "t")
    now[0] = 61.0
    assert await asked.credentials(image(3)) == ("team", "t")
    assert list(asked._kept) == ["a.ecr.aws/team/app3"]


async def test_a_password_goes_though_nobody_asks_again(tmp_path):
    asked = provider(tmp_path, saying({"auth": AUTH, "cacheDuration": "50ms"}), clock=asyncio.get_running_loop().time)
    assert await asked.credentials(IMAGE) == ("team", "t")
    async with asyncio.timeout(30):
        while asked._kept:  # noqa: ASYNC110 -- nobody is told
            await asyncio.sleep(0.01)
    assert asked._kept == {}


async def test_what_is_kept_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(credentials, "MAX_KEPT", 2)
    asked = provider(tmp_path, saying({"auth": AUTH, "cacheDuration": "1m"}))
    for number in range(4):
        await asked.credentials(image(number))
    assert list(asked._kept) == ["a.ecr.aws/team/app2", "a.ecr.aws/team/app3"]


async def test_one_process_answers_all_who_ask_about_an_image(tmp_path):
    marks = tmp_path / "marks"
    asked = provider(tmp_path, saying({"auth": AUTH, "cacheDuration": "1m"}, f"open({str(marks)!r}, 'a').write('x')"))
    assert await asyncio.gather(*(asked.credentials(IMAGE) for _ in range(5))) == [("team", "t")] * 5
    assert (marks.read_text(), len(asked._locks)) == ("x", 0)


async def test_no_more_processes_run_than_are_allowed(tmp_path, monkeypatch):
    """Each leaves a file while it runs, and says how many there are."""
    monkeypatch.setattr(credentials, "MAX_PROCESSES", 2)
    running, seen = tmp_path / "running", tmp_path / "seen"
    running.mkdir()
    source = (
        f"import os, sys, time, pathlib\nown = pathlib.Path({str(running)!r}, str(os.getpid()))\nown.touch()\n"
        f"time.sleep(0.1)\nopen({str(seen)!r}, 'a').write(str(len(os.listdir({str(running)!r}))))\nown.unlink()\n"
    )
    asked = provider(tmp_path, source)
    await asyncio.gather(*(asked.credentials(image(number)) for number in range(6)))
    said = seen.read_text()
    assert (len(said), set(said) <= {"1", "2"}) == (6, True)


async def test_who_stops_waiting_takes_nobody_with_him(tmp_path):
    """The first one is cancelled while its process runs: that one is killed, and the next asks for itself."""
    asked_of, free = tmp_path / "asked", tmp_path / "free"
    wait = f"import os, time\nopen({str(asked_of)!r}, 'a').close()\nwhile not os.path.exists({str(free)!r}): time.sleep(0.01)"
    asked = provider(tmp_path, saying({"auth": AUTH, "cacheDuration": "1m"}, wait))
    first, second = (asyncio.create_task(asked.credentials(IMAGE)) for _ in range(2))
    async with asyncio.timeout(30):
        while not asked_of.exists():  # noqa: ASYNC110 -- another process makes it
            await asyncio.sleep(0.01)
    first.cancel()
    free.touch()
    assert await second == ("team", "t")
    assert first.cancelled()
