"""Where the gangs at the head of the queue will likely be: for hints of what to have ready.

In: the queue's order, its scene, what is kept and held. Out: for each of the first gangs its likely nodes and spares.

A gang that is held has its place; the first blocked one has its reservation. For others it is where they would go once
enough holders have ended, in the order in which they say they end, after the gangs before them. It is a guess: wrong ones
cost bytes, and are taken back as the plan changes.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from admitter.core import domains, fit, order, readiness, returns, shadow
from admitter.core.hints import Likely
from admitter.core.starting import Starts
from admitter.model.decision import Policy
from admitter.model.gang import Gang
from admitter.model.queue import Ask, QueueState

Places = Mapping[str, tuple[Gang, tuple[str, ...]]]


def of(
    asks: Sequence[Ask],
    scene: order.Scene,
    state: QueueState,
    held: Places,
    policy: Policy,
    memory: order.Memory,
) -> tuple[Likely, ...]:
    """Return the likely nodes of the first gangs that have images, in the queue's order."""
    limits, found = policy.images, []
    waiting = [ask for ask in order.queue(asks, policy, scene.now) if readiness.names(ask.gang)]
    future = returns.future(scene.supply, scene.holdings, policy, scene.now, memory.returns)
    for ask in waiting[: limits.hinted_gangs]:
        gang = ask.gang
        if gang.full_name in held:
            nodes = held[gang.full_name][1]
        elif state.reservation is not None and state.reservation.gang == gang.full_name:
            nodes = tuple(sorted({place.node for place in state.reservation.placements}))
        elif domains.unknown(gang, policy):
            continue
        else:
            kept = shadow.reserve(gang, future, None, policy, scene.now, scene.now - ask.asked_at)
            if kept is None:
                continue
            nodes = tuple(sorted({place.node for place in kept.placements}))
            future = future.of(future.supply.less(gang, kept.placements))
        found.append(Likely(gang=gang, nodes=(*nodes, *_spares(gang, nodes, scene, policy))))
    return tuple(found)


def _spares(gang: Gang, nodes: Sequence[str], scene: order.Scene, policy: Policy) -> tuple[str, ...]:
    """Return nodes beside the likely ones that could take a pod of the gang were they idle, quickest to warm first."""
    if not policy.images.spares:
        return ()
    ideal, podset = scene.ideal, gang.podsets[0]
    asked = fit.question(gang, podset, policy.gpu_resource, domains.EVERYTHING)
    rows = np.flatnonzero(fit.rooms(asked, ideal).pods > 0)
    others = [name for row in rows.tolist() if (name := ideal.table.names[row]) not in nodes]
    if scene.starts is not None:
        seconds = _seconds(scene.starts, gang)
        others.sort(key=lambda name: (seconds.get(name, math.inf), name))
    return tuple(others[: policy.images.spares])


def _seconds(starts: Starts, gang: Gang) -> dict[str, float]:
    """Return how long the slowest podset takes, on the nodes that have a warmer."""
    slowest: dict[str, float] = {}
    for content in dict.fromkeys(podset.content for podset in gang.podsets):
        for node, start in (starts.everywhere(gang.namespace, content) or {}).items():
            slowest[node] = max(slowest.get(node, 0.0), start.seconds)
    return slowest
