"""A fleet whose start is cut short leaves no process behind."""

import contextlib
import os
import signal
import threading
import time

import psutil
import pytest

from hack.fakenode.fleet import Fleet
from hack.fakenode.node import FakeNode

SECONDS = 30
MOMENTS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4)
"""From the beginning of a start to the signal: some fall into the start of a process, wherever the machine is slow."""


def left_behind(folder):
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            found += [process.cmdline()] * any(str(folder) in part for part in process.cmdline())
    return found


@pytest.fixture
def cut_short():
    """Return a function that has Ctrl-C's exception come after so many seconds."""
    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    yield lambda seconds: threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.e2e
def test_a_start_that_is_cut_short_leaves_nothing_behind(tmp_path, cut_short):
    interrupted = 0
    for number, moment in enumerate(MOMENTS):
        folder = tmp_path / str(number)
        folder.mkdir()
        try:
            with Fleet(folder, [FakeNode(folder, name) for name in ("a", "b", "c", "d")], scale=0.1) as fleet:
                cut_short(moment)
                fleet.start()
                time.sleep(1)
        except KeyboardInterrupt:
            interrupted += 1
    end = time.monotonic() + SECONDS
    while left_behind(tmp_path) and time.monotonic() < end:
        time.sleep(0.1)
    assert (interrupted, left_behind(tmp_path)) == (len(MOMENTS), [])
