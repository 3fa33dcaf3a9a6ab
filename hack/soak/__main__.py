"""`make soak`: random faults against running agents, their feed held against an oracle that knows what was broken.

Real admitter, agents and readers around fake drivers and kubelets; durations run `TIME_SCALE` times faster. The last line is
JSON: injections, wrong_way (capacity above the oracle's bound once the allowed time was over, or risen when nothing could be
read), too_low, missed, loosened, crashes, mib_per_hour, seconds, seed. Exit status 1 if anything is wrong. Keys: docs/soak.md.
"""

import argparse
import asyncio
import json
import pathlib
import secrets
import sys

from hack.bench import running
from hack.soak import scaled, unscaled

UNSCALED_MINUTES = 9.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--injections", type=running.at_least(1, int), default=10_000)
    parser.add_argument("--minutes", type=running.at_least(0.1, float), default=60.0, help="end earlier than that")
    parser.add_argument("--nodes", type=running.at_least(1, int), default=8)
    parser.add_argument("--seed", type=int, default=None, help="repeats a run, as far as processes repeat")
    parser.add_argument("--unscaled", action="store_true", help="ten faults in real time instead, about ten minutes")
    parser.add_argument(
        "--keep", type=pathlib.Path, default=pathlib.Path(".build/soak"), help="where captures of what was wrong go"
    )
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else secrets.randbits(32)
    keep = arguments.keep / str(seed)
    print(f"seed {seed}", file=sys.stderr)
    try:
        if arguments.unscaled:
            figures = asyncio.run(unscaled.run(seed, min(arguments.minutes, UNSCALED_MINUTES), keep))
        else:
            figures = asyncio.run(scaled.run(arguments.injections, arguments.minutes, arguments.nodes, seed, keep))
    except KeyboardInterrupt:
        raise SystemExit("interrupted; nothing is left running") from None
    print(json.dumps(figures))
    return 1 if any(figures.get(name) for name in ("wrong_way", "too_low", "missed", "loosened", "crashes")) else 0


if __name__ == "__main__":
    sys.exit(main())
