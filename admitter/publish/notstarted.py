"""Put the condition `muster.dev/NotStarted` on pods before they are let go, and say when a container has started.

In: pods as they are let go and as they change. Out: one request for each.

Invariants: it is True before the last gate goes, so that no kubelet's refusal comes before it. A condition that cannot be
written holds up nobody: the pod is let go without it.

Not here: which pods (core/notstarted.py).
"""

import asyncio
from collections.abc import Callable

import structlog

from admitter.core import notstarted, pace
from admitter.model.cluster import Changes, Cluster, KubePod
from admitter.publish.nodes import Outcome
from admitter.publish.podconditions import PodConditionWriter
from muster.model import labels

_LOG = structlog.get_logger(__name__)

LOOK_SECONDS = 0.2
AT_ONCE = 32
REST_SECONDS = 8.0
"""The longest rest after no answer, or one that says later."""
_AGAIN = (Outcome.BUSY, Outcome.NOT_LEADING)


class NotStarted:
    """Belongs to one event loop."""

    def __init__(
        self, conditions: PodConditionWriter, cluster: Cluster, term: Callable[[], int], *, limit: int
    ) -> None:
        """`term` is the present one, 0 for a standby; `limit` as --not-started-limit, 0: no pod is marked."""
        self._conditions, self._cluster, self._term, self._limit = conditions, cluster, term, limit
        self._over: set[str] = set()
        """UIDs of marked pods that have started, in the present term."""
        self._over_term = 0
        self._counted: dict[str, set[str]] = {}
        """UID of a Job -> UIDs of its pods that have failed under the condition, or still may."""
        cluster.listen(self._take)

    async def mark(self, pod: KubePod, term: int) -> Outcome | None:
        """Put the condition on a pod that is to be let go; return what became of that, None where it may go at once."""
        job = notstarted.job_of(pod)
        others = self._counted.get(job, set()) - {pod.uid}
        if not notstarted.wants_mark(pod, len(others), self._limit):
            return None
        # Before the request, and not after: others of the Job are on their way beside it.
        self._counted.setdefault(job, set()).add(pod.uid)
        words = "let go, and no container of it has started"
        outcome, detail = await self._conditions.set(pod, labels.NOT_STARTED, "True", notstarted.AWAITS, words, term)
        if outcome is not Outcome.DONE:
            self._uncount(job, pod.uid)
        if outcome in (Outcome.REFUSED, Outcome.INVALID):
            _LOG.warning("a pod is let go without its condition", pod=pod.full_name, detail=detail)
            return None
        # What is let go is let go as it is now: the pin carries the resourceVersion.
        return outcome

    def _take(self, changes: Changes) -> None:
        for change in changes.pods:
            before, after = change.before, change.after
            if after is not None and self._over_term and notstarted.is_over(after):
                self._over.add(after.uid)
            if after is not None and notstarted.counts(after):
                self._counted.setdefault(notstarted.job_of(after), set()).add(after.uid)
            elif before is not None and (after is None or notstarted.counts(before)):
                self._uncount(notstarted.job_of(before), before.uid)

    def _uncount(self, job: str, uid: str) -> None:
        mine = self._counted.get(job, set())
        mine.discard(uid)
        if not mine:
            self._counted.pop(job, None)

    async def run(self) -> None:
        """Say of marked pods that they have started, until cancelled."""
        rest, now = pace.RESTED, asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(max(LOOK_SECONDS, rest.until - now()))
            term = self._term()
            if term != self._over_term:
                # A standby remembers nothing; the pods do.
                found = self._cluster.pods().values() if term else ()
                self._over, self._over_term = {pod.uid for pod in found if notstarted.is_over(pod)}, term
            if term:
                some = sorted(self._over)[:AT_ONCE]
                self._over.difference_update(some)
                outcomes = await asyncio.gather(*(self._end(uid, term) for uid in some))
                rest = rest.failed(now(), REST_SECONDS) if Outcome.BUSY in outcomes else pace.RESTED

    async def _end(self, uid: str, term: int) -> Outcome:
        pod = self._cluster.pod(uid)
        if pod is None or not notstarted.is_over(pod):
            return Outcome.GONE
        outcome, detail = await self._conditions.set(
            pod, labels.NOT_STARTED, "False", notstarted.STARTED, "a container has started", term
        )
        if outcome in _AGAIN:
            self._over.add(uid)
        elif outcome in (Outcome.REFUSED, Outcome.INVALID):
            _LOG.warning("a condition was not ended", pod=pod.full_name, detail=detail)
        return outcome
