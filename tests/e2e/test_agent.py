"""The agent as a process, on a fake machine: real driver binding, real sockets, real signals."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from agent.model import planes
from hack import fakenvml
from hack.fakenode import kubeletstate
from hack.fakenode.node import GPU_RESOURCE, FakeNode
from muster.model import jsonform

pytestmark = pytest.mark.e2e

WAIT_SECONDS = 60.0


class Agent:
    """One `muster-agent run` with its reader, read through /metrics alone."""

    def __init__(self, folder):
        self.node = FakeNode(folder, "gpu-a1")
        self.log = folder / "agent.log"
        self.port = 0

    def __enter__(self):
        self.node.start()
        self.start()
        return self

    def start(self):
        flags = {
            **self.node.agent_flags(),
            "--metrics-address": "127.0.0.1:0",
            "--poll-seconds": "0.3",
            "--start-jitter-seconds": "0",
            "--slow-seconds": "0.3",
        }
        command = [sys.executable, "-m", "agent.main", "run", *(part for flag in flags.items() for part in flag)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, env=self.environment, stderr=log, start_new_session=True)
        self.port = self.until(self._port_in_log)

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        self.node.stop()
        with contextlib.suppress(ProcessLookupError, TypeError):
            os.kill(self.reader_pid, signal.SIGKILL)

    @property
    def environment(self):
        return {**self.node.environment(), "PYTHONPATH": os.getcwd()}

    def _port_in_log(self):
        for line in self.log.read_text().splitlines():
            with contextlib.suppress(ValueError):
                if "port" in (entry := json.loads(line)):
                    return entry["port"]
        return None

    def until(self, look):
        """Return the first true answer; fail with the agent's log when none comes."""
        end = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < end:
            if answer := look():
                return answer
            time.sleep(0.05)
        pytest.fail(f"not seen: {look}\n{self.log.read_text()[-4000:]}")

    def metrics(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
                lines = answer.read().decode().splitlines()
        except urllib.error.URLError:
            return {}
        return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))

    def units(self, count):
        return self.metrics().get(f'muster_node_units{{count="{count}",resource="{GPU_RESOURCE}"}}')

    def until_units(self, count, wanted):
        self.until(lambda: self.units(count) == wanted or None)

    @property
    def reader_pid(self):
        """The child, found the way an operator finds it."""
        for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                if int(path.read_text().rpartition(")")[2].split()[1]) == self.process.pid:
                    return int(path.parent.name)
        return None

    def command(self, *arguments):
        command = [sys.executable, "-m", "agent.main", *arguments]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    with Agent(tmp_path_factory.mktemp("machine")) as made:
        made.until_units("admit_strict", "8.0")
        yield made


def test_a_lost_gpu_comes_back_by_a_reset_that_a_release_allows(agent):
    """Strict capacity falls with the GPU; the driver is closed with proof, so that it can be reset; then all is back."""
    control = str(agent.node.folder / "agent.sock")
    agent.node.lose_gpu(3)
    agent.until_units("admit_strict", "0.0")
    agent.until_units("admit_lenient", "7.0")
    with pytest.raises(fakenvml.InUse):
        agent.node.reset_gpu(3)
    closed = agent.command("release", "--control-socket", control, "--minutes", "5")
    assert (closed.returncode, closed.stdout) == (0, "NVML session: closed; open device files of ours: 0\n")
    agent.node.reset_gpu(3)
    agent.until_units("admit_lenient", "0.0")
    opened = agent.command("release", "--control-socket", control, "--minutes", "0")
    assert (opened.returncode, opened.stdout) == (0, "NVML session: open; open device files of ours: 0\n")
    agent.until_units("admit_strict", "8.0")


def test_a_pod_takes_its_gpus(agent):
    """What the kubelet hands out is not free, and is again when the pod is gone."""
    taken = agent.node.free_ids(GPU_RESOURCE)[:2]
    agent.node.kubelet(kubeletstate.allocate("ml", "train-0", GPU_RESOURCE, taken))
    agent.until_units("free", "6.0")
    agent.node.kubelet(kubeletstate.free("ml", "train-0"))
    agent.until_units("admit_strict", "8.0")


def test_a_killed_reader_is_replaced_and_no_number_survives_it(agent):
    """Without a reader nobody knows: no admit number; with the next one they are back."""
    before = agent.reader_pid
    os.kill(before, signal.SIGKILL)
    agent.until(lambda: agent.units("admit_strict") is None)
    agent.until_units("admit_strict", "8.0")
    assert agent.reader_pid != before


