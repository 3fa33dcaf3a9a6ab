"""`make bench-release`: how fast pods come from creation to bound on a real API server, under Muster and without it.

One gang of 500 pods first: `release500_s` is from the decision, as the decision log stamps it, until this process's own watch
has seen the last pod bound. Then the shapes 10,000x1, 500x20, 20x500 and 1x10,000, times `--scale`: pods/s from the first
creation to the last pod bound, as kube-scheduler does it alone and with the same pods held by Muster's gate; and what that
cost the API server, by its own counters. API server, scheduler, fake nodes, agents and admitter share this machine's cores.

The scheduler allows itself 50 requests a second by default; `--qps` lifts that. The last line is JSON.
"""

import argparse
import asyncio
import collections
import datetime
import json
import sys
import time
from typing import Any

from lightkube.core import exceptions
from lightkube.models import core_v1, meta_v1
from lightkube.resources import core_v1 as core

from hack.bench import apicost, controlplane, podwatch, running
from hack.bench.controlplane import NAMESPACE, Stage
from hack.cluster import fakekubelet, versions
from muster.model import labels

GPU = "nvidia.com/gpu"
GPUS = 8
RELEASED = 500
SHAPES = ((10_000, 1), (500, 20), (20, 500), (1, 10_000))
"""Gangs x pods (admission.md section 5)."""
AT_ONCE = 32
GIVE_UP_SECONDS = 300.0
_NOT_FOUND = 404


