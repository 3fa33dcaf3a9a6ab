"""`make bench-fault-latency`: from a fault in the driver to a client's view of it at the admitter.

Real admitter, agents and readers, four fake HGX H100. Every sample is taken by one clock, this process's: from just before
the fake driver's state file is replaced until WatchCapacity has delivered the GPU as not serving. The last line is JSON.
Budgets: design.md section 7. Keys: docs/benchmarks.md.

- event: an Xid with the driver's wish for a reset; NVML tells it at once, so the 5 s poll does not matter.
- polled: a GPU that no call can open any more, and no event says so; polled every second so that the benchmark ends.
- hang: a call about a GPU that never returns, at the default poll and deadlines, while each node's age is watched.
"""

import argparse
import asyncio
import contextlib
import functools
import json
import random
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any

from hack import fakenvml
from hack.bench import latency, running
from hack.fakenode import host
from hack.fakenode.fleet import Fleet, NotStarted
from hack.fakenode.node import FakeNode
from muster import client

_NODES, _GPUS = 4, 8
_LONGEST_SECONDS = 175.0
_POLL_SECONDS = 1.0
_NODE_TTL_SECONDS = 15.0
_RESET_WANTED = 1
"""NVML field 230: reset the GPU (agents.md b1)."""
_FALLEN_OFF = 79
_PATIENCE_SECONDS = 20.0
_HANGS = 8
_HANG_STEP_SECONDS = 0.7
"""Eight hangs, so spread, fall on every phase of the 5 s poll."""
_AGE_WATCH_SECONDS = 20.0
"""More than `node_ttl`: a feed that a hang had stopped would have gone stale by then."""

Change = Callable[[fakenvml.State], fakenvml.State]


class Bench:
    """A fleet and the view of it."""

    def __init__(self, fleet: Fleet, muster: client.Client, view: latency.View) -> None:
        self.fleet, self.muster, self.view = fleet, muster, view
        self.nodes = tuple(fleet.nodes.values())
        self.uuids = {node.name: tuple(gpu.uuid for gpu in node.driver.gpus) for node in self.nodes}

    async def marked_after(self, node: FakeNode, gpu: int, fault: Change) -> float:
        """Inject a fault into a GPU that the admitter believes in; return the seconds until it no longer does."""
        uuid = self.uuids[node.name][gpu]
        await self.healthy(node, gpu)
        state = fault(node.driver)
        began = time.monotonic()
        _replace(node, state)
        seen_at = await self.view.until(
            lambda: self.view.is_marked(node.name, uuid), _PATIENCE_SECONDS, f"the fault of GPU {gpu} of {node.name}"
        )
        return seen_at - began

    async def healthy(self, node: FakeNode, gpu: int) -> None:
        """Wait until the admitter believes in the GPU."""
        uuid = self.uuids[node.name][gpu]
        await self.view.until(
            lambda: self.view.is_healthy(node.name, uuid), _PATIENCE_SECONDS, f"GPU {gpu} of {node.name}, healthy"
        )


@contextlib.asynccontextmanager
async def _bench(settings: dict[str, str]) -> AsyncIterator[Bench]:
    with running.fleet(_NODES, settings) as fleet:
        async with client.connect(fleet.address, fleet.client_files) as muster:
            view = latency.View(muster)
            following = asyncio.create_task(view.follow())
            try:
                bench = Bench(fleet, muster, view)
                for node in bench.nodes:
                    for gpu in range(_GPUS):
                        await bench.healthy(node, gpu)
                await asyncio.sleep(3)  # Connecting is over: slices and welcomes make cycles of their own.
                yield bench
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)


def _replace(node: FakeNode, state: fakenvml.State) -> None:
    """Replace the driver's state alone: these faults change nothing else on the host."""
    fakenvml.write(state, host.state_path(node.root))


async def events(bench: Bench, count: int) -> list[float]:
    """Raise Xids one at a time, node after node and GPU after GPU; each is cleared once it was seen."""
    samples = []
    for node, gpu in _alternating(bench.nodes, count):
        samples.append(await bench.marked_after(node, gpu, functools.partial(_with_xid, gpu=gpu)))
        _replace(node, node.driver.with_gpu(gpu, recovery_action=0))
        await asyncio.sleep(random.uniform(0.1, 0.4))  # In no step with any poll.
    return samples


def _with_xid(state: fakenvml.State, gpu: int) -> fakenvml.State:
    return state.with_gpu(gpu, recovery_action=_RESET_WANTED).with_xid(gpu, _FALLEN_OFF)