def test_a_kubelet_that_goes_and_comes(agent):
    """Refused connections take the numbers away; a restarted kubelet with its plugin gives them back."""
    agent.node.kubelet(kubeletstate.with_socket(kubeletstate.SocketState.REFUSING))
    agent.until(lambda: agent.units("admit_strict") is None)
    agent.node.kubelet(
        kubeletstate.with_socket(kubeletstate.SocketState.SERVING),
        kubeletstate.restart,
        kubeletstate.plugin_up(GPU_RESOURCE),
    )
    agent.until_units("admit_strict", "8.0")


def test_capture_follows_replays_and_redacts(agent, tmp_path):
    """Lines are observations that replay judges alike; a redacted one names neither node nor GPU."""
    control = str(agent.node.folder / "agent.sock")
    plain = agent.command("capture", "--control-socket", control, "--follow", "2")
    assert plain.returncode == 0
    lines = [jsonform.from_json(planes.Observation, json.loads(line)) for line in plain.stdout.splitlines()]
    assert [line.node for line in lines] == ["gpu-a1", "gpu-a1"]
    assert lines[0].taken_at < lines[1].taken_at
    file = tmp_path / "capture.jsonl"
    file.write_text(plain.stdout)
    assert agent.command("replay", str(file)).returncode == 0
    redacted = agent.command("capture", "--control-socket", control, "--redact")
    assert redacted.returncode == 0
    assert agent.node.uuid(0) not in redacted.stdout
    assert json.loads(redacted.stdout)["node"] == "node-1"


def test_a_driver_call_that_never_returns_costs_one_device(agent):
    """The hung GPU is marked, the other seven keep their values, and reports keep coming."""
    agent.node.drive(lambda state: state.with_fault("*", gpu=5, hang=True))
    agent.until_units("admit_lenient", "7.0")
    agent.until_units("admit_strict", "0.0")
    assert float(agent.metrics()["muster_agent_report_age_seconds"]) < WAIT_SECONDS
    agent.until(lambda: float(agent.metrics()["muster_agent_nvml_timeouts_total"]) > 1)
    # The thread inside that call is lost to its reader for ever; the next reader has its own.
    agent.node.drive(lambda state: state.without_faults())
    os.kill(agent.reader_pid, signal.SIGKILL)
    agent.until_units("admit_strict", "8.0")


def test_an_agent_killed_under_a_fault_comes_back_with_its_evidence(agent):
    """The next start goes on where the last one stopped: nothing rises, and no reader is left behind."""
    agent.node.lose_gpu(1)
    agent.until_units("admit_strict", "0.0")
    reader = agent.reader_pid
    agent.process.kill()
    agent.process.wait(10)
    agent.until(lambda: not pathlib.Path(f"/proc/{reader}").exists())
    agent.start()
    agent.until_units("admit_lenient", "7.0")
    assert agent.units("admit_strict") == "0.0"
    agent.node.drive(lambda state: state.with_reset(1))
    agent.until_units("admit_strict", "8.0")


def test_a_signal_ends_it_with_its_reader(agent):
    """SIGTERM: exit status 0, and nothing of ours is left."""
    reader = agent.reader_pid
    agent.process.terminate()
    assert agent.process.wait(20) == 0
    agent.until(lambda: not pathlib.Path(f"/proc/{reader}").exists())
    silent = agent.command("capture", "--control-socket", str(agent.node.folder / "agent.sock"))
    assert silent.returncode == 3
    assert "no agent answers" in silent.stderr


def test_bad_input_starts_nothing():
    """Every problem on its own line, exit status 2."""
    command = [
        sys.executable,
        "-m",
        "agent.main",
        "run",
        "--node",
        "No_Name",
        "--poll-seconds",
        "nan",
        "--time-scale",
        "9",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "--poll-seconds" in done.stderr


def test_an_address_in_use_is_bad_input(tmp_path):
    """A socket that cannot be opened is told like any wrong setting, and nothing is left running."""
    node = FakeNode(tmp_path, "gpu-a1")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        flags = {**node.agent_flags(), "--metrics-address": f"127.0.0.1:{taken.getsockname()[1]}"}
        command = [sys.executable, "-m", "agent.main", "run", *(part for flag in flags.items() for part in flag)]
        done = subprocess.run(command, env=node.environment(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "--metrics-address" in done.stderr
    assert not (node.folder / "agent.sock").exists()
