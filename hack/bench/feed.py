"""`make bench-feed`: how many deltas a second one admitter takes over mutual TLS, and what 5,000 nodes weigh; then how long
a fleet with tokens takes to come back (coldstart.py).

One process is the hub, one plays all nodes, each with its own certificate and connection; both share this machine's
cores. The last line is JSON. Budgets: design.md section 7, 5,000 deltas/s for 10 s, 800 MiB, and 99 % fresh in 60 s.
"""

import argparse
import contextlib
import json
import pathlib
import sys
import tempfile
import time
from typing import Any

from hack import pki
from hack.bench import child, coldstart, running

_SETTLE_SECONDS = 6.0
"""A heartbeat's period and some, before memory is read."""


def measure(nodes: int, seconds: float, rate: float) -> dict[str, Any]:
    """Run the half with certificates once."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        authority = pki.create(pathlib.Path(folder))
        authority.issue_admitter()
        for index in range(nodes):
            authority.issue_node(f"n{index}")
        hub = child.Child("hack.bench.feedhub", folder)
        stack.callback(hub.end)
        port = hub.hear()["port"]
        empty = hub.ask("")
        print(f"dialling {nodes} nodes", file=sys.stderr)
        began = time.monotonic()
        load = child.Child("hack.bench.feedload", folder, port, nodes)
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
    count = running.at_least(1, int)
    parser.add_argument("--nodes", type=count, default=5000)
    parser.add_argument("--seconds", type=running.at_least(0.1, float), default=10.0)
    parser.add_argument(
        "--rate", type=running.at_least(1, float), default=6000.0, help="deltas a second that are offered"
    )
    parser.add_argument("--only", choices=("certificates", "tokens"), help="one half of it")
    arguments = parser.parse_args()
    figures: dict[str, Any] = {"bench": "feed", **running.machine()}
    if arguments.only != "tokens":
        figures |= measure(arguments.nodes, arguments.seconds, arguments.rate)
    if arguments.only != "certificates":
        tokens = coldstart.measure(arguments.nodes)
        figures |= {"fresh99_s": tokens["fresh99_s"], "tokens": tokens}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
