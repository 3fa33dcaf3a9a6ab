"""Pods that a kubelet refused, each once in a term, as the cluster's watch shows them.

In: the cluster as it changes. Out: `Rejection`s since somebody asked last.

Invariant: a new term looks at every pod that is there: what the last leader knew of broken promises is on the API server as
long as the pods are. Older refusals than `since_seconds` are history.

Not here: what follows (core/trust.py).
"""

import collections
import datetime
from collections.abc import Iterator
from typing import Protocol

from admitter.core import strikes
from admitter.model.cluster import Changes, Cluster, KubePod
from admitter.model.promise import Rejection
from muster.model import labels

_MOST_KNOWN = 20_000
_MOST_WAITING = 5_000


class Clock(Protocol):
    """What is needed of time."""

    def monotonic(self) -> float: ...
    def utc(self) -> datetime.datetime: ...


class Rejections:
    """Belongs to one event loop."""

    def __init__(self, cluster: Cluster, clock: Clock, since_seconds: float) -> None:
        self._cluster, self._clock, self._since_seconds = cluster, clock, since_seconds
        self._waiting: collections.deque[KubePod] = collections.deque(maxlen=_MOST_WAITING)
        self._known: collections.OrderedDict[str, None] = collections.OrderedDict()
        self._term = 0
        cluster.listen(self._take)

    def drain(self, term: int) -> tuple[Rejection, ...]:
        """Return what was refused since the last call of this term, oldest first."""
        if term != self._term:
            self._term = term
            self._known.clear()
            found = [pod for pod in self._cluster.pods().values() if strikes.is_rejection(pod)]
            self._waiting = collections.deque(
                sorted(found, key=lambda pod: (self._age(pod), pod.uid), reverse=True), maxlen=_MOST_WAITING
            )
        return tuple(self._new())

    def _new(self) -> Iterator[Rejection]:
        while self._waiting:
            pod = self._waiting.popleft()
            age = self._age(pod)
            if pod.uid in self._known or not pod.node or age > self._since_seconds:
                continue
            self._known[pod.uid] = None
            while len(self._known) > _MOST_KNOWN:
                self._known.popitem(last=False)
            gang = pod.labels.get(labels.GANG.full, "")
            yield Rejection(
                uid=pod.uid,
                pod=pod.full_name,
                node=pod.node,
                reason=pod.reason[:63],
                message=pod.message[:256],
                scheduler=(pod.scheduler or strikes.DEFAULT_SCHEDULER)[:63],
                lease_id=pod.annotations.get(labels.LEASE.full, ""),
                gang=f"{pod.namespace}/{gang}" if gang else "",
                at=self._clock.monotonic() - age,
            )

    def _age(self, pod: KubePod) -> float:
        """Return for how long the pod has been refused, by the API server's stamps; one without any is new."""
        stamp = pod.reported_at or pod.started_at or pod.created_at
        return max(0.0, (self._clock.utc() - stamp).total_seconds()) if stamp is not None else 0.0

    def _take(self, changes: Changes) -> None:
        self._waiting.extend(
            change.after for change in changes.pods if change.after and strikes.is_rejection(change.after)
        )
