"""What the reader's container is probed for: a reader that is stopped fails, one whose driver hangs does not.

Agent and reader are two programs, as in their two containers; the test asks what the kubelet would ask.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from hack.fakenode import host
from hack.fakenode.fleet import free_port, wait_until
from hack.fakenode.node import FakeNode
from muster import settings
from tests.e2e.test_scrape import WAIT_SECONDS, page_of

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SILENT_SECONDS = 2
CYCLES = 'muster_agent_events_total{event="cycles"}'


class Pod:
    """One pod of the DaemonSet."""

    def __init__(self, folder):
        self.node = FakeNode(folder, "gpu-a1")
        self.port = free_port()
        self.log = folder / "pod.log"
        self.reader = self.agent = None

    def __enter__(self):
        self.node.start()
        flags = {
            **self.node.agent_flags(),
            "--metrics-address": f"127.0.0.1:{self.port}",
            "--poll-seconds": "0.3",
            "--start-jitter-seconds": "0",
            "--nvml-deadline-seconds": "0.5",
            "--nvml-slow-deadline-seconds": "0.5",
            "--reader-silent-seconds": str(SILENT_SECONDS),
        }
        del flags["--spawn-reader"], flags["--reader-arguments"]
        self.reader = self.start("read", self.reader_environment())
        self.agent = self.start("run", self.node.environment(), *(part for flag in flags.items() for part in flag))
        return self

    def __exit__(self, *_):
        for process in filter(None, (self.agent, self.reader)):
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()
        self.node.stop()

    def reader_environment(self):
        given = {**host.reader_settings(self.node.root), "socket": str(self.node.folder / "reader.sock")}
        given["call_timeout_seconds"] = given["static_timeout_seconds"] = "0.5"
        named = {settings.variable_of("MUSTER_READER", name): value for name, value in given.items()}
        return {**self.node.environment(), **named}

    def start(self, *command_and_environment):
        command, environment, *flags = command_and_environment
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "agent.main", command, *flags],
                env={**environment, "PYTHONPATH": os.getcwd()},
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    def probe(self):
        """Ask as the kubelet does; 0: nobody listens yet."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readerz", timeout=10) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except OSError:
            return 0

    def until(self, look):
        assert wait_until(look, WAIT_SECONDS), self.log.read_text()[-4000:]

    def figure(self, name):
        for line in page_of(self.port).splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[1])
        return 0.0


@pytest.fixture
def pod(tmp_path):
    with Pod(tmp_path) as made:
        made.until(lambda: made.probe() == 200 and 'count="admit_strict"' in page_of(made.port))
        yield made


def test_a_stopped_reader_fails_its_probe_until_it_goes_on(pod):
    pod.reader.send_signal(signal.SIGSTOP)
    pod.until(lambda: pod.probe() == 503)
    assert pod.agent.poll() is None
    pod.reader.send_signal(signal.SIGCONT)
    pod.until(lambda: pod.probe() == 200)


def test_a_reader_that_is_killed_fails_and_the_next_one_is_well_at_once(pod):
    pod.reader.kill()
    pod.reader.wait()
    pod.until(lambda: pod.probe() == 503)
    pod.reader = pod.start("read", pod.reader_environment())
    pod.until(lambda: pod.probe() == 200)


def test_a_driver_that_hangs_is_no_reason_to_end_the_reader(pod):
    """Every call hangs, for many cycles and longer than a silent reader is given: the reader says so and is left alone."""
    pod.node.drive(lambda state: state.with_fault("*", hang=True))
    pod.until(lambda: 'cause="NvmlHangGsp"' in page_of(pod.port))
    cycles, began, seen = pod.figure(CYCLES), time.monotonic(), set()

    def has_hung_for_long():
        seen.add(pod.probe())
        return pod.figure(CYCLES) - cycles >= 5 and time.monotonic() - began > 3 * SILENT_SECONDS

    pod.until(has_hung_for_long)
    assert seen == {200}
    assert pod.reader.poll() is None
