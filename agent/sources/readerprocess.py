"""Keep a reader running as a child process: start it, start it again when it ends or was asked to be replaced.

Input: the command line and environment of a reader. Effect: one child, or none; after `stop`, none.

Invariant: nothing here waits for a child longer than a set time. One that hangs in the driver cannot even be killed
before the driver lets go (state D); it is left behind and replaced.

Not here: when a reader hangs and how often it may be replaced (hungreader.py), and the same in a cluster, where the kubelet
restarts the reader's container.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence

_log = logging.getLogger("muster.agent.reader")

FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0
HEALTHY_SECONDS = 30.0
"""A reader that ran this long had no trouble starting: the next pause is the first again."""
_LOOK_SECONDS = 0.5
_TERM_SECONDS = 3.0
_KILL_SECONDS = 5.0
"""A busy machine takes its time to bury even a killed process; one in state D takes for ever."""


class ReaderProcess:
    """One supervised child."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        self._argv = tuple(argv)
        self._environment = dict(environment)
        self._child: asyncio.subprocess.Process | None = None
        self._abandoned: list[asyncio.subprocess.Process] = []
        self._task: asyncio.Task[None] | None = None
        self._is_unwanted = False
        self.started_at: float | None = None
        """When (monotonic) the newest child was started; None before the first."""
        self.starts = 0
        self.last_exit_code: int | None = None

    @property
    def pid(self) -> int | None:
        """The running child's process id."""
        return self._child.pid if self._child is not None and self._child.returncode is None else None

    def start(self) -> None:
        """Start and supervise in the background."""
        self._task = asyncio.get_running_loop().create_task(self._supervise())

    def replace(self) -> bool:
        """Have the running child killed, so that another one starts; False if none runs."""
        if self.pid is None:
            return False
        self._is_unwanted = True
        return True

    async def stop(self) -> None:
        """End the child."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        if self._child is not None:
            await self._end(self._child)
            self.last_exit_code, self._child = self._child.returncode, None

    async def _supervise(self) -> None:
        loop = asyncio.get_running_loop()
        pause = FIRST_PAUSE_SECONDS
        while True:
            started = loop.time()
            try:
                await self._run_one()
            except OSError as error:
                _log.error("the reader cannot be started: %s", error)
            if loop.time() - started >= HEALTHY_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def _run_one(self) -> None:
        """Run one child to its end."""
        # The child ends when its standard input does: nothing is left behind, however this process dies.
        child = await asyncio.create_subprocess_exec(
            *self._argv, env=self._environment, stdin=asyncio.subprocess.PIPE, start_new_session=True
        )
        self._child, self._is_unwanted = child, False
        self.starts += 1
        self.started_at = asyncio.get_running_loop().time()
        # One wait for its whole life: asyncio keeps every wait that was given up until the child ends.
        ended = asyncio.ensure_future(child.wait())
        try:
            while not ended.done():
                await asyncio.wait((ended,), timeout=_LOOK_SECONDS)
                if self._is_unwanted and not ended.done():
                    await self._kill(child)
                    return
        finally:
            ended.cancel()
        self.last_exit_code = child.returncode
        _log.warning("the reader ended with exit code %s", child.returncode)

    async def _end(self, child: asyncio.subprocess.Process) -> None:
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                child.terminate()
            if not await self._has_ended(child, _TERM_SECONDS):
                await self._kill(child)

    async def _kill(self, child: asyncio.subprocess.Process) -> None:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        if not await self._has_ended(child, _KILL_SECONDS):
            self._abandoned.append(child)  # Kept, so that it is reaped should the driver ever let go.
            _log.error("the reader (pid %d) does not die: it hangs in the driver and is left behind", child.pid)

    @staticmethod
    async def _has_ended(child: asyncio.subprocess.Process, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await child.wait()
        except TimeoutError:
            return False
        return True
