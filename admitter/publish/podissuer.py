"""Carry out what the gate adapter wants, and remember what is on its way.

In: intents, with the term they were decided in. Out: requests, `AT_ONCE` at a time and one for each pod, owner or Event; a
call back for a release that was refused for good.

Invariants: a request that fails changes nothing here: whoever decided looks at the cluster again and wants it again, or not, and
is let through once what failed has rested (patience.py). Before anything is suspended its pods are listed: the watch of pods may be
ill while that of Jobs is well, and a Job's own version says nothing of a pod that has started.

Not here: any decision (core/gates.py), any request's form (pods.py).
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Set
from typing import Any

import structlog

from admitter.core import groups, strikes
from admitter.model.cluster import Cluster, KubePod, Owner
from admitter.model.group import Group, Workloads
from admitter.model.hold import Release, Replan, Told
from admitter.publish import pods as writing
from admitter.publish.nodes import Outcome
from admitter.publish.notstarted import NotStarted
from admitter.publish.patience import Patience
from admitter.publish.pods import PodWriter
from admitter.publish.podteller import PodTeller
from admitter.publish.recheck import Fresh
from muster.model import labels

_LOG = structlog.get_logger(__name__)

AT_ONCE = 32
"""Requests on their way at a time: 500 pods in a second at 60 ms each."""

TRIES = 5
AGAIN_SECONDS = 0.5
"""Between tries of a suspension that somebody's change came before."""

Refused = Callable[[str, Outcome, str], None]
Request = Callable[[], Coroutine[Any, Any, Outcome]]
Read = Callable[[str], Awaitable[Iterable[KubePod] | None]]
"""Lists a namespace's pods; None: there was no answer."""


