"""Programs of other people's packages, started as children that cannot outlive whoever started them."""

import pathlib
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

START_SECONDS = 60.0


class Missing(Exception):
    """A program is not on this machine; the text says which package brings it."""


class DidNotStart(Exception):
    """A program ended, or did not answer in time; the text holds the end of its log."""


def find(name: str, package: str) -> pathlib.Path:
    """Return the path of a program, or raise Missing."""
    found = shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin")
    if found is None:
        raise Missing(f"no {name}; on Debian or Ubuntu: apt-get install {package}")
    return pathlib.Path(found)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Child:
    """One daemon, its log in a file."""

    def __init__(self, command: Sequence[str], log: pathlib.Path, environment: Mapping[str, str] | None = None) -> None:
        # The kernel kills it when its parent dies, however that dies.
        self._command = ["setpriv", "--pdeathsig", "KILL", *command]
        self._log, self._environment = log, environment
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, answers: Callable[[], bool]) -> None:
        """Start and wait until it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment
            )
        deadline = time.monotonic() + START_SECONDS
        while not answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise DidNotStart(f"{self._command[3]}: {self._log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.05)

    def kill(self) -> None:
        """End it as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ask it to end; kill it if it does not."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None
