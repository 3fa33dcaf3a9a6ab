"""`make bench-failover`: the leader killed again and again, under load, on a real API server.

Two admitters stand for one Lease. Gangs of three sizes are submitted as fast as places come free; every pod runs for a few
seconds and ends. Each turn waits until the leader is leasing, kills it with SIGKILL, starts it anew, and takes the time
until a pod is let go again (`gap_s`): that is the Lease's time, the new leader's lists, and its first decision.

Meanwhile an oracle looks at the pods (oracle.py): no GPU is promised twice (`double_admissions`), and a gang of which one
pod was let go is let go whole, and every gang has run in the end (`lost_gangs`). The last line is JSON.
"""

import argparse
import asyncio
import contextlib
import json
import random
import signal
import statistics
import sys
import time
from typing import Any

from lightkube.models import meta_v1
from lightkube.resources import coordination_v1, core_v1

from admitter.sources import apiclient
from hack.bench import controlplane, oracle, podwatch, release, running
from hack.bench.controlplane import NAMESPACE, SYSTEM, Stage
from hack.cluster import fakekubelet, versions

NODES, GPUS = 8, 8
SIZES = (4, 12, 24)
"""Pods of one GPU each; five or so gangs fill the nodes."""
AT_ONCE = 6
"""Gangs submitted and not done: more than fit, so that somebody always waits."""
RUN_SECONDS = (1, 4)
LEASE_SECONDS = 3.0
"""Of the Lease, by default: a fifth of the program's own. A machine with more work than cores cannot renew one so short."""
GRACE_SECONDS = 3.0
"""After a term's begin: longer than an agent here is away (kubefeed.REDIAL_SECONDS)."""
LEASE_GRACE_SECONDS = 12.0
"""How long a gang's lease outlives its client: of a gang that ended while nobody led, that is how long its GPUs are held."""
SENT_SECONDS = 1.0
"""What is seen so soon after the kill the dead one had sent: nobody leads before its Lease has run out."""
TURN_SECONDS = 60.0
END_SECONDS = 120.0


class Load:
    """Gangs that come, run and go."""

    def __init__(self, stage: Stage, judge: oracle.Oracle, dice: random.Random) -> None:
        self._stage, self.oracle, self._dice = stage, judge, dice
        self.client = controlplane.client(stage.cluster)
        self._open: set[str] = set()
        self._names: dict[str, set[str]] = {}
        self.is_over = False
        """No more gangs are submitted."""

    async def follow(self) -> None:
        """Show the oracle every pod, until cancelled."""
        await podwatch.follow(self._stage.cluster.kubeconfig, self._show, NAMESPACE)

    def _show(self, pod: core_v1.Pod, is_gone: bool) -> None:  # noqa: FBT001 -- what an event says
        assert pod.metadata is not None
        uid, status = str(pod.metadata.uid), pod.status
        if is_gone:
            self.oracle.gone(uid)
            return
        reason = (status.reason or "Failed") if status is not None and status.phase == "Failed" else ""
        self.oracle.see(uid, oracle.sight(pod), reason=reason, now=time.monotonic())

    async def submit(self) -> None:
        """Keep gangs coming until it is over, and take away those that are done."""
        number = 0
        while not (self.is_over and not self._open):
            for gang in tuple(self._open):
                if self.oracle.is_done(gang):
                    self._open.discard(gang)
                    for name in self._names.pop(gang):
                        with contextlib.suppress(*apiclient.Failed):
                            await self.client.delete(core_v1.Pod, name, namespace=NAMESPACE, grace_period=0)
            if not self.is_over and len(self._open) < AT_ONCE:
                number += 1
                await self._create(f"gang-{number}", self._dice.choice(SIZES))
            else:
                await asyncio.sleep(0.1)

    async def _create(self, gang: str, size: int) -> None:
        self.oracle.sizes[gang] = size
        self._open.add(gang)
        self._names[gang] = {f"{gang}-{index}" for index in range(size)}
        seconds = self._dice.randint(*RUN_SECONDS)
        for name in self._names[gang]:
            pod = release.a_pod(gang, name, size, is_held=True)
            assert isinstance(pod.metadata, meta_v1.ObjectMeta)
            pod.metadata.annotations = {**(pod.metadata.annotations or {}), fakekubelet.RUN_SECONDS: str(seconds)}
            await self.client.create(pod)

    async def leader(self) -> str:
        """Return the name of the admitter that the Lease names; empty: nobody."""
        try:
            lease = await self.client.get(coordination_v1.Lease, "muster-admitter", namespace=SYSTEM)
        except apiclient.Failed:
            return ""
        holder = lease.spec.holderIdentity if lease.spec is not None else ""
        return (holder or "").partition("_")[0]


