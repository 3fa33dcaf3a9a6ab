"""Follow all objects of one kind: list once, then watch, for ever.

In: one kind of the API. Out: `replaced` with everything there is after each list, `changed` with one object after each
event; what stands between this process and the API server, in words.

Invariants: a list is taken whole or not at all, so that nobody ever sees half of it. After a watch that broke, the watch
goes on from the last version that was seen; only where the API server no longer has that version is everything listed
again. `age` is 0 only while a watch stands; from its end it counts from the last word of the API server. Failures in a row,
expired versions among them, are further and further apart: an API server that has forgotten every version is not listed in a loop.
An optional kind that is served no more has no objects: they are gone once that is sure.

Why one connection a kind: its transport then tells that this watch stands, long before a first event comes.

Not here: what becomes of the objects (cluster.py).
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import structlog
from lightkube.core import resource as resources

from admitter.sources import apiclient, events
from admitter.sources.apiclient import Api

_LOG = structlog.get_logger(__name__)

T = TypeVar("T")

PAUSE_SECONDS = (0.2, 8.0)
"""First and longest pause after a failure, cut by up to a half at random: two admitters do not come back in step."""
ABSENT_SECONDS = 300.0
"""How often a kind that is not served is looked for."""
PAGE = 500
"""Objects of one answer: client-go's own figure; one page of pods is a few MiB."""
LATER_SECONDS = 2.0
"""First pause, before its cut, where the API server says that it has too much to do: it asks for a second (Retry-After)."""
_GONE, _NOT_FOUND, _TOO_MANY = 410, 404, 429
_KEEP_VERSION = frozenset({0, 401, 403, 429, 500, 502, 503})
"""Failures that say nothing about the version: the watch goes on from it. 0 is no answer."""
LOOK_SECONDS = 5.0
"""How often a silent watch is looked at."""
RESUMES = 5
"""Resumes that fail one after another before everything is listed again."""


