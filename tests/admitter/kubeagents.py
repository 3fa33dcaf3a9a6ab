"""Agents that tell the truth about the fake nodes of a cluster: eight GPUs each, held by the pods that run there."""

import asyncio
import contextlib

from lightkube.resources import core_v1 as core

GPUS = 8
GPU = "nvidia.com/gpu"


def units(pod):
    """GPUs that a pod asks for."""
    return sum(int((each.resources.requests or {}).get(GPU, 0)) for each in pod.spec.containers if each.resources)


@contextlib.asynccontextmanager
async def truthful(town, address, client, nodes):
    """Feed these nodes' truth, renewed several times a second, until the end of the block."""
    async with contextlib.AsyncExitStack() as stack:
        feeders = {name: await stack.enter_async_context(town.node(address, name)) for name in nodes}
        following = asyncio.create_task(_follow(feeders, client))
        try:
            yield feeders
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


async def _follow(feeders, client):
    told = {}
    while True:
        pods = await asyncio.to_thread(lambda: list(client.list(core.Pod, namespace="*")))
        for name, feeder in feeders.items():
            held = tuple(
                (pod.metadata.uid, units(pod))
                for pod in pods
                if pod.spec.nodeName == name and pod.status.phase == "Running" and units(pod)
            )
            state = held, str(feeder.leases), feeder.resyncs
            if told.get(name) != state:
                told[name] = state
                free = max(0, GPUS - sum(count for _, count in held))
                await feeder.say(free, counted=held, leases=feeder.leases)
        await asyncio.sleep(0.2)
