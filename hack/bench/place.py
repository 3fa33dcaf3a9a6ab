"""`make bench-place`: how long one decision takes at 5,000 nodes, and how good its answers are.

The measured thing is `Book.decide`, the whole decision pass: what agents and clients have said since the last one, the
layout of the nodes that changed, every gang of the queue, the lease. The fleet is values (placefleet.py); what it does
between two passes is not counted. `optimal_share` holds the same engine against an exact solver (exactplace.py) on small
random instances. The last line is JSON. Budgets: design.md section 7, 20 ms (50 under the feed's load) and 0.99.
"""

import argparse
import dataclasses
import gc
import json
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from admitter.core.book import Book
from admitter.model.decision import NetworkLevel, Policy
from admitter.model.gang import Gang, Member, Podset, ResourceRequest
from admitter.model.queue import QueuePolicy
from admitter.model.record import GangState, Terms
from hack.bench import exactplace, placefleet
from hack.bench.latency import quantiles_ms

POLICY = Policy(
    levels=(NetworkLevel(name="rack", label=placefleet.RACK), NetworkLevel(name="block", label=placefleet.BLOCK)),
    queue=QueuePolicy(reserved_share=1.0),
)
_DELTAS_BETWEEN_PASSES = 100
"""5,000 a second, and a pass every 20 ms."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """Seconds of one pass."""

    wall: float
    cpu: float
    """Of this thread: what is left of `wall` when nobody else wants the core."""


class World:
    """A book and the fleet that it decides over."""

    def __init__(self, nodes: int, seed: int) -> None:
        self.rng = random.Random(seed)
        self.fleet = placefleet.Fleet(nodes)
        self.book = Book(Terms(term=1, prefix="t1-bench", opens_at=0.0), POLICY)
        self.now = 1.0
        self._number = 0
        self.running: list[str] = []

    def ask(self, gang: Gang | None = None) -> Gang:
        """Let one more gang ask."""
        self._number += 1
        asked = placefleet.a_gang(self.rng, self._number) if gang is None else gang
        self.book.open(asked, "bench", self.now)
        return asked

    def decide(self) -> Took:
        """Take a pass; return what it took."""
        view = self.fleet.view(self.now)
        began, busy = time.perf_counter(), time.thread_time()
        self.book.decide(view, self.now)
        return Took(wall=time.perf_counter() - began, cpu=time.thread_time() - busy)

    def settle(self) -> int:
        """Let every gang that has a lease start; return how many did."""
        leased = [record for record in self.book.records.values() if record.state is GangState.LEASED]
        for record in leased:
            assert record.lease is not None
            for podset, uid, node in self.fleet.start(record.gang, record.lease.placements):
                self.book.join(record.key, Member(podset=podset, uid=uid, node=node), self.now)
            self.running.append(record.key)
        self.book.events.clear()
        return len(leased)

    def finish(self, key: str) -> None:
        """Let a running gang end."""
        record = self.book.records[key]
        assert record.lease is not None
        self.fleet.end(record.gang, record.lease.placements)
        self.book.end(key, "done", self.now)
        del self.book.records[key]

    def finish_some(self, share: float) -> None:
        """Let gangs end until no more than a share of the fleet is used."""
        most = int(share * len(self.fleet.names) * self.fleet.gpus)
        used = self.fleet.used
        while used > most and self.running:
            key = self.running.pop(self.rng.randrange(len(self.running)))
            record = self.book.records[key]
            assert record.lease is not None
            used -= sum(place.units for place in record.lease.placements)
            self.finish(key)

    def withdraw_waiting(self) -> None:
        """Let every gang that waits go away."""
        for record in self.book.waiting():
            self.book.end(record.key, "withdrawn", self.now)
            del self.book.records[record.key]

    def flap(self, count: int) -> None:
        """Change some nodes, as a feed's deltas do."""
        for name in self.rng.sample(self.fleet.names, min(count, len(self.fleet.names))):
            self.fleet.flap(name)


