"""Have a program judge images before any node is told to fetch them.

In: names with digest. Out: whether the program let them pass; None: it has not ended yet.

Invariants: a name is judged once while it is remembered; one program runs at a time. Whatever is not exit status 0 within
`SECONDS` is a no, and is asked again after `AGAIN_SECONDS`.

Why in the admitter: a digest is judged once for the fleet, and no node needs the keys.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence

import structlog

_LOG = structlog.get_logger(__name__)

SECONDS = 30.0
AGAIN_SECONDS = 300.0
_KEPT = 4096


class Verifier:
    """Belongs to one event loop. Without a program everything passes."""

    def __init__(self, argv: Sequence[str], monotonic: Callable[[], float]) -> None:
        self._argv, self._monotonic = tuple(argv), monotonic
        self._verdicts: dict[str, tuple[bool, float]] = {}
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._waiting: set[str] = set()

    def passes(self, name: str) -> bool:
        """Return whether an image was let pass; have it judged if nobody has."""
        if not self._argv:
            return True
        verdict = self._verdicts.get(name)
        if verdict is not None and (verdict[0] or self._monotonic() - verdict[1] < AGAIN_SECONDS):
            return verdict[0]
        if name not in self._waiting and len(self._waiting) < _KEPT:
            self._waiting.add(name)
            self._queue.put_nowait(name)
        return False

    def refuses(self, name: str) -> bool:
        """Return whether an image was judged and not let pass, the last time."""
        passed, _ = self._verdicts.get(name, (True, 0.0))
        return not passed

    async def run(self) -> None:
        """Judge until cancelled."""
        while True:
            name = await self._queue.get()
            passed = await self._judge(name)
            self._waiting.discard(name)
            self._verdicts.pop(name, None)
            self._verdicts[name] = (passed, self._monotonic())
            while len(self._verdicts) > _KEPT:
                del self._verdicts[next(iter(self._verdicts))]

    async def _judge(self, name: str) -> bool:
        process = None
        try:
            async with asyncio.timeout(SECONDS):
                process = await asyncio.create_subprocess_exec(
                    *self._argv,
                    name,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.DEVNULL,
                )
                status = await process.wait()
        except (OSError, TimeoutError) as error:
            _LOG.warning("an image could not be verified", image=name, why=str(error) or f"no end within {SECONDS:g} s")
            return False
        finally:
            if process is not None and process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        _LOG.info("image verified", image=name, status=status)
        return status == 0