class Watch(Generic[T]):
    """One kind of object, followed. Belongs to one event loop."""

    def __init__(
        self,
        api: Api,
        resource: Any,
        *,
        slim: Callable[[Any], T | None],
        replaced: Callable[[list[T]], None],
        changed: Callable[[T, bool], None],
        monotonic: Callable[[], float],
        is_optional: bool = False,
    ) -> None:
        """`slim` makes the value that is kept; `changed` is called with the value and whether it is gone.

        `is_optional`: a cluster may do without this kind, so that a 404 is to be believed in the end.
        """
        info = resources.api_info(resource)
        self._resource = resource
        self._where: Any = {"namespace": "*"} if issubclass(resource, resources.NamespacedResource) else {}
        self._slim, self._replaced, self._changed = slim, replaced, changed
        self._monotonic = monotonic
        self._is_optional = is_optional
        self._lister = api.client(seconds=apiclient.LIST_SECONDS)
        self._wire = api.wire(self._stand)
        self.plural = info.plural
        self.group = info.resource.group
        self.problem = "not listed yet"
        """Why nothing is known for sure; empty: the watch stands."""
        self.is_served = True
        self.lists = 0
        """Full lists so far."""
        self._heard_at = self._word_at = monotonic()
        self._version = ""
        self._events = 0
        """Since the last failure."""
        self._is_wanted = asyncio.Event()
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def is_synced(self) -> bool:
        """Return whether everything has been listed once."""
        return self.lists > 0

    def age(self) -> float:
        """Return for how many seconds nothing has been known for sure."""
        return self._monotonic() - self._heard_at if self.problem else 0.0

    async def list_afresh(self) -> None:
        """Return when a list that began after this call has been taken in."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._is_wanted.set()
        await waiter

    async def run(self) -> None:
        """Follow until cancelled."""
        failures = expired = last = 0
        try:
            while True:
                verb = "watch" if self._version else "list"
                try:
                    if not self._version:
                        await self._list()
                        verb, failures = "watch", 0
                    await self._follow_until_wanted()
                    expired = 0
                except apiclient.Failed as error:
                    seen, self._events = self._events, 0
                    status = apiclient.refusal(error)
                    # An outage before it says nothing of whether a kind is served, nor the other way round.
                    failures = 1 if seen or (status == _NOT_FOUND) != (last == _NOT_FOUND) else failures + 1
                    last = status
                    expired = (0 if seen else expired) + (status == _GONE)
                    self._break(verb, error, status)
                    if status not in _KEEP_VERSION or failures > RESUMES:
                        self._version = ""
                    if self._is_optional and self.lists and _is_absent(failures, status):
                        self._replaced([])
                    # One that expired is listed at once; if the next one has expired as well, that did not help.
                    await self._pause(expired - 1 if status == _GONE else failures, status)
        finally:
            await self._lister.close()
            await self._wire.aclose()

    async def _list(self) -> None:
        self._is_wanted.clear()
        served = len(self._waiters)
        listed = self._lister.list(self._resource, chunk_size=PAGE, **self._where)
        found = [value async for item in listed if (value := self._slim(item)) is not None]
        self._version = str(listed.resourceVersion)
        self._heard_at = self._monotonic()
        self._replaced(found)
        self.lists += 1
        for waiter in self._waiters[:served]:
            if not waiter.done():
                waiter.set_result(None)
        del self._waiters[:served]
        _LOG.info("listed", resource=self.plural, objects=len(found))

    async def _follow_until_wanted(self) -> None:
        """Watch until a list is wanted; TimeoutError if the API server says nothing for too long."""
        self._word_at = self._monotonic()
        following = asyncio.create_task(self._follow())
        wanted = asyncio.create_task(self._is_wanted.wait())
        try:
            while not following.done():
                if wanted.done():
                    self._version = ""
                    return
                if self._monotonic() - self._word_at > apiclient.SILENT_SECONDS:
                    raise TimeoutError(f"silent for {apiclient.SILENT_SECONDS:g} s")
                await asyncio.wait({following, wanted}, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            following.result()
        finally:
            following.cancel()
            wanted.cancel()
            await asyncio.gather(following, wanted, return_exceptions=True)

    async def _follow(self) -> None:
        """Take events for as long as they come."""
        async for event in events.follow(self._wire, self._resource, self._version):
            self._word_at = self._monotonic()
            self._version = event.version
            self._events += 1
            if event.item is not None and (value := self._slim(event.item)) is not None:
                self._changed(value, event.is_gone)

    def _stand(self) -> None:
        self._word_at = self._monotonic()
        if self.problem:
            _LOG.info("watch stands", resource=self.plural, after=self.problem[:80])
            self.problem = ""
        self.is_served = True

    def _break(self, verb: str, error: BaseException, status: int) -> None:
        before, self.is_served = self.problem, status != _NOT_FOUND
        if not before:
            # An end that the network reports comes after everything that was sent; silence ended with the last word.
            self._heard_at = self._word_at if isinstance(error, TimeoutError) else self._monotonic()
        self.problem = describe(verb, self.plural, self.group, error, status)
        if self.problem != before:
            _LOG.warning("watch broke", resource=self.plural, problem=self.problem)

    async def _pause(self, failures: int, status: int) -> None:
        if not failures:
            return
        shortest, longest = PAUSE_SECONDS
        if status == _TOO_MANY:
            shortest = LATER_SECONDS
        pause = ABSENT_SECONDS if _is_absent(failures, status) else min(longest, shortest * 2 ** min(failures - 1, 10))
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 -- jitter


def _is_absent(failures: int, status: int) -> bool:
    """Return whether a kind is not served; what stands between us and the API server may say 404 for a moment too."""
    return status == _NOT_FOUND and failures > RESUMES


def describe(verb: str, plural: str, group: str, error: BaseException, status: int) -> str:
    """Return one line for a person: what was tried, and what has to be done about the answer.

    >>> describe("list", "pods", "", ValueError("no"), 403)
    'may not list pods: grant verb `list` on resource `pods` of API group `""`'
    """
    match status:
        case 401:
            return f"cannot {verb} {plural}: the API server does not know us (401)"
        case 403:
            return f'may not {verb} {plural}: grant verb `{verb}` on resource `{plural}` of API group `"{group}"`'
        case 404:
            return f"cannot {verb} {plural}: this API server does not serve them"
        case 0:
            return f"cannot {verb} {plural}: no answer ({type(error).__name__}: {error})"[:200]
        case _:
            return f"cannot {verb} {plural}: {status} {error}"[:200]