async def polled(bench: Bench, count: int) -> list[float]:
    """Lose GPUs without an event, on all nodes beside each other, one at a time on each."""

    async def on_node(node: FakeNode) -> list[float]:
        samples = []
        for _, gpu in _alternating((node,), count // _NODES):
            fault = functools.partial(fakenvml.State.with_fault, fn="nvmlDeviceGetUUID", gpu=gpu, error="GPU_IS_LOST")
            samples.append(await bench.marked_after(node, gpu, fault))
            _replace(node, node.driver.without_faults(gpu))
            await asyncio.sleep(random.uniform(0.1, _POLL_SECONDS))
        return samples

    return [sample for samples in await asyncio.gather(*map(on_node, bench.nodes)) for sample in samples]


async def hangs(bench: Bench) -> tuple[list[float], float]:
    """Hang GPU after GPU; return each one's seconds until it was marked, and the greatest age of any node meanwhile."""
    ages = asyncio.create_task(_greatest_age(bench))
    marking = []
    for node, gpu in _alternating(bench.nodes, _HANGS):
        fault = functools.partial(fakenvml.State.with_fault, gpu=gpu, hang=True)
        marking.append(asyncio.create_task(bench.marked_after(node, gpu, fault)))
        await asyncio.sleep(_HANG_STEP_SECONDS)
    return list(await asyncio.gather(*marking)), await ages


async def _greatest_age(bench: Bench) -> float:
    """Watch how long ago each agent was heard; a node that the admitter holds stale ends the benchmark."""
    greatest, end = 0.0, time.monotonic() + _AGE_WATCH_SECONDS
    while time.monotonic() < end:
        for change in await bench.muster.list_capacity(_PATIENCE_SECONDS):
            for name, node in change.nodes.items():
                if node.stale:
                    raise latency.NotSeen(f"the feed of {name}, during a hang: it went stale")
                greatest = max(greatest, node.age_seconds)
        await asyncio.sleep(0.25)
    return greatest


def _alternating(nodes: Iterable[FakeNode], count: int) -> Iterator[tuple[FakeNode, int]]:
    """Yield (node, GPU) so often, every node before the next GPU."""
    everyone = [(node, gpu) for gpu in range(_GPUS) for node in nodes]
    return (everyone[number % len(everyone)] for number in range(count))


async def measure(event_count: int, polled_count: int) -> dict[str, Any]:
    """Run the benchmark once."""
    async with _bench({}) as bench:
        _say(f"{event_count} Xids on {_NODES} nodes")
        by_event = await events(bench, event_count)
        _say(f"{_HANGS} calls that never return; ages are watched for {_AGE_WATCH_SECONDS:g} s")
        by_hang, age = await hangs(bench)
    async with _bench({"--poll-seconds": str(_POLL_SECONDS)}) as bench:
        _say(f"{polled_count} GPUs lost without an event, polled every {_POLL_SECONDS:g} s")
        by_poll = await polled(bench, polled_count)
    return {
        "bench": "fault-latency",
        **running.machine(),
        "event": {**latency.quantiles_ms(by_event), "count": len(by_event), "budget_ms": 250},
        "polled": {
            **latency.quantiles_ms(by_poll),
            "count": len(by_poll),
            "poll_ms": round(_POLL_SECONDS * 1000),
            "budget_ms": round(_POLL_SECONDS * 1000) + 250,
        },
        "hang": {
            "marked_s": round(max(by_hang), 2),
            "p50_s": round(sorted(by_hang)[len(by_hang) // 2], 2),
            "count": len(by_hang),
            "budget_s": 10,
            "max_age_s": round(age, 2),
            "node_ttl_s": _NODE_TTL_SECONDS,
        },
    }


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=running.at_least(1, int), default=100, help="Xids")
    parser.add_argument(
        "--polled", type=running.at_least(_NODES, int), default=100, help="GPUs lost without an event, over all nodes"
    )
    arguments = parser.parse_args()
    try:
        figures = asyncio.run(asyncio.wait_for(measure(arguments.events, arguments.polled), _LONGEST_SECONDS))
    except TimeoutError:
        raise SystemExit(f"not done within {_LONGEST_SECONDS:g} s") from None
    except (latency.NotSeen, NotStarted) as error:
        raise SystemExit(str(error)) from None
    except KeyboardInterrupt:
        raise SystemExit("interrupted; nothing is left running") from None
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