_NOBODY = Gang(
    namespace="bench",
    name="nobody",
    request_id="r",
    podsets=(Podset(name="main", count=1, request=ResourceRequest(name="example.com/none", quantity=1)),),
)
"""Fits nowhere, and makes a pass lay out what has changed."""


def fill(world: World, share: float) -> None:
    """Let gangs come until a share of the fleet is used."""
    while world.fleet.used < share * len(world.fleet.names) * world.fleet.gpus:
        for _ in range(20):
            world.ask()
        world.decide()
        world.settle()
        world.withdraw_waiting()


def placing(world: World, gangs: int, changed: int) -> Iterator[tuple[Took, bool]]:
    """Yield the time of each pass that finds one new gang, and whether it got a place."""
    for _ in range(gangs):
        world.now += 0.5
        world.flap(changed)
        world.ask()
        took = world.decide()
        placed = world.settle()
        world.withdraw_waiting()
        world.finish_some(0.85)
        # Starts and ends are other passes' work.
        world.ask(_NOBODY)
        world.decide()
        world.withdraw_waiting()
        yield took, placed == 1


def reserved(world: World, passes: int, changed: int) -> Iterator[Took]:
    """Yield the time of passes in which one large gang waits, with a place kept for it, while nodes change."""
    gang = placefleet.a_gang(world.rng, 2_000_000)
    free = len(world.fleet.names) - world.fleet.used // world.fleet.gpus
    world.ask(placefleet.enlarged(gang, gang.podsets[-1], free + len(world.fleet.names) // 50))
    for _ in range(passes):
        world.now += 0.5
        world.flap(changed)
        yield world.decide()
    world.withdraw_waiting()


def blocked(world: World, passes: int, waiting: int, changed: int) -> Iterator[Took]:
    """Yield the time of passes over a queue of which nothing fits, while nodes change."""
    size = len(world.fleet.names)
    for number in range(waiting):
        gang = placefleet.a_gang(world.rng, 1_000_000 + number)
        podset = gang.podsets[-1]
        large = placefleet.enlarged(gang, podset, size - number)
        world.ask(large)
    for _ in range(passes):
        world.now += 0.5
        world.flap(changed)
        yield world.decide()
    world.withdraw_waiting()


def measure(nodes: int, gangs: int, instances: int, seed: int) -> dict[str, Any]:
    """Run the benchmark once."""
    world = World(nodes, seed)
    print(f"filling {nodes} nodes", file=sys.stderr)
    fill(world, 0.8)
    # As in the admitter's process: collector.relax keeps what is there out of the collector's sight.
    gc.collect()
    gc.freeze()
    alone = list(placing(world, gangs, changed=1))
    loaded = list(placing(world, gangs, changed=_DELTAS_BETWEEN_PASSES))
    kept = list(reserved(world, max(20, gangs // 5), changed=20))
    waits = list(blocked(world, max(20, gangs // 5), waiting=20, changed=20))
    print(f"solving {instances} small instances exactly", file=sys.stderr)
    return {
        "bench": "place",
        "hardware": "fake",
        "cpus": len(os.sched_getaffinity(0)),
        "load_1m": round(os.getloadavg()[0], 1),
        "nodes": nodes,
        "gpus": nodes * world.fleet.gpus,
        "running": len(world.running),
        "place": {**spread([took for took, _ in alone]), "placed": sum(placed for _, placed in alone)},
        "loaded": {**spread([took for took, _ in loaded]), "changed_nodes": _DELTAS_BETWEEN_PASSES},
        "reserved": {**spread(kept), "changed_nodes": 20},
        "blocked": {**spread(waits), "waiting": 20},
        **exactplace.compare(instances, seed),
    }


def spread(times: Sequence[Took]) -> dict[str, float]:
    """Return what is said of a list of passes."""
    cpu = {f"cpu_{name}": value for name, value in quantiles_ms([took.cpu for took in times]).items()}
    return {**quantiles_ms([took.wall for took in times]), **cpu, "count": len(times)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--gangs", type=int, default=400)
    parser.add_argument("--instances", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print(json.dumps(measure(arguments.nodes, arguments.gangs, arguments.instances, arguments.seed)))


if __name__ == "__main__":
    main()
