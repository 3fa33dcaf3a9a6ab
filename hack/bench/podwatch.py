"""Every pod, and whether it is gone, told as it is and whenever it changes: what a benchmark's oracle and its agents look at.

Invariant: a pod that went while the watch was broken is told gone with the next list. Agents that had missed that held its GPUs
for ever, and gangs that would have fitted waited.
"""

import asyncio
import pathlib
import sys
from collections.abc import Callable

from lightkube.resources import core_v1 as core

from admitter.sources import apiclient, events

AGAIN_SECONDS = 1.0


async def follow(kubeconfig: pathlib.Path, show: Callable[[core.Pod, bool], None], namespace: str = "*") -> None:
    """Show pods until cancelled."""
    api = apiclient.from_kubeconfig(kubeconfig)
    client = api.client(seconds=apiclient.LIST_SECONDS)
    known: dict[str, core.Pod] = {}
    async with api.wire(lambda: None) as wire:
        while True:
            try:
                listed = client.list(core.Pod, namespace=namespace, chunk_size=500)
                fresh = {_uid(pod): pod async for pod in listed}
                for pod in missing(known, fresh):
                    show(pod, True)  # noqa: FBT003
                known = fresh
                # What has ended first: its place may be another's by now, which a list does not tell in their order.
                for pod in sorted(fresh.values(), key=is_open):
                    show(pod, False)  # noqa: FBT003
                async for event in events.follow(wire, core.Pod, str(listed.resourceVersion)):
                    pod = event.item
                    if pod is None or namespace not in ("*", pod.metadata.namespace):
                        continue
                    if event.is_gone:
                        known.pop(_uid(pod), None)
                    else:
                        known[_uid(pod)] = pod
                    show(pod, event.is_gone)
            except apiclient.Failed as error:
                print(f"the watch of pods broke: {error!r}", file=sys.stderr)
                await asyncio.sleep(AGAIN_SECONDS)


def missing(before: dict[str, core.Pod], now: dict[str, core.Pod]) -> list[core.Pod]:
    """Return the pods that are there no more.

    >>> missing({"a": "pod a", "b": "pod b"}, {"b": "pod b"})
    ['pod a']
    """
    return [pod for uid, pod in before.items() if uid not in now]


def is_open(pod: core.Pod) -> bool:
    """Return whether a pod has not come to its end."""
    return pod.status is None or pod.status.phase not in ("Succeeded", "Failed")


def _uid(pod: core.Pod) -> str:
    assert pod.metadata is not None
    return str(pod.metadata.uid)
