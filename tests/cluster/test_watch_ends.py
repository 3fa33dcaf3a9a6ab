"""Watches that end within seconds, on a real API server, a bookmark before each end: nothing breaks and nothing is missed."""

import asyncio

import pytest
from lightkube.models import meta_v1
from lightkube.resources import batch_v1, resource_v1
from lightkube.resources import core_v1 as core
from structlog.testing import capture_logs

from admitter.sources import apiclient, events
from admitter.sources.cluster import ClusterWatch
from admitter.sources.workloads import WorkloadWatch
from hack.cluster import grants
from muster.clock import SystemClock
from tests.admitter.kubetown import until

KINDS = (core.Node, core.Pod, core.Namespace, resource_v1.ResourceSlice, resource_v1.DeviceClass, batch_v1.Job)


@pytest.fixture(autouse=True)
def short_streams(monkeypatch):
    """The API server sends a bookmark two seconds before the end that it was asked for."""
    monkeypatch.setattr(events, "STREAM_SECONDS", (5, 8))


async def a_bookmark(api, resource):
    """Return the version that the first bookmark of a kind brings."""
    async with api.wire(lambda: None) as wire:
        async for event in events.follow(wire, resource, "0"):
            if event.item is None:
                return event.version
    raise AssertionError(f"a watch of {resource.__name__} ended without a bookmark")


async def test_watches_outlive_their_ends_and_bookmarks(cluster):
    api = apiclient.from_kubeconfig(cluster.kubeconfig)
    client = grants.client(cluster.kubeconfig)
    clock = SystemClock()
    watched = ClusterWatch(api, clock, agents=frozenset)
    above = WorkloadWatch(api, clock.monotonic)
    with capture_logs() as logs:
        tasks = [asyncio.create_task(watched.watch(lambda *_: None)), asyncio.create_task(above.run())]
        try:
            await until(lambda: watched.is_synced and above.is_synced and not watched.problems, "watches that stand")
            opened = api.requests["WATCH"]
            # Every kind's bookmark is understood, and every watch has ended and stands again.
            versions = await asyncio.gather(*(a_bookmark(api, kind) for kind in KINDS))
            await until(lambda: api.requests["WATCH"] >= opened + 3 * len(KINDS), "watches that ended")
            client.create(
                core.Namespace(metadata=meta_v1.ObjectMeta(name="late", labels={"muster.dev/managed": "true"}))
            )
            await until(lambda: "late" in above.workloads().managed, "what happened after many ends")
            client.delete(core.Namespace, "late")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            client.close()
    assert all(int(version) > 0 for version in versions)
    assert not [entry for entry in logs if entry["event"] == "watch broke" and "does not serve" not in entry["problem"]]
    assert len([entry for entry in logs if entry["event"] == "listed" and entry["resource"] == "pods"]) == 1