async def _wait(condition: Any, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(0.02)
    return True


async def _kill(stage: Stage, load: Load, dice: random.Random) -> float | None:
    """Kill whoever leads a moment after it has let a pod go; return the time until a pod is let go again."""
    let_go = load.oracle.let_go
    before = len(let_go)
    await _wait(lambda: len(let_go) > before, TURN_SECONDS)
    await asyncio.sleep(dice.uniform(0, 0.3))
    name = await load.leader()
    if name not in stage.admitters:
        return None
    stage.admitters[name].end(signal.SIGKILL)
    killed_at = time.monotonic()
    stage.admitters[name].start()
    if not await _wait(lambda: next_after(let_go, killed_at) is not None, TURN_SECONDS):
        return None
    let_go_at = next_after(let_go, killed_at)
    assert let_go_at is not None
    return let_go_at - killed_at


def next_after(let_go: list[float], killed_at: float) -> float | None:
    """Return when the next leader first let a pod go.

    >>> next_after([9.0, 10.2, 14.5, 15.0], killed_at=10.0)
    14.5
    """
    return next((at for at in let_go if at > killed_at + SENT_SECONDS), None)


async def _measure(stage: Stage, kills: int, seconds: float, seed: int) -> dict[str, Any]:
    dice = random.Random(seed)
    load = Load(stage, oracle.Oracle(GPUS), dice)
    tasks = [asyncio.create_task(load.follow()), asyncio.create_task(load.submit())]
    gaps: list[float] = []
    missed, began = 0, time.monotonic()
    try:
        for turn in range(kills):
            if time.monotonic() - began > seconds:
                print(f"out of time after {turn} kills", file=sys.stderr)
                break
            gap = await _kill(stage, load, dice)
            print(f"kill {turn + 1}: {'nobody let a pod go' if gap is None else f'{gap:.1f} s'}", file=sys.stderr)
            missed += gap is None
            gaps += [gap] if gap is not None else []
        load.is_over = True
        await _wait(tasks[1].done, END_SECONDS)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await load.client.close()
    lost = load.oracle.lost()
    for line in (*load.oracle.double, *lost):
        print(line, file=sys.stderr)
    return {
        "kills": len(gaps) + missed,
        "kills_without_gap": missed,
        "gangs": len(load.oracle.sizes),
        "pods": sum(load.oracle.sizes.values()),
        "double_admissions": len(load.oracle.double),
        "let_go_without_a_pin": load.oracle.unpinned,
        "lost_gangs": len(lost),
        "gap_s": _quantiles(gaps),
        "seconds": round(time.monotonic() - began),
    }


def _quantiles(values: list[float]) -> dict[str, float]:
    """Return median, 99th percentile and maximum.

    >>> _quantiles([1.0, 2.0, 3.0])
    {'p50': 2.0, 'p99': 3.0, 'max': 3.0}
    """
    if not values:
        return {}
    ordered = sorted(values)
    return {
        "p50": round(statistics.median(ordered), 2),
        "p99": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))], 2),
        "max": round(ordered[-1], 2),
    }


def measure(kills: int, seconds: float, seed: int, lease_seconds: float) -> dict[str, Any]:
    """Run the benchmark once, on a cluster of its own."""
    settings = {
        "lease_seconds": lease_seconds,
        "new_term_grace_seconds": GRACE_SECONDS,
        "lease_grace_seconds": LEASE_GRACE_SECONDS,
    }
    flags = {f"--{name.replace('_', '-')}": str(value) for name, value in settings.items()}
    facts = running.machine()
    with (
        running.scratch("muster-bench-") as folder,
        controlplane.stage(folder, nodes=NODES, admitters=2, flags=flags) as stage,
    ):
        figures = asyncio.run(_measure(stage, kills, seconds, seed))
        line = stage.cluster.line
    kubernetes = versions.LINES[line].kubernetes
    return {"bench": "failover", **facts, "kubernetes": kubernetes, "nodes": NODES, **settings, "seed": seed, **figures}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument(
        "--seconds", type=running.at_least(1, float), default=480.0, help="no more kills after this time"
    )
    parser.add_argument("--lease-seconds", type=running.at_least(1, float), default=LEASE_SECONDS)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print(json.dumps(measure(arguments.kills, arguments.seconds, arguments.seed, arguments.lease_seconds)))


if __name__ == "__main__":
    main()
