"""Keep a KernelLog up to date with the kernel log's file.

Invariant: following never blocks the event loop and never ends for good: an overrun is skipped, any other failure closes
the file, is shown as the plane's reason, and is tried again. A flood is taken in bounded portions.

Why two ways: /dev/kmsg is polled by the loop and gives one record a read; a plain file (tests, demo) is always ready to
the kernel's poll, so it is looked at in short intervals.
"""

import asyncio
import errno
import os
import pathlib
import stat

from agent.reader import kernel_log
from muster.model.reading import Known, Reading, Unknown

_PORTION = 500
"""Records taken before the loop may do something else."""
_RECORD_BYTES = 16 << 10
_FILE_SECONDS = 0.1
_RETRY_SECONDS = 5.0


class Follower:
    """Reads one file into one log; `state` is Known while the file is open."""

    def __init__(self, path: pathlib.Path, log: kernel_log.KernelLog) -> None:
        self._path = path
        self._log = log
        self._opened = asyncio.Event()
        self.state: Reading[bool] = Unknown("NotCollected", "the kernel log has not been opened yet")

    async def caught_up(self, timeout_seconds: float) -> None:
        """Wait until the file was read to its end once, or could not be opened."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._opened.wait()
        except TimeoutError:
            pass

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            try:
                await self._follow()
            except OSError as error:
                reason = "NoPermission" if error.errno in (errno.EPERM, errno.EACCES) else "Unreadable"
                self.state = Unknown(reason, str(error))
                self._opened.set()
            await asyncio.sleep(_RETRY_SECONDS)

    async def _follow(self) -> None:
        descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            self._log.restart()
            self.state = Known(True)  # noqa: FBT003
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                await self._follow_file(descriptor)
            else:
                await self._follow_device(descriptor)
        finally:
            os.close(descriptor)

    async def _follow_file(self, descriptor: int) -> None:
        while True:
            while data := os.read(descriptor, _PORTION * 100):
                self._log.feed_file(data)
                await asyncio.sleep(0)
            self._opened.set()
            await asyncio.sleep(_FILE_SECONDS)

    async def _follow_device(self, descriptor: int) -> None:
        ready = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(descriptor, ready.set)
        try:
            while True:
                if self._drain(descriptor):
                    ready.clear()
                    self._opened.set()
                    await ready.wait()
                else:
                    await asyncio.sleep(0)
        finally:
            loop.remove_reader(descriptor)

    def _drain(self, descriptor: int) -> bool:
        """Take one portion; True when there is no more for now."""
        for _ in range(_PORTION):
            try:
                record = os.read(descriptor, _RECORD_BYTES)
            except BlockingIOError:
                return True
            except OSError as error:
                if error.errno != errno.EPIPE:  # Overrun: the next read goes on with what is left in the ring.
                    raise
                continue
            if not record:
                raise OSError(errno.EIO, "the kernel log was closed")
            self._log.feed_record(record)
        return False
