"""The best place of a gang by trying everything, and how often the engine's own is as good.

An instance is a handful of nodes in racks, with some GPUs and cpu left, and a gang of one to three podsets. The best place
lies in the finest domain that holds the gang and, in it, on the fewest nodes. Nothing here is shared with the engine but the
values: a node's fillings are enumerated, and every set of nodes is tried, smallest first.

Invariant: `best` is exact. An instance small enough to be solved here is no proof for large ones; it finds the places that
a greedy choice misses.
"""

import dataclasses
import functools
import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from admitter.core import admit
from admitter.core import supply as supplies
from admitter.core import table as tables
from admitter.model.decision import Grant, NetworkLevel, Policy
from admitter.model.gang import Gang, GpuRequest, Podset
from admitter.model.nodefacts import POD_SLOTS, NodeFacts
from admitter.model.supply import NodeOffers, Offer
from muster.model import codec

GPU = "nvidia.com/gpu"
RACK = "topology.example.com/rack"
POLICY = Policy(levels=(NetworkLevel(name="rack", label=RACK),))
Score: TypeAlias = tuple[int, int]
"""Level of the domain (0 node, 1 rack, 2 everything), nodes."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    name: str
    rack: str
    gpus: int
    cpu: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    nodes: tuple[Node, ...]
    gang: Gang


def an_instance(rng: random.Random) -> Instance:
    """Return a random instance of up to six nodes and three podsets."""
    nodes = tuple(
        Node(name=f"n{index}", rack=f"r{rng.randrange(3)}", gpus=rng.randrange(9), cpu=rng.randrange(2, 17))
        for index in range(rng.randrange(1, 7))
    )
    podsets = tuple(
        Podset(
            name=f"p{index}",
            count=rng.randrange(1, 6),
            request=GpuRequest(gpus=rng.choice((1, 1, 2, 3, 4, 8))),
            requests=codec.freeze({"cpu": rng.randrange(4)}),
        )
        for index in range(rng.choice((1, 1, 2, 2, 3)))
    )
    return Instance(nodes=nodes, gang=Gang(namespace="team", name="g", request_id="r", podsets=podsets))


def best(instance: Instance) -> Score | None:
    """Return the score of the best place; None: there is none."""
    for level, groups in enumerate(_domains(instance.nodes)):
        sizes = [size for group in groups if (size := _fewest(group, instance.gang)) is not None]
        if sizes:
            return level, min(sizes)
    return None


def found(instance: Instance) -> Score | None:
    """Return the score of the engine's place."""
    plan = admit.plan(instance.gang, _supply(instance.nodes), POLICY)
    if not isinstance(plan, Grant):
        return None
    names = {place.node for place in plan.placements}
    racks = {node.rack for node in instance.nodes if node.name in names}
    level = 0 if len(names) == 1 else 1 if len(racks) == 1 else 2
    return level, len(names)


def compare(instances: int, seed: int) -> dict[str, Any]:
    """Return how often the engine's answer is the best one, and how often it is at least the right one."""
    rng = random.Random(seed)
    scores = [(best(instance), found(instance)) for instance in (an_instance(rng) for _ in range(instances))]
    fits = [(exact, engine) for exact, engine in scores if exact is not None]
    return {
        "optimal_share": round(sum(exact == engine for exact, engine in scores) / len(scores), 4),
        "feasible_share": round(sum(engine is not None for _, engine in fits) / max(1, len(fits)), 4),
        "optimal_of_feasible_share": round(sum(exact == engine for exact, engine in fits) / max(1, len(fits)), 4),
        "instances": len(scores),
        "instances_that_fit": len(fits),
    }


def _domains(nodes: Sequence[Node]) -> Iterator[list[tuple[Node, ...]]]:
    yield [(node,) for node in nodes]
    racks = sorted({node.rack for node in nodes})
    yield [tuple(node for node in nodes if node.rack == rack) for rack in racks]
    yield [tuple(nodes)]


def _fewest(nodes: Sequence[Node], gang: Gang) -> int | None:
    """Return the size of the smallest set of the nodes that holds the gang."""
    for size in range(1, len(nodes) + 1):
        if any(_holds(chosen, gang) for chosen in itertools.combinations(nodes, size)):
            return size
    return None


def _holds(nodes: Sequence[Node], gang: Gang) -> bool:
    @functools.cache
    def rest(position: int, left: tuple[int, ...]) -> bool:
        if not any(left):
            return True
        if position == len(nodes):
            return False
        return any(
            rest(position + 1, tuple(map(int.__sub__, left, filling)))
            for filling in _fillings(nodes[position], gang.podsets, left)
        )

    return rest(0, tuple(podset.count for podset in gang.podsets))


def _fillings(node: Node, podsets: Sequence[Podset], left: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for filling in itertools.product(*(range(count + 1) for count in left)):
        gpus = sum(pods * podset.units_per_pod for pods, podset in zip(filling, podsets, strict=True))
        cpu = sum(pods * podset.requests["cpu"] for pods, podset in zip(filling, podsets, strict=True))
        if gpus <= node.gpus and cpu <= node.cpu:
            yield filling


def _supply(nodes: Sequence[Node]) -> supplies.Supply:
    laid = {node.name: _offers(node) for node in nodes}
    table = tables.of_nodes(laid, has_facts=True, is_ideal=False)
    return supplies.Supply(version=1, nodes=codec.freeze(laid), table=table, start=table)


def _offers(node: Node) -> NodeOffers:
    facts = NodeFacts(labels={RACK: node.rack}, allocatable={"cpu": node.cpu, POD_SLOTS: 110})
    offer = Offer(resource=GPU, strict=node.gpus, own=node.gpus)
    return NodeOffers(node=node.name, offers={GPU: offer}, rest=facts.allocatable, facts=facts)
