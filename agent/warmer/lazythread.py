"""Make blocking calls into one lazily mounted layer, each on a thread with a deadline, at most one at a time.

In: a call. Out: what it returned or raised, or TimeoutError.

Invariant: a mount that hangs holds one thread, and no other layer's: while its call has not returned, every further one
is answered TimeoutError at once. The late return, with whatever result, clears the mark.

Why daemon threads: an executor's threads are joined at exit, and one that hangs in a mount would keep the process. Why
one for each call: they are few (five a second while a layer is read), and idle threads of a hundred layers are many.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class LayerThread:
    """Belongs to one event loop; calls are made one after the other."""

    def __init__(self) -> None:
        self._late: asyncio.Future[Any] | None = None

    async def run(self, call: Callable[[], T], timeout_seconds: float) -> T:
        """Return the call's result or raise what it raised; TimeoutError at the deadline."""
        if self._late is not None and not self._late.done():
            raise TimeoutError
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        done.add_done_callback(_look_at)
        threading.Thread(target=_work, args=(loop, call, done), name="lazy", daemon=True).start()
        self._late = done
        await asyncio.wait((done,), timeout=timeout_seconds)
        if not done.done():
            raise TimeoutError
        return done.result()


def _look_at(late: "asyncio.Future[Any]") -> None:
    late.exception()  # Or asyncio reports one that came late as never retrieved.


def _work(loop: asyncio.AbstractEventLoop, call: Callable[[], T], done: "asyncio.Future[T]") -> None:
    try:
        result = call()
    except Exception as error:  # noqa: BLE001 -- handed to whoever asked for the call
        _hand(loop, done.set_exception, error)
    else:
        _hand(loop, done.set_result, result)


def _hand(loop: asyncio.AbstractEventLoop, finish: Callable[[Any], None], outcome: object) -> None:
    try:
        loop.call_soon_threadsafe(finish, outcome)
    except RuntimeError:
        return  # The loop is closed: nobody waits any more.
