"""A look at lazily mounted layers makes snapshots come and go: events that are no news to whoever made them."""

import asyncio

import pytest

from agent.core import warmlist, warmyield
from agent.warmer import command
from agent.warmer.client import Event
from agent.warmer.config import WarmerConfig


class Runtime:
    """Tells events, and then nothing more."""

    def __init__(self, *events):
        self.told = events
        self.is_done = asyncio.Event()

    async def events(self):
        for event in self.told:
            yield event
        self.is_done.set()
        await asyncio.Event().wait()


@pytest.mark.parametrize("topic", ["/snapshot/prepare", "/snapshot/remove"])
@pytest.mark.parametrize(("key", "is_news"), [(f"{warmyield.OWN_PREFIX}view-1", False), ("2f5a0c", True)])
async def test_our_own_snapshots_begin_no_look_at_everything(topic, key, is_news, tmp_path):
    runtime = Runtime(Event(topic=topic, subject=key))
    listed = warmlist.WarmList(wanted=(), budget_bytes=1)
    engine = command.wired(WarmerConfig(registry_hosts_dir=tmp_path), listed, runtime)
    engine._wake.clear()
    task = asyncio.create_task(engine._follow())
    await asyncio.wait_for(runtime.is_done.wait(), 30)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert engine._wake.is_set() == is_news
