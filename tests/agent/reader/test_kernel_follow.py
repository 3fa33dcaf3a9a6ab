"""Following the kernel log's file."""

import asyncio
import contextlib
import datetime
import os

from agent.reader import kernel_follow, kernel_log
from muster.model.reading import Known
from tests.agent.reader.world import reason, until


@contextlib.asynccontextmanager
async def following(path):
    log = kernel_log.KernelLog(datetime.datetime(2026, 12, 1, tzinfo=datetime.UTC), lambda record: None)
    follower = kernel_follow.Follower(path, log)
    task = asyncio.get_running_loop().create_task(follower.run())
    try:
        yield follower, log
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _count(log):
    return len(log.records)


async def test_what_is_there_is_read_and_what_is_appended(tmp_path):
    path = tmp_path / "kmsg"
    path.write_bytes(b"3,1,1,-;NVRM: a\n")
    async with following(path) as (follower, log):
        await follower.caught_up(5)
        assert len(log.records) == 1
        with path.open("ab") as file:
            file.write(b"3,2,1,-;NVRM: b\n")
        await until(lambda: _count(log), lambda count: count == 2)
        assert follower.state == Known(True)


async def test_a_log_that_cannot_be_opened_says_why(tmp_path):
    async with following(tmp_path / "nothing") as (follower, log):
        await follower.caught_up(5)
        assert reason(follower.state) == "Unreadable"
        assert log.records == ()


async def test_a_device_gives_a_record_a_read(tmp_path):
    """Anything but a plain file is waited for by the loop; one that closes is shown and opened again."""
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    async with following(path) as (follower, log):
        for number in range(3):
            os.write(writer, b"3,%d,1,-;NVRM: %d\n SUBSYSTEM=pci\n" % (number, number))
            await until(lambda: _count(log), lambda count, least=number + 1: count == least)
        assert follower.state == Known(True)
        os.close(writer)

        async def state():
            return follower.state

        await until(state, lambda found: reason(found) == "Unreadable")
