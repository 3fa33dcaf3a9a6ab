"""Wait for what the admitter's view shows, and say when it did.

In: muster.client's WatchCapacity. Out: the moment, by this process's monotonic clock, at which a message arrived whose
state meets a condition.

Invariant: a state that was there before the wait began is never counted as an answer to it: callers wait for the GPU to
be healthy first, and `NotSeen` ends the benchmark rather than leaving a sample out.
"""

import asyncio
import dataclasses
import math
import time
from collections.abc import Callable, Sequence

from muster import client
from muster.model.admission import NodeCapacity
from muster.model.report import DeviceState


class NotSeen(RuntimeError):
    """The view did not show it within the time."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Wait:
    condition: Callable[[], bool]
    seen_at: asyncio.Future[float]


class View:
    """Every node as the admitter tells it. Belongs to one event loop."""

    def __init__(self, muster: client.Client) -> None:
        self._muster = muster
        self._nodes: dict[str, NodeCapacity] = {}
        self._waits: list[_Wait] = []

    async def follow(self) -> None:
        """Keep the view up to date until cancelled."""
        async for change in self._muster.watch_capacity():
            arrived_at = time.monotonic()
            self._nodes.update(change.nodes)
            for wait in tuple(self._waits):
                if not wait.seen_at.done() and wait.condition():
                    wait.seen_at.set_result(arrived_at)

    async def until(self, condition: Callable[[], bool], seconds: float, what: str) -> float:
        """Return when the message arrived that made the condition true, or now if it holds already."""
        if condition():
            return time.monotonic()
        wait = _Wait(condition, asyncio.get_running_loop().create_future())
        self._waits.append(wait)
        try:
            async with asyncio.timeout(seconds):
                return await wait.seen_at
        except TimeoutError:
            raise NotSeen(f"not in the admitter's view within {seconds:g} s: {what}") from None
        finally:
            self._waits.remove(wait)

    def is_healthy(self, node: str, uuid: str) -> bool:
        """The admitter is told that the GPU serves."""
        return self._state(node, uuid) is DeviceState.HEALTHY

    def is_marked(self, node: str, uuid: str) -> bool:
        """The admitter is told of the GPU, and that it does not serve."""
        return self._state(node, uuid) not in (None, DeviceState.HEALTHY)

    def _state(self, node: str, uuid: str) -> DeviceState | None:
        known = self._nodes.get(node)
        states = {device.uuid: device.state for device in known.report.devices} if known is not None else {}
        return states.get(uuid)


def quantiles_ms(seconds: Sequence[float]) -> dict[str, float]:
    """Return p50, p99 and max in milliseconds; a quantile is a value that was measured (nearest rank).

    >>> quantiles_ms([0.001, 0.002, 0.003])
    {'p50_ms': 2.0, 'p99_ms': 3.0, 'max_ms': 3.0}
    """
    ranked = sorted(seconds)
    p50, p99 = (ranked[math.ceil(share * len(ranked)) - 1] for share in (0.50, 0.99))
    return {name: round(value * 1000, 1) for name, value in (("p50_ms", p50), ("p99_ms", p99), ("max_ms", ranked[-1]))}
