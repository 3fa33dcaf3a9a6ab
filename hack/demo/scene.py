"""What the story's steps work with: the fleet, the admitter's view as it changes, and the gang that is asked for.

In: a Fleet that runs. Out: `Scene`, with waits that are bounded and never raise: a step that waits in vain reports what
it saw instead.

The gang is asked for through muster.client, as a job submitter would. What a cluster would do with a lease (bind the pods,
start them) is done here on the fake kubelets.
"""

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Callable

from hack.fakenode.fleet import Fleet
from hack.fakenode.node import GPU_RESOURCE
from muster import client
from muster.model.admission import Ended, Gang, Leased, NodeCapacity, Podset, Started, State, Waiting
from muster.model.reading import Known, Unknown
from muster.model.report import ResourceReport

NAMESPACE, GANG = "team-a", "llm-24"
PODS, UNITS = 3, 8


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One claim of the story and what came of it."""

    name: str
    expected: str
    seen: str
    ok: bool


class Scene:
    """The fleet as the admitter sees it, and one gang."""

    def __init__(self, fleet: Fleet, muster: client.Client) -> None:
        self.fleet = fleet
        self._muster = muster
        self.view: dict[str, NodeCapacity] = {}
        self.stream: client.GangStream | None = None
        self.states: list[State] = []
        self._asked = 0
        self._changed = asyncio.Condition()
        self._tasks: list[asyncio.Task[None]] = []
        self._gang: contextlib.AsyncExitStack = contextlib.AsyncExitStack()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Scene"]:
        """Follow the view for as long as the block runs."""
        self._tasks.append(asyncio.create_task(self._follow()))
        try:
            yield self
        finally:
            await self._gang.aclose()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def until(self, condition: Callable[[], bool], seconds: float) -> float | None:
        """Return the time it took until the condition held, None if it did not."""
        began = time.monotonic()
        async with self._changed:
            while not condition():
                left = began + seconds - time.monotonic()
                if left <= 0:
                    return None
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), min(left, 0.25))
                self.fleet.check()
        return time.monotonic() - began

    def resource(self, node: str, name: str = GPU_RESOURCE) -> ResourceReport | None:
        """Return the newest report on a resource, or None if the node has none."""
        return self.view[node].report.resources.get(name) if node in self.view else None

    def admissible(self, node: str, name: str = GPU_RESOURCE) -> int:
        """Return what the admitter would still admit."""
        return self.view[node].admissible.get(name, 0) if node in self.view else 0

    def line(self, node: str, name: str = GPU_RESOURCE) -> str:
        """Return one sentence on a node's resource."""
        report = self.resource(node, name)
        if report is None:
            return f"{node}: {name} is not reported"
        counts = ", ".join(
            f"{label} {_number(getattr(report, label))}" for label in ("advertised", "present", "usable", "free")
        )
        stale = ", stale" if self.view[node].stale else ""
        return f"{node} {report.verdict.value}{stale}: {counts}, admissible {self.admissible(node, name)}"

    # -- the gang

    async def ask(self) -> None:
        """Ask for the gang of the story."""
        self._asked += 1
        self.states.clear()
        gang = Gang(
            namespace=NAMESPACE,
            name=GANG,
            request_id=f"demo-{self._asked}",
            podsets=(Podset(name="workers", count=PODS, request=UNITS),),
        )
        self.stream = await self._gang.enter_async_context(self._muster.admit(gang))
        self._tasks.append(asyncio.create_task(self._listen(self.stream)))

    def lease(self) -> Leased | None:
        """Return the newest lease."""
        return next((state for state in reversed(self.states) if isinstance(state, Leased)), None)

    def last_state(self) -> str:
        """Return where the gang stands, in a word or a sentence."""
        match self.states[-1] if self.states else None:
            case Waiting(summary=summary):
                return summary
            case Leased(placements=placements):
                return "leased: " + ", ".join(f"{part.node} {part.units}" for part in placements)
            case Started():
                return "started: every member was seen with its devices"
            case Ended(reason=reason):
                return f"ended: {reason}"
            case None:
                return "no answer yet"

    async def start_pods(self, lease: Leased) -> None:
        """Report the gang's pods as they are bound where the lease says, then start them there."""
        assert self.stream is not None
        number = 0
        for placement in lease.placements:
            node = self.fleet.nodes[placement.node]
            for _ in range(placement.pods):
                uid = f"0b5e7a10-0000-4000-8000-{number:012d}"
                units = placement.units // placement.pods
                self.stream.member(placement.podset, uid, node.name)
                await asyncio.to_thread(node.start_pod, NAMESPACE, f"{GANG}-{number}", uid, placement.resource, units)
                number += 1
        await asyncio.to_thread(self.fleet.publish)

    def is_over(self) -> bool:
        """Return whether the gang that was asked for has ended."""
        return bool(self.states) and isinstance(self.states[-1], Ended)

    async def end(self) -> Ended:
        """The job is done: its pods end, and the admitter is told."""
        assert self.stream is not None
        for node in self.fleet.nodes.values():
            for uid in node.pod_uids():
                await asyncio.to_thread(node.end_pod, uid)
        await asyncio.to_thread(self.fleet.publish)
        return await self.stream.end("Finished")

    async def _listen(self, stream: client.GangStream) -> None:
        async for state in stream.states():
            self.states.append(state)
            await self._notify()

    async def _follow(self) -> None:
        async for change in self._muster.watch_capacity():
            self.view.update(change.nodes)
            for name in change.removed:
                self.view.pop(name, None)
            await self._notify()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def _number(reading: Known[int] | Unknown) -> str:
    match reading:
        case Known(value):
            return str(value)
        case Unknown(reason):
            return f"unknown ({reason})"
