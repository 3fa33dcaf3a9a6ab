"""What pods' images are: questions that any tenant can have asked, about hosts of its own choice.

In: a reference, perhaps a pod's own credentials. Out: a Resolution, or a Failure that says why there is none.

Invariants: a question costs nobody but itself. What it meets and what it finds is not kept, or any tenant could fill the
warmer, keep the operator's images from their host or give them sizes; only a 429 is, for as long as it asks and for a
bounded number of hosts, since it is meant for the whole node (core/warmfailure.py). At most AT_ONCE are asked at a time,
in threads of their own: the warmer's own downloads have others. Each is given up after QUESTION_SECONDS, its wait for a
turn included, and its sockets with it.
"""

import asyncio
import concurrent.futures
import pathlib

from agent.core import warmfailure
from agent.model.warm import Failure, Platform, Reason, Reference, StoreFacts
from agent.warmer import estate, resolve
from agent.warmer.registry import Credentials, Registry, RegistryFailed
from agent.warmer.survey import Survey
from muster.clock import Clock

AT_ONCE = 4
QUESTION_SECONDS = 25.0
"""Shorter than the 30 s that the agent waits (agent/sources/warmer.py): it hears the reason, not that we are away."""
SILENCE_SECONDS = 10.0
"""Without a byte. A pull waits longer: it has more to lose."""


class Questions:
    """Asks for pods. Belongs to one event loop."""

    def __init__(
        self,
        hosts_folder: pathlib.Path,
        provider: resolve.Provider,
        survey: Survey,
        platform: Platform,
        known: estate.Estate,
        clock: Clock,
    ) -> None:
        self._folder, self._provider, self._survey, self._platform = hosts_folder, provider, survey, platform
        self._estate, self._clock = known, clock
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._threads = concurrent.futures.ThreadPoolExecutor(AT_ONCE, thread_name_prefix="question")

    async def ask(
        self, reference: Reference, shown: Credentials | None, facts: StoreFacts
    ) -> resolve.Resolution | Failure:
        """Ask what a reference is now; `shown` is tried where the node's own credentials are not enough."""
        try:
            async with asyncio.timeout(QUESTION_SECONDS), self._turns:
                held = self._estate.host_holds.get(reference.host, 0.0)
                if held > self._clock.monotonic():
                    return Failure(reason=Reason.HOST_HELD, detail=reference.host, attempts=0, retry_at=held)
                return await self._resolve(reference, shown, facts)
        except RegistryFailed as error:
            return self._failure(reference, error.reason, error.detail, error.retry_after)
        except TimeoutError:
            detail = f"no answer within {QUESTION_SECONDS:.0f} s, with {AT_ONCE} questions at a time"
            return self._failure(reference, Reason.STALLED, detail)

    def close(self) -> None:
        """Ask no more; a thread that hangs is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _resolve(self, reference: Reference, shown: Credentials | None, facts: StoreFacts) -> resolve.Resolution:
        # One for each question: no tenant's token outlives it, and its sockets can be given up.
        registry = Registry(self._folder, timeout_seconds=SILENCE_SECONDS)
        resolver = resolve.Resolver(
            registry, self._provider, self._survey, self._platform, self._threads, is_kept=False
        )
        try:
            return await resolver.resolve(reference, facts, self._clock.utc(), shown)
        finally:
            registry.close()

    def _failure(self, reference: Reference, reason: Reason, detail: str, retry_after: float = 0.0) -> Failure:
        now = self._clock.monotonic()
        failure = warmfailure.failed(
            None, reason, detail, host=reference.host, now=now, jitter=0.0, retry_after=retry_after
        )
        if reason is Reason.TOO_MANY_REQUESTS:
            self._estate.hold(reference.host, failure.retry_at)
        return failure
