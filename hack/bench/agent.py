"""`make bench-agent`: what one node pays for agent and reader, in memory and CPU, while nothing happens.

One HGX H100 with 8 fake GPUs, unscaled (state every 5 s, processes every 30 s), connected to a real admitter over mutual
TLS. After a warm-up both processes are watched for 60 s. The last line is JSON. Budgets: design.md section 7, 80 MiB and
20 millicores. Keys: docs/benchmarks.md.
"""

import argparse
import json
import sys
import time
from typing import Any

from hack.bench import footprint, running
from hack.fakenode.fleet import NotStarted

_NODE = "node-0"


def measure(seconds: float, warm_up_seconds: float) -> dict[str, Any]:
    """Run the benchmark once."""
    with running.fleet(1) as fleet:
        print(f"warming up for {warm_up_seconds:g} s, then measuring for {seconds:g} s", file=sys.stderr)
        time.sleep(warm_up_seconds)
        fleet.check()
        if '"verdict": "OK"' not in fleet.log_of(_NODE):
            raise SystemExit(f"the node is not OK, so nothing is steady:\n{fleet.log_of(_NODE)[-2000:]}")
        pids = {"agent": fleet.pid(_NODE), "reader": running.reader_pid(fleet, _NODE)}
        before, began = _cpu(pids), time.monotonic()
        time.sleep(seconds)
        after, window = _cpu(pids), time.monotonic() - began
        fleet.check()
        weights = {name: round(footprint.pss_mib(pid), 1) for name, pid in pids.items()}
        alone = footprint.alone_mib(pids.values())
    spent = {name: (after[name] - before[name]) / window * 1000 for name in pids}
    return {
        "bench": "agent",
        **running.machine(),
        "pss_mib": round(sum(weights.values()), 1),
        "cpu_millicores": round(sum(spent.values()), 1),
        "alone_mib": round(alone, 1),
        **{name: {"pss_mib": weights[name], "cpu_millicores": round(spent[name], 1)} for name in pids},
        "gpus": 8,
        "seconds": round(window, 1),
        "budget": {"pss_mib": 80, "cpu_millicores": 20},
    }


def _cpu(pids: dict[str, int]) -> dict[str, float]:
    return {name: footprint.cpu_seconds(pid) for name, pid in pids.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=running.at_least(1, float), default=60.0)
    parser.add_argument(
        "--warm-up", type=running.at_least(0, float), default=15.0, help="seconds before the measurement"
    )
    arguments = parser.parse_args()
    try:
        figures = measure(arguments.seconds, arguments.warm_up)
    except NotStarted as error:
        raise SystemExit(str(error)) from None
    except KeyboardInterrupt:
        raise SystemExit("interrupted; nothing is left running") from None
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
