"""A supervised reader costs nothing by living long."""

import asyncio
import gc
import sys

from agent.sources import readerprocess

LOOKS = 40


def given_up_futures():
    gc.collect()
    return sum(1 for item in gc.get_objects() if isinstance(item, asyncio.Future) and item.cancelled())


async def test_looking_after_a_child_leaves_nothing_behind(monkeypatch):
    """asyncio keeps every wait for a child that is given up: at two looks a second that was a MiB an hour."""
    monkeypatch.setattr(readerprocess, "_LOOK_SECONDS", 0.01)
    child = readerprocess.ReaderProcess((sys.executable, "-c", "import sys; sys.stdin.read()"), {})
    child.start()
    try:
        for _ in range(2000):
            if child.pid is not None:
                break
            await asyncio.sleep(0.01)
        before = given_up_futures()
        for _ in range(LOOKS):
            await asyncio.sleep(0.01)
        assert given_up_futures() - before < LOOKS / 4
    finally:
        await child.stop()
    assert child.pid is None
