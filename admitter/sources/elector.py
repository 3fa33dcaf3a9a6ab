"""Lead, or wait to lead: one candidate's loop on a coordination.k8s.io Lease.

In: the Lease of our namespace. Out: `leadership` and `may_write` for whoever writes (admitter/model/leadership.py), and a
call when this process begins to lead or has stopped.

Invariants: every write carries the resourceVersion that was read, so of two that try one is refused. What the guard says
is computed from the monotonic clock when it is asked, not by this loop: a loop that hangs or was stopped does not lead on.
A leadership that is told of has been renewed; one that has ended is told of before another begins.

Why our own: lightkube has no election, and the term has to come with it.

Not here: the rules (core/election.py), and what leading means (main.py).
"""

import asyncio
import datetime
from collections.abc import Callable
from typing import Any, Protocol

import structlog
from lightkube.models import coordination_v1, meta_v1
from lightkube.resources import coordination_v1 as coordination

from admitter.core import election, microtime
from admitter.core.election import Candidate, Lease, Move
from admitter.model.leadership import Leadership
from admitter.sources import apiclient, watch
from admitter.sources.apiclient import Api

_LOG = structlog.get_logger(__name__)

_CONFLICT, _NOT_FOUND = 409, 404


class Clock(Protocol):
    """What an election needs of time."""

    def monotonic(self) -> float: ...
    def utc(self) -> datetime.datetime: ...


class Elector:
    """One candidate, and the guard of its writes. Belongs to one event loop."""

    def __init__(self, api: Api, clock: Clock, *, identity: str, namespace: str, name: str, seconds: float) -> None:
        self._clock = clock
        self._namespace, self._name = namespace, name
        self._candidate = Candidate(identity=identity, seconds=seconds)
        self._pause = seconds / election.RENEWALS
        self._client = api.client(seconds=self._pause * 2)
        self._above = 0
        self._is_due = asyncio.Event()
        self.problem = ""
        """Why the last request failed; empty: it did not."""

    @property
    def leadership(self) -> Leadership:
        """Return what is known now; a leadership that has run out is a standby's."""
        return self._candidate.leadership(self._clock.monotonic())

    def may_write(self, term: int) -> bool:
        """Return whether a write that was decided in this term may still leave."""
        return term > 0 and self.leadership.term == term

    def raise_term(self, above: int) -> None:
        """Lead on in a term above this one: agents have heard of it, so somebody deleted the Lease."""
        self._above = max(self._above, above)
        self._is_due.set()

    async def run(self, on_change: Callable[[Leadership], None]) -> None:
        """Stand as a candidate until cancelled; then give the Lease back, so that nobody has to wait for its end."""
        told = Leadership()
        try:
            while True:
                self._is_due.clear()
                await self._step()
                now = self.leadership
                if told.term and now.term != told.term:
                    on_change(Leadership(leader=now.leader))
                if now.term and now.term != told.term:
                    on_change(now)
                told = now
                await self._wait(now)
        finally:
            await self._give_back()
            await self._client.close()

    async def _wait(self, now: Leadership) -> None:
        """Wait for the next turn; a leadership that ends meanwhile is told of when it ends."""
        left = now.until - self._clock.monotonic() if now.term else self._pause
        try:
            async with asyncio.timeout(max(0.0, min(self._pause, left))):
                await self._is_due.wait()
        except TimeoutError:
            return

    async def _step(self) -> None:
        """Make one move; any failure is a reason to look again at the next turn."""
        candidate = self._candidate
        move = candidate.next(self._clock.monotonic(), self._above)
        try:
            if move is not Move.RENEW:
                candidate = self._candidate = candidate.saw(await self._read(), self._clock.monotonic())
                move = candidate.next(self._clock.monotonic(), self._above)
            if move is not Move.WAIT:
                await self._write(move)
            self._note("")
        except apiclient.Failed as error:
            status = apiclient.refusal(error)
            if status in (_CONFLICT, _NOT_FOUND):
                # Somebody else wrote or deleted it: what we believe of the Lease is not so.
                await self._look_again()
            else:
                verb = {Move.CREATE: "create", Move.WAIT: "get"}.get(move, "update")
                self._note(watch.describe(verb, "leases", "coordination.k8s.io", error, status))

    async def _look_again(self) -> None:
        try:
            self._candidate = self._candidate.saw(await self._read(), self._clock.monotonic())
        except apiclient.Failed as error:
            self._note(watch.describe("get", "leases", "coordination.k8s.io", error, apiclient.refusal(error)))

    async def _read(self) -> Lease | None:
        try:
            found = await self._client.get(coordination.Lease, self._name, namespace=self._namespace)
        except apiclient.Failed as error:
            if apiclient.refusal(error) == _NOT_FOUND:
                return None
            raise
        return _lease(found)

    async def _write(self, move: Move) -> None:
        candidate = self._candidate
        term = candidate.term if move is Move.RENEW else candidate.next_term(self._above)
        acquired_at = candidate.sight.lease.acquired_at if move is Move.RENEW and candidate.sight.lease else None
        body = self._body(candidate.identity, term, acquired_at or self._clock.utc())
        # From before it leaves: what the API server saw later than this is on our side of the promise.
        sent_at = self._clock.monotonic()
        if move is Move.CREATE:
            written: Any = await self._client.create(body)
        else:
            written = await self._client.replace(body)
        self._candidate = candidate.wrote(_lease(written), sent_at)
        if move is not Move.RENEW:
            _LOG.info("leading", term=term, lease=f"{self._namespace}/{self._name}", until_s=candidate.seconds)

    def _body(self, holder: str, term: int, acquired_at: datetime.datetime | None) -> coordination.Lease:
        lease = self._candidate.sight.lease
        metadata = meta_v1.ObjectMeta(name=self._name, namespace=self._namespace)
        if lease is not None:
            metadata.resourceVersion = lease.version
        return coordination.Lease(
            metadata=metadata,
            spec=coordination_v1.LeaseSpec(
                holderIdentity=holder,
                leaseDurationSeconds=max(1, round(self._candidate.seconds)),
                leaseTransitions=term,
                renewTime=microtime.of(self._clock.utc()),
                acquireTime=None if acquired_at is None else microtime.of(acquired_at),
            ),
        )

    async def _give_back(self) -> None:
        leadership = self.leadership
        if not leadership.term:
            return
        try:
            await self._client.replace(self._body("", leadership.term, None))
        except apiclient.Failed as error:
            _LOG.info("the lease could not be given back; it runs out", problem=str(error)[:200])

    def _note(self, problem: str) -> None:
        if problem and problem != self.problem:
            _LOG.warning("election", problem=problem)
        self.problem = problem


def _lease(found: coordination.Lease) -> Lease:
    spec = found.spec or coordination_v1.LeaseSpec()
    metadata = found.metadata or meta_v1.ObjectMeta()
    return Lease(
        version=metadata.resourceVersion or "",
        holder=spec.holderIdentity or "",
        term=spec.leaseTransitions or 0,
        seconds=float(spec.leaseDurationSeconds or 0),
        renewed=str(spec.renewTime or ""),
        acquired_at=spec.acquireTime,
    )
