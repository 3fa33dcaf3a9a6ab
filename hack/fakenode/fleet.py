"""Real programs around fake machines: one admitter, one agent a node, mutual TLS, all on this machine.

In: a folder, the nodes, the scale of time. Out: running processes, an address with certificates to ask at, and the
means to kill and restart each part.

Invariant: whatever happens, `stop` ends every process that was started here, and nothing else. An agent's reader leads a
session of its own, so it is looked after by name.

Not here: what is done to the fleet (hack/demo, hack/bench, tests/e2e).
"""

import contextlib
import functools
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent import futures

import psutil

from hack import fakenvml, pki
from hack.fakenode.node import FakeNode
from muster import tls
from muster.model import jsonform

_BINARIES = pathlib.Path(sys.executable).parent
_READER_SECONDS = 5.0
"""How long a reader may take to notice that its agent has ended."""


class NotStarted(RuntimeError):
    """A program ended instead of serving; its log is in the message."""


class Fleet:
    """An admitter and one agent for each node."""

    def __init__(
        self,
        folder: pathlib.Path,
        nodes: Iterable[FakeNode],
        *,
        scale: float,
        settings: Mapping[str, str] | None = None,
        admitter_settings: Mapping[str, str] | None = None,
    ) -> None:
        fakenvml.build()
        self.folder = folder
        self.nodes = {node.name: node for node in nodes}
        self.scale = scale
        self._extra = dict(settings or {})
        self._admitter_extra = dict(admitter_settings or {})
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._starting = threading.Lock()
        self._is_over = False
        authority = pki.create(folder / "pki")
        self._admitter_files = authority.issue_admitter()
        self._node_files = {name: authority.issue_node(name) for name in self.nodes}
        self.client_files = authority.issue_client("operator")
        self.address = f"127.0.0.1:{free_port()}"
        self.metrics = {name: free_port() for name in ("admitter", *self.nodes)}

    def __enter__(self) -> "Fleet":
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start everything; it takes a few seconds until all of it serves.

        In a thread, where no signal's exception comes: between the start of a process and its entry here it would leave
        that process to nobody.
        """
        with futures.ThreadPoolExecutor(max_workers=1) as thread:
            thread.submit(self._start_all).result()

    def _start_all(self) -> None:
        self.publish()
        starts = [node.start for node in self.nodes.values()]
        starts.append(self.start_admitter)
        starts.extend(functools.partial(self.start_agent, name) for name in self.nodes)
        for start in starts:
            # Whoever stops the fleet meanwhile, from another thread, must find all that there is to stop.
            with self._starting:
                if self._is_over:
                    return
                start()

    def stop(self) -> None:
        """End everything that was started here."""
        with self._starting:
            self._is_over = True
        for name in tuple(self._processes):
            self.kill(name, signal.SIGTERM)
        for node in self.nodes.values():
            node.stop()

    def publish(self) -> None:
        """Write the cluster file: every node as the API server would have it now."""
        data = {"nodes": {name: jsonform.to_json(node.slice()) for name, node in self.nodes.items()}}
        fresh = self.cluster_file.with_suffix(".new")
        fresh.write_text(json.dumps(data))
        fresh.replace(self.cluster_file)

    @property
    def cluster_file(self) -> pathlib.Path:
        """Where the admitter reads Nodes and Pods."""
        return self.folder / "cluster.json"

    def start_admitter(self) -> None:
        """Start the admitter, or start it again at the same address."""
        self._start(
            "admitter",
            [
                str(_BINARIES / "muster-admitter"), "run",
                "--name", "admitter", "--listen", self.address, "--cluster-file", str(self.cluster_file),
                "--state-dir", str(self.folder / "state"), "--decision-log", str(self.folder / "decisions.jsonl"),
                "--metrics-address", f"127.0.0.1:{self.metrics['admitter']}",
                "--node-ttl-seconds", str(max(1.0, 15 * self.scale)),
                "--heartbeat-seconds", str(max(0.25, 5 * self.scale)),
                "--lease-grace-seconds", str(max(2.0, 60 * self.scale)),
                "--replan-patience-seconds", str(max(0.5, 15 * self.scale)),
                *_tls_flags(self._admitter_files),
                *(text for flag in self._admitter_extra.items() for text in flag),
            ],
            dict(os.environ),
        )  # fmt: skip

    def start_agent(self, name: str) -> None:
        """Start a node's agent with its reader, or start it again on the same evidence."""
        node = self.nodes[name]
        flags = {
            **node.agent_flags(),
            "--admitters": self.address,
            "--metrics-address": f"127.0.0.1:{self.metrics[name]}",
            "--time-scale": str(1 / self.scale),
            "--poll-seconds": str(max(0.3, 5 * self.scale)),
            "--processes-seconds": str(max(0.6, 30 * self.scale)),
            "--start-jitter-seconds": "0",
            **self._extra,
        }
        command = [str(_BINARIES / "muster-agent"), "run", *_tls_flags(self._node_files[name])]
        for flag, value in flags.items():
            command += [flag, value]
        self._start(name, command, {**node.environment(), "MUSTER_ALLOW_TIME_SCALE": "1"})

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Signal a program and wait until it is gone, with what it started."""
        process = self._processes.pop(name)
        children = _children(process.pid)
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        # A reader ends with its agent, unless it hangs in the driver or was stopped.
        _, left = psutil.wait_procs(children, timeout=_READER_SECONDS)
        for child in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(left, timeout=_READER_SECONDS)

    def pid(self, name: str) -> int:
        """Return the pid of a running program."""
        return self._processes[name].pid

    def kill_reader(self, name: str) -> None:
        """Kill the reader that a node's agent has started."""
        for child in _children(self.pid(name)):
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()

    def log_of(self, name: str) -> str:
        """Return what a program has written so far."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def ended(self) -> list[tuple[str, int]]:
        """Return the programs that have ended by themselves, and with which status."""
        found = [(name, process.poll()) for name, process in tuple(self._processes.items())]
        return [(name, status) for name, status in found if status is not None and name in self._processes]

    def check(self) -> None:
        """Raise NotStarted if a program has ended by itself."""
        for name, status in self.ended():
            raise NotStarted(f"{name} ended with status {status}:\n{self.log_of(name)[-2000:]}")

    def muster(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the operator's command line against the admitter."""
        command = [
            str(_BINARIES / "muster"), *arguments,
            "--address", self.address, "--ca", str(self.client_files.ca),
            "--certificate", str(self.client_files.certificate), "--key", str(self.client_files.key),
        ]  # fmt: skip
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)

    def release(self, name: str, minutes: float) -> subprocess.CompletedProcess[str]:
        """Run `muster-agent release` on a node."""
        command = [
            str(_BINARIES / "muster-agent"), "release",
            "--control-socket", str(self.nodes[name].folder / "agent.sock"), "--minutes", str(minutes),
        ]  # fmt: skip
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)

    def _start(self, name: str, command: list[str], environment: Mapping[str, str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=dict(environment), start_new_session=True
            )


def _children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children()
    except psutil.NoSuchProcess:
        return []


def _tls_flags(files: tls.Files) -> list[str]:
    return ["--tls-ca", str(files.ca), "--tls-certificate", str(files.certificate), "--tls-key", str(files.key)]


def free_port() -> int:
    """Return a port of the loopback interface that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until(condition: Callable[[], bool], seconds: float, step: float = 0.05) -> bool:
    """Return True as soon as the condition holds, False if it does not within the time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(step)
    return condition()
