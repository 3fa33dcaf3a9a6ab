"""Count what a soak did and what came of it.

In: injections, times, disagreements, weights of processes. Out: the figures of the last line, as JSON.

Invariant: a disagreement is counted once and kept with its seed and the node's captured lines, in table time, so that
`muster-agent replay` judges the same observations again.
"""

import collections
import dataclasses
import datetime
import json
import math
import pathlib
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hack.soak.watch import Kind, Wrong
from muster.model import jsonform

WARM_UP_SECONDS = 60.0
"""A process's first minute fills caches."""
LEAST_LIFE_SECONDS = 180.0
"""A slope over less is noise."""
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


@dataclasses.dataclass(slots=True)
class Tally:
    """Everything counted so far."""

    seed: int
    folder: pathlib.Path
    """Where disagreements are kept."""
    time_scale: float
    injections: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    unjudged: int = 0
    """Injections that were too brief to be held to anything, or that another one hid all the time."""
    leases: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    """Granted, moved, and not ended in time (leases.py)."""
    wrong: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    crashes: list[str] = dataclasses.field(default_factory=list)
    detections: dict[str, list[float]] = dataclasses.field(default_factory=lambda: collections.defaultdict(list))
    """Group -> seconds from injection to the feed."""
    weights: dict[tuple[str, int], list[tuple[float, float]]] = dataclasses.field(
        default_factory=lambda: collections.defaultdict(list)
    )
    """(kind, pid) -> (when, MiB)."""

    @property
    def count(self) -> int:
        """Return the injections so far."""
        return self.injections.total()

    def note(self, node: str, wrong: Wrong, in_force: Sequence[str], lines: Iterable[bytes]) -> None:
        """Keep a disagreement with all that is needed to see it again."""
        number = len(self.wrong) + 1
        capture = self.folder / f"{number:03}-{wrong.kind.value}-{node}.jsonl"
        self.folder.mkdir(parents=True, exist_ok=True)
        capture.write_text("".join(f"{line}\n" for line in stretched(lines, self.time_scale)))
        entry = {
            "kind": wrong.kind.value,
            "node": node,
            "after": self.count,
            "in_force": list(in_force),
            "text": wrong.text,
            "capture": str(capture),
        }
        self.wrong.append(entry)
        (self.folder / "wrong.jsonl").open("a").write(json.dumps({"seed": self.seed, **entry}) + "\n")

    def of(self, kind: Kind) -> int:
        """Return how many of a kind there were."""
        return sum(1 for entry in self.wrong if entry["kind"] == kind.value)

    def figures(self) -> dict[str, Any]:
        """Return the counts."""
        return {
            "injections": self.count,
            "wrong_way": self.of(Kind.WRONG_WAY),
            "too_low": self.of(Kind.TOO_LOW),
            "missed": self.of(Kind.MISSED),
            "loosened": self.of(Kind.LOOSENED),
            "leases": dict(sorted(self.leases.items())),
            "unjudged": self.unjudged,
            "crashes": len(self.crashes),
            "mib_per_hour": slopes(self.weights),
            "detection_s": {group: quantiles(values) for group, values in sorted(self.detections.items())},
            "kinds": dict(sorted(self.injections.items())),
            "captures": str(self.folder) if self.wrong else "",
            "seed": self.seed,
        }


def stretched(lines: Iterable[bytes], time_scale: float) -> list[str]:
    """Return captured lines with their times in table time: as far from the first line's as they would be unscaled.

    >>> stretched([b'{"taken_at": "2026-01-01T00:00:00Z"}', b'{"taken_at": "2026-01-01T00:00:01.5Z"}'], 10)[1]
    '{"taken_at": "2026-01-01T00:00:15Z"}'
    """
    texts = [line.decode() for line in lines]
    if not texts:
        return []
    first = datetime.datetime.fromisoformat(json.loads(texts[0])["taken_at"])

    def stretch(match: re.Match[str]) -> str:
        at = datetime.datetime.fromisoformat(match[0])
        return jsonform.time_to_text(first + (at - first) * time_scale)

    return [_TIME.sub(stretch, text.rstrip("\n")) for text in texts]


def slopes(weights: Mapping[tuple[str, int], Sequence[tuple[float, float]]]) -> dict[str, Any]:
    """Return MiB an hour for each kind of program: the median of its processes' slopes, longest lives only."""
    found: dict[str, list[float]] = collections.defaultdict(list)
    lives: dict[str, float] = collections.defaultdict(float)
    for (kind, _), samples in weights.items():
        settled = [(at, mib) for at, mib in samples if at - samples[0][0] >= WARM_UP_SECONDS]
        if len(settled) > 2 and settled[-1][0] - settled[0][0] >= LEAST_LIFE_SECONDS:
            times, mibs = zip(*settled, strict=True)
            found[kind].append(statistics.linear_regression(times, mibs).slope * 3600)
            lives[kind] = max(lives[kind], times[-1] - times[0])
    return {
        kind: {
            "median": round(statistics.median(values), 1),
            "highest": round(max(values), 1),
            "processes": len(values),
            "longest_s": round(lives[kind]),
        }
        for kind, values in sorted(found.items())
    }


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Return how many, p50, p99 and the longest; a quantile is a value that was measured (nearest rank).

    >>> quantiles([0.25, 0.5, 1.0])
    {'n': 3, 'p50': 0.5, 'p99': 1.0, 'max': 1.0}
    """
    ranked = sorted(values)
    p50, p99 = (ranked[math.ceil(share * len(ranked)) - 1] for share in (0.50, 0.99))
    return {"n": len(ranked), "p50": round(p50, 2), "p99": round(p99, 2), "max": round(ranked[-1], 2)}
