"""Open and close the driver: load its library, count opens, notice that it was exchanged.

Invariant: opens and closes are paired, also when an open outlived its deadline and succeeded late. Once a library is
loaded this process uses no other: a driver that changed, or went away under an open session, ends the process
(EXIT_DRIVER_CHANGED), because the binding keeps the old library and its function pointers (design.md section 8).

A driver that is not there yet is looked for at every read; that costs a few stat calls.
"""

from collections.abc import Callable

from agent.core import nvml_codes
from agent.reader import config, library, nvml, workers
from muster.model.reading import Known, Reading, Unknown

EXIT_DRIVER_CHANGED = 10


class Driver:
    """The driver of this process. Not for concurrent use: session.py holds a lock around it."""

    def __init__(self, settings: config.ReaderConfig, end: Callable[[int, str], None]) -> None:
        self._settings = settings
        self._end = end
        self.worker = workers.Worker("nvml-system")
        self._opens = 0
        self._library: tuple[str, int, int] | None = None
        self._is_loaded = False
        self._module: Reading[str] = Unknown("NotCollected")

    @property
    def is_open(self) -> bool:
        """NVML has counted an open of ours."""
        return self._opens > 0

    async def open(self) -> Unknown | None:
        """Open NVML; return why it cannot be opened."""
        path = library.find(self._settings.driver_roots)
        mark = library.mark(path)
        if self._is_loaded and mark != self._library:
            self._end(EXIT_DRIVER_CHANGED, f"the driver's library changed: {path or 'gone'}")
            return Unknown(nvml_codes.LIBRARY_NOT_FOUND, "the driver's library changed")

        def init() -> None:
            if path is not None and not self._is_loaded:
                nvml.load(path)
                self._library, self._is_loaded = mark, True
            nvml.init()
            self._opens += 1
            self._module = self.read_module_version()

        try:
            await self.worker.run(init, self._settings.call_timeout_seconds)
        except nvml.NvmlError as error:
            return Unknown(error.reason, str(error))
        except workers.Overdue:
            return Unknown(nvml_codes.TIMEOUT, "opening NVML")
        return None

    async def close(self) -> bool:
        """Close NVML as often as it was opened; False if that did not succeed."""

        def shutdown() -> None:
            while self._opens:
                nvml.shutdown()
                self._opens -= 1

        try:
            await self.worker.run(shutdown, self._settings.call_timeout_seconds)
        except (nvml.NvmlError, workers.Overdue):
            return False
        return True

    def read_module_version(self) -> Reading[str]:
        """Return the loaded kernel module's version; on the worker, since procfs of a sick driver may hang."""
        return library.read_module_version(self._settings.proc_root, self._settings.sysfs_root)

    def check_module(self, now: Reading[str]) -> None:
        """End the process if the kernel module is another one than when the session was opened."""
        match self._module, now:
            case Known(before), Known(after) if before != after:
                self._end(EXIT_DRIVER_CHANGED, f"the kernel module changed from {before} to {after}")
            case _:
                pass

    def check_answer(self, reason: str) -> None:
        """End the process if an answer in an open session says that the driver is no longer there."""
        if reason in nvml_codes.DRIVER_GONE:
            self._end(EXIT_DRIVER_CHANGED, f"the driver went away: {reason}")
