"""Ask registries what references are now, whenever one is due, beside everything else.

In: what is due (estate.py). Out: resolutions and failures, into the estate.

Invariants: each host is asked for one thing after the other, so that a refusal is had once and holds the host for all its
images. Of hosts AT_ONCE are asked at a time, in threads of their own: pulls have others. One that hangs, or drips, is given
up after ASK_SECONDS, its sockets and its thread with it. The warmer's loop waits for none.
"""

import asyncio
import concurrent.futures
import logging
from collections.abc import Callable

from agent.model.warm import Reason, Reference, StoreFacts
from agent.warmer import estate, resolve
from agent.warmer.client import CallFailed
from agent.warmer.registry import RegistryFailed
from muster.clock import Clock

_log = logging.getLogger("muster.warmer")

AT_ONCE = 8
ASK_SECONDS = 180.0
"""For one image: three small answers and a credential provider, which has 30 s. Slower is a stall, and tried again."""


class Asking:
    """Asks for one warmer."""

    def __init__(
        self, resolver: resolve.Resolver, known: estate.Estate, clock: Clock, wake: Callable[[], None]
    ) -> None:
        self._resolver, self._estate, self._clock, self._wake = resolver, known, clock, wake
        self._hosts: dict[str, asyncio.Task[None]] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._threads = concurrent.futures.ThreadPoolExecutor(AT_ONCE, thread_name_prefix="resolve")

    def go_on(self, facts: StoreFacts) -> None:
        """Begin at every host where something is due and nothing is being asked."""
        for host, task in list(self._hosts.items()):
            if task.done():
                task.result()
                del self._hosts[host]
        by_host: dict[str, list[Reference]] = {}
        for reference in self._estate.due():
            by_host.setdefault(reference.host, []).append(reference)
        for host, references in by_host.items():
            if host not in self._hosts:
                task = asyncio.create_task(self._ask_host(references, facts), name=f"resolve {host}")
                task.add_done_callback(lambda _: self._wake())
                self._hosts[host] = task

    async def close(self) -> None:
        """Ask no more; a thread that hangs is not waited for."""
        for task in self._hosts.values():
            task.cancel()
        await asyncio.gather(*self._hosts.values(), return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _ask_host(self, references: list[Reference], facts: StoreFacts) -> None:
        for reference in references:
            if self._estate.host_holds.get(reference.host, 0.0) > self._clock.monotonic():
                return
            secrets = self._estate.secrets
            try:
                self._estate.resolved(reference, await self._ask(reference, facts))
            except TimeoutError:
                self._estate.failed(reference, Reason.STALLED, f"no answer within {ASK_SECONDS:.0f} s")
                _log.warning("%s was not resolved within %.0f s", reference, ASK_SECONDS)
            except (RegistryFailed, CallFailed) as error:
                after = error.retry_after if isinstance(error, RegistryFailed) else 0.0
                is_missing = error.reason in resolve.WITHOUT_PROOF and secrets.lacks(reference)
                reason = Reason.SECRET_MISSING if is_missing else error.reason
                self._estate.failed(reference, reason, error.detail, after)
                _log.warning("%s was not resolved: %s", reference, error)
            except Exception as error:  # noqa: BLE001 -- one registry's answer must not end the others' images
                self._estate.failed(reference, Reason.PULL_FAILED, repr(error))
                _log.error("%s was not resolved, by a fault of ours", reference, exc_info=error)
            self._wake()

    async def _ask(self, reference: Reference, facts: StoreFacts) -> resolve.Resolution:
        async with self._turns:
            asker = self._resolver.branch(self._threads)
            try:
                async with asyncio.timeout(ASK_SECONDS):
                    return await asker.resolve(reference, facts, self._clock.utc(), self._estate.secrets.of(reference))
            finally:
                asker.close()
