"""The NVML session: in which mode it is, who is reading, and how it is proved closed.

Invariant: NVML is touched only between `begin` and `finish` of a read, or by the event pump, which the session starts
and stops. In mode `closed` nothing opens NVML. What a close could not release, because a call still hangs in the driver,
is named, and the process ends so that the kernel releases it: closing NVML under a running call is undefined. Between
short passes it waits for the call instead, and is closed after the first pass that finds none.

Modes (design.md section 8): open = one session and one event set, held; closed = maintenance; short = open, read, close
around every pass.
"""

import asyncio
import enum
import os
import pathlib
import re
from collections.abc import Callable, Iterable

from agent.core import nvml_codes
from agent.reader import config, driver, events, identities, nvml, workers
from muster.model.reading import Unknown

EXIT_STUCK = 11
"""A close was asked for while a call hung in the driver."""

_SHORT_IDLE_SECONDS = 0.25
"""In short mode the session ends this long after a pass's last read."""
_CLOSE_SECONDS = 1.0
"""Reads in flight get this long to end: a close is due within 2 s (design.md section 8)."""
_DEVICE_FILE = re.compile(r"/nvidia[^/]*(?:/[^/]+)?\Z")


class Mode(enum.StrEnum):
    OPEN = "open"
    CLOSED = "closed"
    SHORT = "short"


class Session:
    """The one session of this process."""

    def __init__(
        self,
        settings: config.ReaderConfig,
        *,
        generation: int,
        on_event: Callable[[str, nvml.Event], None],
        on_state: Callable[[str, str], None],
        end: Callable[[int, str], None],
    ) -> None:
        self._settings = settings
        self._on_event = on_event
        self._on_state = on_state
        self._end = end
        self.driver = driver.Driver(settings, end)
        self.drains = workers.Worker("nvml-drain")
        """Asks about functions that have no device."""
        self.identities = identities.Identities(generation)
        self.mode = Mode.OPEN
        self.pump: events.Pump | None = None
        self._reason = ""
        self._devices: dict[int, workers.Worker] = {}
        self._lock = asyncio.Lock()
        self._reads = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._begun = 0
        self._idle: set[asyncio.Task[None]] = set()

    def device_worker(self, index: int) -> workers.Worker:
        """Return the worker of the device at an index."""
        if index not in self._devices:
            self._devices[index] = workers.Worker(f"nvml-device-{index}")
        return self._devices[index]

    async def begin(self) -> Unknown | None:
        """Start a read: NVML is open until `finish`. Or return why it is not; then there is nothing to finish."""
        refused = await self.open()
        if refused is None:
            # Nothing is awaited since the lock was released: a close sees this read.
            self._reads += 1
            self._begun += 1
            self._quiet.clear()
        return refused

    def finish(self) -> None:
        """End a read."""
        self._reads -= 1
        if self._reads == 0:
            self._quiet.set()
            if self.mode is Mode.SHORT:
                task = asyncio.get_running_loop().create_task(self._close_when_idle(self._begun))
                self._idle.add(task)
                task.add_done_callback(self._idle.discard)

    async def open(self) -> Unknown | None:
        """Open NVML unless it is; return why it cannot be."""
        async with self._lock:
            if self.mode is Mode.CLOSED:
                return Unknown(nvml_codes.MAINTENANCE, self._reason)
            if not self.driver.is_open:
                refused = await self.driver.open()
                if refused is not None:
                    return refused
            if self.mode is Mode.OPEN and self.pump is None:
                self.pump = events.Pump(
                    self.driver.worker,
                    self.device_worker,
                    self.identities,
                    on_event=self._on_event,
                    on_registered=lambda: self._on_state("opened", ""),
                    timeout_seconds=self._settings.call_timeout_seconds,
                )
                self.pump.start()
            return None

    async def set_mode(self, mode: Mode, reason: str) -> tuple[str, ...]:
        """Change the mode; for a close, return what is still open."""
        if mode is self.mode:
            return self.open_device_files() if mode is Mode.CLOSED else ()
        self.mode, self._reason = mode, reason
        if mode is Mode.OPEN:
            return ()
        left = await self._close(reason)
        if left:
            self._end(EXIT_STUCK, f"closing left {', '.join(left)} open")
        return left

    async def retire(self, reason: str) -> tuple[str, ...]:
        """Close for good: the process ends. Return what is still open."""
        self.mode, self._reason = Mode.CLOSED, reason
        return await self._close(reason)

    async def _close(self, reason: str) -> tuple[str, ...]:
        """End the pump, wait for reads in flight, close NVML; return the device files that are still open."""
        async with self._lock:
            pump, self.pump = self.pump, None
            was_open = self.driver.is_open
            can_close = pump is None or await pump.stop()
            try:
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._quiet.wait()
            except TimeoutError:
                pass
            if can_close and self._is_idle():
                await self.driver.close()
            if was_open:
                self._on_state("closed", reason)
            return self.open_device_files()

    async def _close_when_idle(self, begun: int) -> None:
        await asyncio.sleep(_SHORT_IDLE_SECONDS)
        async with self._lock:
            if self._begun == begun and self.mode is Mode.SHORT and self._is_idle():
                await self.driver.close()

    def _is_idle(self) -> bool:
        """No read is in flight, and none that ran out of time is still in the driver; its own worker refuses for itself."""
        late = any(worker.is_overdue for worker in (self.drains, *self._devices.values()))
        return self._quiet.is_set() and not late

    def open_device_files(self) -> tuple[str, ...]:
        """Return the driver's device files that this process or a child of it holds open."""
        proc = pathlib.Path("/proc")  # Our own descriptors, whatever root the host's processes are read from.
        pids = ("self", *_children(proc / "self"))
        files = {target for pid in pids for target in _targets(proc / pid / "fd")}
        hosts = (str(self._settings.proc_root), str(self._settings.sysfs_root))
        return tuple(sorted(name for name in files if _DEVICE_FILE.search(name) and not name.startswith(hosts)))


def _children(process: pathlib.Path) -> Iterable[str]:
    for task in (process / "task").glob("*/children"):
        try:
            yield from task.read_text().split()
        except OSError:
            continue


def _targets(directory: pathlib.Path) -> Iterable[str]:
    try:
        entries = os.listdir(directory)
    except OSError:
        return
    for entry in entries:
        try:
            yield os.readlink(directory / entry)
        except OSError:
            continue
