"""Make bare pods anew under their own names, once the names are free.

In: a pod to create, and the UID of the one that has its name and goes. Out: the pod. Nothing is decided here.

Invariants: what waits here holds nobody else's request up. So many of a namespace wait at a time, and no more of it are sent
back meanwhile: a pod that could not be made anew is not deleted. Without an answer, or while its forerunner is there, it is
tried for as long as this process lives: nobody else knows that there was such a pod.

Why by namespace: how long a pod takes to go is in its maker's hands (a finalizer, a grace period of days).
"""

import asyncio
import collections
from collections.abc import Callable, Coroutine
from typing import Any

import lightkube
import structlog
from lightkube.resources import core_v1 as core

from admitter.core import pace
from admitter.model.cluster import KubePod
from admitter.publish.nodes import Failed, Outcome, failure

_LOG = structlog.get_logger(__name__)

EACH = 32
"""Of one namespace at a time: at the longest pause, four requests a second."""
MOST_SECONDS = 8.0
"""The longest pause between two tries; the first is one second (core/pace.py)."""
TOLD_AFTER = 20
"""Tries after which it is worth a line that the forerunner does not go: two minutes."""


class Remaker:
    """Belongs to one event loop."""

    def __init__(self, client: lightkube.AsyncClient) -> None:
        self._client = client
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._each: collections.Counter[str] = collections.Counter()

    def is_waiting(self, uid: str) -> bool:
        """Return whether the pod in place of this one is still to be made."""
        return uid in self._tasks

    def has_room(self, namespace: str) -> bool:
        """Return whether one more of a namespace may wait."""
        return self._each[namespace] < EACH

    def begin(self, again: core.Pod, before: str) -> None:
        """Create a pod once the one of that UID, which has its name, is gone."""
        assert again.metadata is not None
        self._start(again.metadata.namespace or "", before, self._remake(again, before))

    def resume(self, before: KubePod, copy: Callable[[core.Pod], core.Pod]) -> None:
        """Create a pod like one that still goes, once that is gone."""
        self._start(before.namespace, before.uid, self._resume(before, copy))

    async def wait(self) -> None:
        """Return when nothing waits any more."""
        while self._tasks:
            await asyncio.wait(set(self._tasks.values()))

    def _start(self, namespace: str, before: str, work: Coroutine[Any, Any, None]) -> None:
        self._each[namespace] += 1
        self._tasks[before] = task = asyncio.create_task(work)
        task.add_done_callback(lambda task: self._end(task, namespace, before))

    async def _resume(self, before: KubePod, copy: Callable[[core.Pod], core.Pod]) -> None:
        rest = pace.RESTED
        while True:
            try:
                found = await self._client.get(core.Pod, before.name, namespace=before.namespace)
            except Failed as error:
                if failure(error).outcome is not Outcome.BUSY:
                    _LOG.error("a bare pod was not made anew", pod=before.full_name, detail=failure(error).detail)
                    return
                rest = rest.failed(0.0, MOST_SECONDS)
                await asyncio.sleep(rest.until)
            else:
                break
        if found.metadata is not None and found.metadata.uid == before.uid:
            await self._remake(copy(found), before.uid)

    def _end(self, task: asyncio.Task[None], namespace: str, before: str) -> None:
        del self._tasks[before]
        self._each -= collections.Counter([namespace])
        if not task.cancelled() and (error := task.exception()) is not None:
            _LOG.error("a bare pod was not made anew", uid=before, exc_info=error)

    async def _remake(self, again: core.Pod, before: str) -> None:
        rest, tries = pace.RESTED, 0
        name = again.metadata and f"{again.metadata.namespace}/{again.metadata.name}"
        while True:
            tries += 1
            try:
                await self._client.create(again)
            except Failed as error:
                sent = failure(error)
                if sent.outcome is Outcome.CONFLICT and await self._is_another(again, before):
                    return
                if sent.outcome not in (Outcome.CONFLICT, Outcome.BUSY):
                    _LOG.error("a bare pod was not made anew", pod=name, outcome=sent.outcome.value, detail=sent.detail)
                    return
                if tries == TOLD_AFTER:
                    _LOG.warning("a bare pod is not made anew yet", pod=name, detail=sent.detail)
                rest = rest.failed(0.0, MOST_SECONDS)
                await asyncio.sleep(rest.until)
            else:
                return

    async def _is_another(self, again: core.Pod, before: str) -> bool:
        """Return whether the name is another pod's by now: ours, whose answer was lost, or somebody was quicker."""
        assert again.metadata is not None
        try:
            found = await self._client.get(core.Pod, again.metadata.name or "", namespace=again.metadata.namespace)
        except Failed:
            return False
        return found.metadata is not None and found.metadata.uid != before
