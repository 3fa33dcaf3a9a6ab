"""Run NVML jobs on threads of their own, each with a deadline, and never pile up on a device that hangs.

A call into the driver can take tens of seconds or never return, and cannot be cancelled (topology.md section 1.4). So
every device has one thread, and whoever waits for it stops waiting at the deadline.

Invariant: at most one job of a worker is outstanding. While one is overdue, every further job is answered Overdue at
once; the late return of the first, with whatever result, clears the mark.

Why daemon threads: an executor's threads are joined at exit, and one that hangs in the driver would keep the process.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Overdue(Exception):
    """The job did not finish in time, or an earlier one still has not."""


class Worker:
    """One thread; belongs to one event loop."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._turn = asyncio.Lock()
        self._late: asyncio.Future[Any] | None = None
        self.busy_seconds = 0.0
        """Time spent in jobs that have returned."""

    @property
    def is_overdue(self) -> bool:
        """A job has missed its deadline and not returned since."""
        return self._late is not None and not self._late.done()

    async def run(self, job: Callable[[], T], timeout_seconds: float) -> T:
        """Return the job's result or raise what it raised; Overdue at the deadline."""
        if self.is_overdue:
            raise Overdue(self._name)
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._turn.acquire()
        except TimeoutError:
            raise Overdue(self._name) from None
        try:
            return await self._run_alone(job, timeout_seconds)
        finally:
            self._turn.release()

    async def _run_alone(self, job: Callable[[], T], timeout_seconds: float) -> T:
        if self.is_overdue:
            raise Overdue(self._name)
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._start()
        self._jobs.put((job, done))
        try:
            finished, _ = await asyncio.wait((done,), timeout=timeout_seconds)
        except asyncio.CancelledError:
            self._abandon(done)
            raise
        if not finished:
            self._abandon(done)
            raise Overdue(self._name)
        return done.result()

    def _abandon(self, done: "asyncio.Future[Any]") -> None:
        self._late = done
        done.add_done_callback(lambda late: late.exception())  # Looked at, or asyncio reports it as never retrieved.

    def stop(self) -> None:
        """Let the thread end after its job."""
        self._jobs.put(None)

    def _start(self) -> None:
        if self._thread is None:
            loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._work, args=(loop,), name=self._name, daemon=True)
            self._thread.start()

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        while (entry := self._jobs.get()) is not None:
            job, done = entry
            started = time.monotonic()
            try:
                outcome: tuple[Any, BaseException | None] = (job(), None)
            except Exception as error:  # noqa: BLE001 -- handed to whoever asked for the job
                outcome = (None, error)
            elapsed = time.monotonic() - started
            try:
                loop.call_soon_threadsafe(self._finish, done, outcome, elapsed)
            except RuntimeError:  # The loop is closed: nobody waits any more.
                return

    def _finish(self, done: "asyncio.Future[Any]", outcome: tuple[Any, BaseException | None], elapsed: float) -> None:
        self.busy_seconds += elapsed
        result, error = outcome
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)
