"""A call that hangs keeps neither its layer's other calls waiting nor the process from ending."""

import asyncio
import subprocess
import sys
import threading

import pytest

from agent.warmer.lazythread import LayerThread


async def test_what_a_call_returns_or_raises():
    thread = LayerThread()
    assert await thread.run(lambda: 7, 30) == 7
    with pytest.raises(ZeroDivisionError):
        await thread.run(lambda: 1 // 0, 30)
    assert await thread.run(lambda: 8, 30) == 8


async def test_while_one_hangs_no_further_one_begins():
    thread, release, begun = LayerThread(), threading.Event(), []
    with pytest.raises(TimeoutError):
        await thread.run(lambda: release.wait(30), 0.01)
    with pytest.raises(TimeoutError):
        await thread.run(lambda: begun.append(1), 30)
    assert begun == []
    release.set()
    async with asyncio.timeout(30):
        while True:
            try:
                assert await thread.run(lambda: 9, 30) == 9
                break
            except TimeoutError:
                await asyncio.sleep(0.01)


async def test_one_that_is_cancelled_counts_as_running():
    thread, release = LayerThread(), threading.Event()
    task = asyncio.create_task(thread.run(lambda: release.wait(30), 30))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    with pytest.raises(TimeoutError):
        await thread.run(lambda: 1, 30)
    release.set()


def test_a_hung_call_does_not_keep_the_process():
    program = """
import asyncio, threading
from agent.warmer.lazythread import LayerThread

async def main():
    try:
        await LayerThread().run(threading.Event().wait, 0.01)
    except TimeoutError:
        print("ends")

asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert (ended.stdout, ended.stderr) == ("ends\n", "")
