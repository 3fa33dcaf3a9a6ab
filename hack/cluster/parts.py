"""One started program of a cluster: start it, ask whether it works, stop it.

In: a command and where its log goes. Out: a Part that can be written down and found again by a later process.

Invariant: only what was started here is ever signalled. A process is known by its pid, the boot and its start in it, so
that a pid the kernel has given to somebody else, or gave before a reboot, is left alone. The start is counted from the
boot, because the wall clock may be set.

Why a mark in the environment: a starter that is killed may have started one process more than it has written down, and
a part's child outlives it. Whatever carries the mark of a cluster's folder belongs to it.

Why no supervisor: a part that dies stays dead, and `status` says so; a cluster for tests that heals itself would hide
what broke it.

Not here: which parts there are, and in which order (run.py).
"""

import contextlib
import dataclasses
import http
import os
import pathlib
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence

import psutil

from hack.cluster import pki

ANSWER_SECONDS = 2.0
TERM_SECONDS = 10.0
_BOOT = pathlib.Path("/proc/sys/kernel/random/boot_id")
MARK = "MUSTER_CLUSTER_LOGS"
"""Environment variable of every process of a cluster: the folder of its logs."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A process of ours and how to ask whether it works."""

    name: str
    pid: int
    birth: str
    """The boot and the process' start in it; with the pid, its identity."""
    probe: str
    """What answers 200 while the part works; empty where being alive is all there is to ask."""
    log: pathlib.Path
    command: tuple[str, ...]

    def process(self) -> psutil.Process | None:
        """Return the process while it runs and is still the one that was started."""
        try:
            process = psutil.Process(self.pid)
            ours = birth(self.pid) == self.birth
            return process if ours and process.status() != psutil.STATUS_ZOMBIE else None
        except (psutil.NoSuchProcess, OSError):
            return None


def birth(pid: int) -> str:
    """Return when a process was born: the boot, and the kernel's clock ticks since then (proc(5), field 22)."""
    after_name = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return f"{_BOOT.read_text().strip()} {after_name[19]}"


def start(name: str, command: Sequence[str], *, probe: str, log: pathlib.Path) -> Part:
    """Start a program in a session of its own, so that an interrupt at the terminal does not reach it."""
    # posix_spawn and not Popen: a Popen object warns when it is dropped before its process, and it will be.
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    environment = {**os.environ, MARK: str(log.parent)}
    pid = os.posix_spawn(command[0], [*command], environment, file_actions=actions, setsid=True)
    return Part(name=name, pid=pid, birth=birth(pid), probe=probe, log=log, command=tuple(command))


def client_context(authority: pathlib.Path, pair: pki.Pair) -> ssl.SSLContext:
    """Return how the probes authenticate."""
    context = ssl.create_default_context(cafile=str(authority))
    context.load_cert_chain(pair.certificate, pair.key)
    return context


def fault(part: Part, context: ssl.SSLContext) -> str:
    """Return what is wrong with a part, or an empty text."""
    if part.process() is None:
        return "not running"
    if not part.probe:
        return ""
    try:
        with opener(context).open(part.probe, timeout=ANSWER_SECONDS) as answer:
            return "" if answer.status == http.HTTPStatus.OK else f"answers {answer.status}"
    except urllib.error.HTTPError as error:
        return f"answers {error.code}"
    except OSError as error:
        return f"no answer: {getattr(error, 'reason', error)}"


def opener(context: ssl.SSLContext) -> urllib.request.OpenerDirector:
    # Without proxies: a machine that names one in its environment must still find its own loopback interface.
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))


def wait_until_ready(part: Part, context: ssl.SSLContext, *, seconds: float) -> str:
    """Wait until a part works; return what is wrong with it when it died or the time is up."""
    deadline = time.monotonic() + seconds
    while True:
        wrong = fault(part, context)
        if part.process() is None:
            return "not running"
        if not wrong or time.monotonic() > deadline:
            return wrong
        time.sleep(0.1)


def stop(part: Part) -> None:
    """End the process and everything below it: politely first, then not."""
    process = part.process()
    if process is None:
        # Where it was a child of this process and died by itself, it still waits to be asked how.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(part.pid, os.WNOHANG)
        return
    with contextlib.suppress(psutil.NoSuchProcess):
        _end([process, *process.children(recursive=True)])


def kill(part: Part) -> None:
    """End a part at once, as a crash does. What it started and let go of lives on."""
    process = part.process()
    if process is not None:
        with contextlib.suppress(psutil.NoSuchProcess):
            _end([process, *process.children(recursive=True)], [psutil.Process.kill])


def stop_strays(logs: pathlib.Path) -> None:
    """End what carries the mark of these logs and is still there: nobody has written it down."""
    marked = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == str(logs) and process.pid != os.getpid():
                marked.append(process)
    _end(marked)


_POLITELY_FIRST = (psutil.Process.terminate, psutil.Process.kill)


def _end(left: list[psutil.Process], ways: Sequence[Callable[[psutil.Process], None]] = _POLITELY_FIRST) -> None:
    for end in ways:
        for each in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                end(each)
        deadline = time.monotonic() + TERM_SECONDS
        while (left := [each for each in left if _lives(each)]) and time.monotonic() < deadline:
            time.sleep(0.02)


def _lives(process: psutil.Process) -> bool:
    """Return whether a process still runs. One that has ended and waits to be asked how does not: that may take long."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def restart(part: Part) -> Part:
    """Stop a part and start it again as it was; return the new one."""
    stop(part)
    return start(part.name, part.command, probe=part.probe, log=part.log)


def pss_mib(part: Part) -> float:
    """Return the memory that the part's process costs, shared pages divided among their users."""
    process = part.process()
    return round(process.memory_full_info().pss / 2**20, 1) if process else 0.0
