"""A program judges images before they are hinted."""

import asyncio
import contextlib
import pathlib

import pytest

from admitter.sources import verify


@contextlib.asynccontextmanager
async def judging(argv, monotonic=lambda: 0.0):
    verifier = verify.Verifier(argv, monotonic)
    task = asyncio.create_task(verifier.run())
    try:
        yield verifier
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def a_program(folder, text):
    path = folder / "verify"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


async def lines(path, count):
    async with asyncio.timeout(60):
        while not path.exists() or len(path.read_text().splitlines()) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(("status", "passes"), [(0, True), (1, False)])
async def test_the_exit_status_decides_and_a_name_is_judged_once(tmp_path, status, passes):
    log = tmp_path / "log"
    argv = [a_program(tmp_path, f'echo "$1 $2" >> {log}; exit {status}'), "--strict"]
    async with judging(argv) as verifier:
        assert verifier.passes("r/x@sha256:1") is False, "not judged yet"
        await lines(log, 1)
        assert verifier.passes("r/y@sha256:2") is False
        await lines(log, 2)
        assert verifier.passes("r/x@sha256:1") is passes
        assert log.read_text().splitlines() == ["--strict r/x@sha256:1", "--strict r/y@sha256:2"]


async def test_a_program_that_is_not_there_lets_nothing_pass(tmp_path):
    async with judging([str(tmp_path / "nobody")]) as verifier:
        assert verifier.passes("r/x@sha256:1") is False
        await asyncio.sleep(0.2)
        assert verifier.passes("r/x@sha256:1") is False


async def test_without_a_program_everything_passes():
    async with judging([]) as verifier:
        assert verifier.passes("anything") is True


async def settled(condition):
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_a_program_that_hangs_is_a_no_and_holds_up_no_other_image(tmp_path, monkeypatch):
    monkeypatch.setattr(verify, "SECONDS", 1.0)
    pid = tmp_path / "pid"
    argv = [a_program(tmp_path, f"case $1 in *slow*) echo $$ > {pid}; exec sleep 3600;; esac")]
    async with judging(argv) as verifier:
        assert not verifier.passes("r/slow@sha256:1")
        assert not verifier.passes("r/y@sha256:2")
        assert not verifier.refuses("r/slow@sha256:1"), "it is being judged"
        await settled(lambda: verifier.refuses("r/slow@sha256:1"))
        await settled(lambda: not pathlib.Path(f"/proc/{pid.read_text().strip()}").exists())
        await settled(lambda: verifier.passes("r/y@sha256:2"))


async def test_a_no_is_asked_again_after_a_while_and_not_before(tmp_path):
    now, allowed, log = [0.0], tmp_path / "allowed", tmp_path / "log"
    argv = [a_program(tmp_path, f"echo asked >> {log}; test -e {allowed}")]
    async with judging(argv, lambda: now[0]) as verifier:
        assert not verifier.passes("r/x@sha256:1")
        await settled(lambda: verifier.refuses("r/x@sha256:1"))
        allowed.touch()
        now[0] = verify.AGAIN_SECONDS - 1
        assert not verifier.passes("r/x@sha256:1")
        assert len(verifier._waiting) == 0
        now[0] = verify.AGAIN_SECONDS
        assert not verifier.passes("r/x@sha256:1"), "it is being judged anew"
        assert verifier.refuses("r/x@sha256:1"), "and refused meanwhile"
        await settled(lambda: verifier.passes("r/x@sha256:1"))
        assert log.read_text().splitlines() == ["asked", "asked"]