class PodIssuer:
    """Belongs to one event loop."""

    def __init__(
        self, writer: PodWriter, cluster: Cluster, gate: str, teller: PodTeller, not_started: NotStarted, read: Read
    ) -> None:
        self._writer, self._cluster, self._gate, self._read = writer, cluster, gate, read
        self._teller, self._not_started = teller, not_started
        self._patience = Patience()
        self._tasks: asyncio.TaskGroup | None = None
        self._busy: set[str] = set()
        """What a request is on its way for."""
        self._slots = asyncio.Semaphore(AT_ONCE)

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        """Run requests among these tasks from now on."""
        self._tasks = tasks
        tasks.create_task(self._teller.run())
        tasks.create_task(self._not_started.run())

    def is_busy(self, uid: str) -> bool:
        """Return whether a request is on its way for a pod or an owner."""
        return uid in self._busy

    def release(self, release: Release, term: int, maker: str, still: Callable[[], bool], refused: Refused) -> None:
        """Pin a pod and take our gate off it; `maker` is the UID of what makes it.

        `still` is asked as it is sent. `refused` hears UID, outcome and words of a refusal for good.
        """
        if maker not in self._busy:
            self._start(release.uid, lambda: self._release(release, term, maker, still, refused))

    def replan(self, replan: Replan, namespace: str, term: int, fresh: Fresh) -> bool:
        """Send pods back through what makes them; return whether a request is on its way for that, which was not before."""
        owner = replan.owner
        if owner is not None and writing.is_suspendable(owner):
            return self._start(owner.uid, lambda: self._suspend(owner, namespace, term, fresh))
        begun = [self._start(uid, functools.partial(self._send_back, replan, uid, term)) for uid in replan.uids]
        return any(begun)

    def pause(self, owner: Owner, namespace: str, term: int, fresh: Fresh, refused: Callable[[str], None]) -> None:
        """Suspend what makes held pods until there is a place for them; `refused` hears the words of a refusal for good."""
        self._start(owner.uid, lambda: self._pause(owner, namespace, term, fresh, refused))

    def resume(self, owner: Owner, namespace: str, term: int) -> None:
        """Let what was suspended make its pods again."""
        self._start(owner.uid, lambda: self._resume(owner, namespace, term))

    def resume_suspended(self, workloads: Workloads, term: int, waiting_uids: Set[str] = frozenset()) -> None:
        """Let what we suspended go on, once none of its pods is left, and bare pods be made anew; `waiting_uids` wait for a place."""
        self._writer.go_on(self._cluster.pods().values(), term)
        waiting: dict[str, tuple[Owner, str]] = {}
        for kind, found in (("Job", workloads.jobs.values()), ("JobSet", workloads.job_sets.values())):
            for each in found:
                mark = each.annotations.get(labels.REPLAN.full)
                if mark == writing.SUSPENDED or (mark == writing.HELD and each.uid not in waiting_uids):
                    waiting[each.uid] = Owner(kind=kind, name=each.name, uid=each.uid), each.namespace
        if not waiting:
            return
        present = {
            owner.uid
            for pod in self._cluster.pods().values()
            if not pod.is_finished and (owner := groups.owner(pod, workloads)) is not None
        }
        for uid in waiting.keys() - present:
            owner, namespace = waiting[uid]
            self._start(uid, functools.partial(self._resume, owner, namespace, term))

    def say(
        self, told: Told, group: Group, owners: Mapping[str, Owner | None], term: int, paused: Owner | None = None
    ) -> None:
        """Have a gang's newest word stand where people look; `paused` makes its pods, where none of them is there."""
        self._teller.say(told, group, owners, term, paused)

    def _start(self, what: str, request: Request) -> bool:
        if what in self._busy or self._tasks is None or not self._may_try(what):
            return False
        self._busy.add(what)
        self._tasks.create_task(self._run(what, request))
        return True

    def _may_try(self, what: str) -> bool:
        return self._patience.may_try(what, asyncio.get_running_loop().time())

    async def _run(self, what: str, request: Request) -> None:
        outcome = Outcome.BUSY
        try:
            async with self._slots:
                # Others may have found the API server ill while this one stood in line.
                outcome = await request() if self._may_try(what) else Outcome.NOT_LEADING
        except Exception:  # noqa: BLE001 -- one request's fault must not end the admitter; whoever decided wants it again
            _LOG.exception("request failed", about=what)
        finally:
            self._busy.discard(what)
            self._patience.note(what, outcome, asyncio.get_running_loop().time())

    async def _release(
        self, release: Release, term: int, maker: str, still: Callable[[], bool], refused: Refused
    ) -> Outcome:
        pod = self._cluster.pod(release.uid)
        if pod is None or self._gate not in pod.gates or maker in self._busy or not still():
            return Outcome.NOT_LEADING
        marked = await self._not_started.mark(pod, term)
        if marked is not None:
            return marked
        body = writing.pinned(pod, release.nodes, self._hostnames(), release.lease_id, self._gate)
        if release.unverified:
            body["metadata"]["annotations"] = {labels.UNVERIFIED.full: release.unverified}
        outcome, detail = await self._writer.release(pod, body, term)
        if outcome in (Outcome.REFUSED, Outcome.INVALID):
            refused(release.uid, outcome, detail)
        return outcome

    async def _pause(
        self, owner: Owner, namespace: str, term: int, fresh: Fresh, refused: Callable[[str], None]
    ) -> Outcome:
        request = self._suspended(namespace, fresh, lambda version: self._writer.pause(owner, namespace, term, version))
        outcome, detail = await request
        if outcome in (Outcome.REFUSED, Outcome.INVALID):
            refused(detail)
        return outcome

    async def _suspended(
        self, namespace: str, fresh: Fresh, request: Callable[[str], Coroutine[Any, Any, tuple[Outcome, str]]]
    ) -> tuple[Outcome, str]:
        """Suspend what is as it was last seen; what has changed meanwhile is looked at again first."""
        outcome, detail = Outcome.CONFLICT, "it changes all the time"
        for _ in range(TRIES):
            version = fresh(None)
            if version is None:
                return Outcome.NOT_LEADING, "left as it is: it has changed since"
            pods = await self._read(namespace)
            if pods is None:
                return Outcome.BUSY, "its pods could not be listed"
            if fresh(pods) is None:
                return Outcome.CONFLICT, "left as it is: its pods are others than the watch says"
            outcome, detail = await request(version)
            if outcome is not Outcome.CONFLICT:
                break
            await asyncio.sleep(AGAIN_SECONDS)
        return outcome, detail

    async def _suspend(self, owner: Owner, namespace: str, term: int, fresh: Fresh) -> Outcome:
        def request(version: str) -> Coroutine[Any, Any, tuple[Outcome, str]]:
            return self._writer.suspend(owner, namespace, term, version)

        return await self._finish(self._suspended(namespace, fresh, request))

    async def _resume(self, owner: Owner, namespace: str, term: int) -> Outcome:
        return await self._finish(self._writer.resume(owner, namespace, term))

    async def _send_back(self, replan: Replan, uid: str, term: int) -> Outcome:
        pod = self._cluster.pod(uid)
        if pod is None or strikes.ends_work(replan, (pod,)):
            return Outcome.NOT_LEADING
        return await self._finish(self._writer.send_back(pod, term))

    async def _finish(self, request: Coroutine[Any, Any, tuple[Outcome, str]]) -> Outcome:
        outcome, detail = await request
        if outcome not in (Outcome.DONE, Outcome.NOT_LEADING):
            _LOG.warning("a request was not done", outcome=outcome.value, detail=detail)
        return outcome

    def _hostnames(self) -> dict[str, str]:
        """Return each node's hostname label, without those that two nodes share."""
        found: dict[str, list[str]] = {}
        for name, node in self._cluster.nodes().items():
            hostname = node.object.labels.get(writing.HOSTNAME)
            if hostname:
                found.setdefault(hostname, []).append(name)
        return {names[0]: hostname for hostname, names in found.items() if len(names) == 1}
