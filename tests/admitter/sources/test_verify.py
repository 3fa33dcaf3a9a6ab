"""A program judges images before they are hinted."""

import asyncio
import contextlib

import pytest

from admitter.sources import verify


@contextlib.asynccontextmanager
async def judging(argv):
    verifier = verify.Verifier(argv, lambda: 0.0)
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
