"""A fleet for one benchmark: fake machines, real programs, and nothing left of either afterwards.

In: how many nodes and which settings differ. Out: a Fleet whose admitter and agents run, unscaled.

Invariant: on any way out, Ctrl-C and SIGTERM included, every process has ended before the block is left, readers too. A
reader leads a session of its own and ends with its agent; one that hangs in the fake driver may not, so they are
remembered and looked after here.
"""

import argparse
import contextlib
import math
import os
import pathlib
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import psutil

from hack.fakenode.fleet import Fleet
from hack.fakenode.node import FakeNode

T = TypeVar("T", int, float)

_MEMORY = pathlib.Path("/dev/shm")
_GONE_SECONDS = 5.0
"""How long a reader may take to notice that its agent has ended."""


@contextlib.contextmanager
def fleet(nodes: int, settings: Mapping[str, str] | None = None) -> Iterator[Fleet]:
    """Run a fleet of HGX H100 nodes for as long as the block runs."""
    with scratch("muster-bench-") as folder:
        machines = [FakeNode(folder, f"node-{number}") for number in range(nodes)]
        made = Fleet(folder, machines, scale=1, settings=settings)
        with ending(made):
            made.start()
            yield made


@contextlib.contextmanager
def scratch(prefix: str) -> Iterator[pathlib.Path]:
    """Yield a folder in memory, and make SIGTERM end the block as Ctrl-C does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=_in_memory(), ignore_cleanup_errors=True) as folder:
        yield pathlib.Path(folder)


@contextlib.contextmanager
def ending(made: Fleet) -> Iterator[None]:
    """End a fleet with the block, whatever happens in it."""
    try:
        yield
    finally:
        # Once is enough: what is ending must not be cut short.
        handlers = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
        readers = [reader for name in made.nodes for reader in _readers(made, name)]
        made.stop()
        _, alive = psutil.wait_procs(readers, timeout=_GONE_SECONDS)
        for reader in alive:
            reader.kill()
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _in_memory() -> pathlib.Path | None:
    """Return a folder on tmpfs, where an agent keeps its evidence on a node; None: wherever there is one.

    On a disk every change of evidence waits for the disk, which a node's agent does not. The fake driver is loaded from
    there too, so a folder that nothing may be run from does not do.
    """
    if not os.access(_MEMORY, os.W_OK) or os.statvfs(_MEMORY).f_flag & os.ST_NOEXEC:
        return None
    return _MEMORY


def reader_pid(running: Fleet, name: str) -> int:
    """Return the pid of the reader that a node's agent has started."""
    (reader,) = _readers(running, name)
    return reader.pid


def _readers(running: Fleet, name: str) -> list[psutil.Process]:
    try:
        return psutil.Process(running.pid(name)).children()
    except (KeyError, psutil.NoSuchProcess):
        return []  # Never started, or ended by itself.


def at_least(least: float, kind: Callable[[str], T]) -> Callable[[str], T]:
    """Return an argparse type: a finite number that is not below `least`."""

    def parse(text: str) -> T:
        value = kind(text)
        if not least <= value < math.inf:
            raise argparse.ArgumentTypeError(f"{text} is not a number from {least:g} up")
        return value

    parse.__name__ = "number"  # How argparse calls it when `kind` refuses the text.
    return parse


def machine() -> dict[str, Any]:
    """Return what every figure must be read with."""
    return {
        "hardware": "fake",
        "cpus": len(os.sched_getaffinity(0)),
        "load_1m": round(os.getloadavg()[0], 1),
    }