def scaled(scale: float) -> list[tuple[int, int]]:
    """Return the shapes with as many pods as the scale says, in gangs of their size or in one.

    >>> scaled(0.1)
    [(1000, 1), (50, 20), (2, 500), (1, 1000)]
    """
    total = max(RELEASED, round(10_000 * scale))
    return [(max(1, total // size), min(size, total)) for _, size in SHAPES]


class Bench:
    """Pods of one namespace: made, watched until they are bound, and taken away."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self._client = controlplane.client(stage.cluster)
        self.bound: dict[str, float] = {}
        """Name -> when it was seen bound, by the wall clock that the decision log is stamped with."""
        self.present: set[str] = set()

    async def follow(self) -> None:
        """Watch the pods until cancelled."""
        await podwatch.follow(self.stage.cluster.kubeconfig, self._see, NAMESPACE)

    def _see(self, pod: core.Pod, is_gone: bool) -> None:  # noqa: FBT001 -- what an event says
        assert pod.metadata is not None
        name = str(pod.metadata.name)
        if is_gone:
            self.present.discard(name)
            return
        self.present.add(name)
        if pod.spec is not None and pod.spec.nodeName:
            self.bound.setdefault(name, time.time())

    async def play(self, run: str, gangs: int, size: int, *, is_held: bool) -> dict[str, Any]:
        """Make the pods of one shape, wait until all are bound, and take them away again."""
        print(f"{run}: {gangs} x {size}, {'Muster' if is_held else 'kube-scheduler alone'}", file=sys.stderr)
        before = apicost.look(self.stage.cluster)
        began = time.time()
        slots = asyncio.Semaphore(AT_ONCE)

        async def create(gang: int, index: int) -> None:
            async with slots:
                await self._client.create(a_pod(f"{run}-{gang}", f"{run}-{gang}-{index}", size, is_held=is_held))

        await asyncio.gather(*(create(gang, index) for gang in range(gangs) for index in range(size)))
        created = time.time()
        ours = await self._until_bound(f"{run}-", gangs * size)
        cost = apicost.look(self.stage.cluster).since(before)
        last = max(ours.values(), default=began)
        await self._clear()
        return {
            "pods_per_s": round(len(ours) / (last - began), 1) if ours else 0.0,
            "bound": len(ours),
            "created_per_s": round(gangs * size / (created - began), 1),
            "seconds": round(last - began, 2),
            "last_bound_at": last,
            "api": {
                "requests_per_gang": round(cost.requests.total() / gangs, 1),
                "writes_per_gang": round(cost.writes / gangs, 1),
                "pod_patches_per_gang": round(cost.of("pods").get("PATCH", 0) / gangs, 1),
                "events_per_gang": round(sum(cost.of("events").values()) / gangs, 1),
                "watches_open": cost.watches,
            },
        }

    async def _until_bound(self, prefix: str, wanted: int) -> dict[str, float]:
        end = time.monotonic() + GIVE_UP_SECONDS
        while True:
            ours = {name: at for name, at in self.bound.items() if name.startswith(prefix)}
            if len(ours) >= wanted or time.monotonic() > end:
                return ours
            for each in self.stage.admitters.values():
                each.check()
            await asyncio.sleep(0.1)

    async def _clear(self) -> None:
        slots = asyncio.Semaphore(AT_ONCE)

        async def delete(name: str) -> None:
            async with slots:
                try:
                    await self._client.delete(core.Pod, name, namespace=NAMESPACE, grace_period=0)
                except exceptions.ApiError as error:
                    if error.status.code == _NOT_FOUND:
                        self.present.discard(name)

        end = time.monotonic() + GIVE_UP_SECONDS
        while self.present:
            if time.monotonic() > end:
                raise SystemExit(f"{len(self.present)} pods cannot be deleted")
            # What is refused or too late is asked for again: the watch tells what is left.
            await asyncio.gather(*(delete(name) for name in tuple(self.present)), return_exceptions=True)
            await asyncio.sleep(0.5)
        # The agents say so within a moment, and the queue takes back what the pods held.
        await asyncio.sleep(2)

    async def close(self) -> None:
        await self._client.close()


def a_pod(gang: str, name: str, size: int, *, is_held: bool) -> core.Pod:
    """Return a pod of one GPU."""
    request = {GPU: "1"}
    resources = core_v1.ResourceRequirements(requests=request, limits=request)
    container = core_v1.Container(name="main", image="none", resources=resources)
    gates = [core_v1.PodSchedulingGate(name=labels.GANG.full)] if is_held else None
    spec = core_v1.PodSpec(containers=[container], restartPolicy="Never", schedulingGates=gates)
    annotations = {fakekubelet.RUN_SECONDS: "100000"}
    if is_held:
        annotations[labels.GANG_SIZE.full] = str(size)
    marks = {labels.GANG.full: gang} if is_held else {"bench": gang}
    metadata = meta_v1.ObjectMeta(name=name, namespace=NAMESPACE, labels=marks, annotations=annotations)
    return core.Pod(metadata=metadata, spec=spec)


def decided_at(stage: Stage, gang: str) -> float:
    """Return when a gang was leased."""
    for entry in stage.decisions():
        if entry["kind"] == "leased" and entry["gang"] == f"{NAMESPACE}/{gang}":
            return datetime.datetime.fromisoformat(str(entry["at"])).timestamp()
    raise SystemExit(f"{gang} was never leased: {stage.decisions()[-3:]}")


async def _measure(stage: Stage, scale: float) -> dict[str, Any]:
    bench = Bench(stage)
    following = asyncio.create_task(bench.follow())
    figures: dict[str, Any] = {}
    try:
        await bench.play("warm", 1, 8, is_held=True)
        released = await bench.play("release", 1, RELEASED, is_held=True)
        figures["release500_s"] = round(released["last_bound_at"] - decided_at(stage, "release-0"), 2)
        figures["release500"] = released
        shapes: dict[str, Any] = collections.defaultdict(dict)
        for (gangs, size), (full, each) in zip(scaled(scale), SHAPES, strict=True):
            for who, is_held in (("kube_scheduler", False), ("muster", True)):
                run = f"{'m' if is_held else 'k'}{full}x{each}"
                shapes[f"{full}x{each}"][who] = await bench.play(run, gangs, size, is_held=is_held)
            shapes[f"{full}x{each}"]["run_as"] = f"{gangs}x{size}"
        figures["shapes"] = shapes
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await bench.close()
    return figures


def measure(scale: float, qps: int) -> dict[str, Any]:
    """Run the benchmark once, on a cluster of its own."""
    pods = max(RELEASED, round(10_000 * scale))
    nodes = -(-pods // GPUS)
    extra = {"kube-scheduler": [f"--kube-api-qps={qps}", f"--kube-api-burst={2 * qps}"]}
    facts = running.machine()
    with running.scratch("muster-bench-") as folder, controlplane.stage(folder, nodes=nodes, extra=extra) as stage:
        figures = asyncio.run(_measure(stage, scale))
        line = stage.cluster.line
    return {
        "bench": "release",
        **facts,
        "kubernetes": versions.LINES[line].kubernetes,
        "nodes": nodes,
        "scale": scale,
        "kube_api_qps": qps,
        **figures,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=running.at_least(0.001, float), default=0.05, help="of the shapes' 10,000 pods")
    parser.add_argument("--qps", type=int, default=5000, help="requests a second the scheduler allows itself")
    arguments = parser.parse_args()
    print(json.dumps(measure(arguments.scale, arguments.qps)))


if __name__ == "__main__":
    main()
