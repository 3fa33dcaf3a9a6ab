"""`make bench-feed`: how many deltas a second one admitter takes over mutual TLS, and what 5,000 nodes weigh.

One process is the hub, one plays all nodes, each with its own certificate and connection; both share this machine's
cores. The last line is JSON. Budgets: design.md section 7, 5,000 deltas/s for 10 s and 800 MiB.
"""

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import IO, Any

from hack import pki

_SETTLE_SECONDS = 6.0
"""A heartbeat's period and some, before memory is read."""


class Child:
    """A process that is spoken to line by line."""

    def __init__(self, module: str, *arguments: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def say(self, line: str) -> None:
        print(line, file=_open(self._process.stdin), flush=True)

    def hear(self) -> dict[str, Any]:
        line = _open(self._process.stdout).readline()
        if not line:
            raise SystemExit(f"{self._process.args!r} ended early, exit status {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, line: str) -> dict[str, Any]:
        self.say(line)
        return self.hear()

    def end(self) -> None:
        _open(self._process.stdin).close()
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _open(stream: "IO[str] | None") -> "IO[str]":
    assert stream is not None
    return stream


def measure(nodes: int, seconds: float, rate: float) -> dict[str, Any]:
    """Run the benchmark once."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        authority = pki.create(pathlib.Path(folder))
        authority.issue_admitter()
        for index in range(nodes):
            authority.issue_node(f"n{index}")
        hub = Child("hack.bench.feedhub", folder)
        stack.callback(hub.end)
        port = hub.hear()["port"]
        empty = hub.ask("")
        print(f"dialling {nodes} nodes", file=sys.stderr)
        began = time.monotonic()
        load = Child("hack.bench.feedload", folder, port, nodes)
        stack.callback(load.end)
        load.hear()
        connected_s = time.monotonic() - began
        time.sleep(_SETTLE_SECONDS)
        idle = hub.ask("")
        load.say(f"{rate} {seconds}")
        # The hub's own window, so that what is sent but not taken does not count.
        time.sleep(seconds)
        after = hub.ask("")
        sent = load.hear()
        end = hub.ask("")
    return {
        "bench": "feed",
        "hardware": "fake",
        "cpus": len(os.sched_getaffinity(0)),
        **_throughput(idle, after),
        f"mib_at_{nodes}": idle["pss_mib"],
        "mib_empty": empty["pss_mib"],
        "mib_after_load": end["pss_mib"],
        "nodes": idle["nodes"],
        "stale": end["stale"],
        "connect_s": round(connected_s, 1),
        "offered_per_s": rate,
        "sent": sent["sent"],
        "load_cpu_share": round(sent["cpu_s"] / seconds, 2),
        "refused": end["refused"],
        "stalled_s": end["stalled_s"],
    }


def _throughput(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    window = after["at"] - before["at"]
    taken = after["accepted"].get("delta", 0) - before["accepted"].get("delta", 0)
    cpu_s = after["cpu_s"] - before["cpu_s"]
    return {
        "deltas_per_s": round(taken / window),
        "seconds": round(window, 2),
        "hub_cpu_us_per_delta": round(cpu_s / max(taken, 1) * 1e6),
        "hub_cpu_share": round(cpu_s / window, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=6000.0, help="deltas a second that are offered")
    arguments = parser.parse_args()
    print(json.dumps(measure(arguments.nodes, arguments.seconds, arguments.rate)))


if __name__ == "__main__":
    main()
