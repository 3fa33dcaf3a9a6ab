"""`python -m hack.bench.waits`: how long large gangs wait under the admitter's queue, and under others.

Jobs as in the traces (traces.md section 1.3: most ask for one GPU, durations lognormal with a median of 10,537 s and a mean
of 18,722 s, arrivals in bursts), drawn for some seeds on one small cluster, the same jobs for every queue:
`easy` is core/order.py with true declared runtimes, `loose` the same where three in ten declare none and the rest twice
what they take, `skip` starts whatever fits and reserves nothing, `pods` knows no gangs (queuesim.py).

The last line is JSON: mean waits in seconds of all jobs and of those with 16 GPUs or more, and how often over the seeds the
large ones wait no longer than under `pods`. No budget: it holds the queue against traces.md section 3.
"""

import argparse
import dataclasses
import json
import math
import os
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any

from admitter.model.decision import Policy
from admitter.model.queue import QueuePolicy
from hack.bench import queuesim
from hack.bench.queuesim import Course, Job

_SIZES = ((1, 800), (2, 30), (4, 40), (8, 100), (16, 12), (32, 12), (64, 6))
_MEDIAN_SECONDS, _MEAN_SECONDS = 10_537.0, 18_722.0
_SIGMA = math.sqrt(2 * math.log(_MEAN_SECONDS / _MEDIAN_SECONDS))
_BURST = 3
"""Mean number of jobs that come at once: the traces' arrivals are far from Poisson (index of dispersion 15)."""
_LARGE = 16
_POLICY = Policy(queue=QueuePolicy(start_seconds=0.0, reserved_share=1.0, ageing_seconds=0.0))


def draw(rng: random.Random, jobs: int, gpus: int, load: float) -> list[Job]:
    """Return jobs that offer a share of so many GPUs."""
    sizes = rng.choices([size for size, _ in _SIZES], [weight for _, weight in _SIZES], k=jobs)
    seconds = [max(600.0, rng.lognormvariate(math.log(_MEDIAN_SECONDS), _SIGMA)) for _ in sizes]
    span = sum(map(float.__mul__, map(float, sizes), seconds)) / (gpus * load)
    moment, drawn = 0.0, []
    for index, (size, runtime) in enumerate(zip(sizes, seconds, strict=True)):
        if rng.random() < 1 / _BURST:
            moment += rng.expovariate(jobs / span / _BURST)
        each = min(size, 8)
        drawn.append(
            Job(
                name=f"j{index:05d}",
                arrival=moment,
                pods=size // each,
                gpus=each,
                seconds=runtime,
                declared=runtime,
            )
        )
    return drawn


def loosely(jobs: Sequence[Job], rng: random.Random) -> list[Job]:
    """Return the jobs as people declare them: not at all, or far too long."""
    return [dataclasses.replace(job, declared=None if rng.random() < 0.3 else 2 * job.seconds) for job in jobs]


def mean_wait(jobs: Sequence[Job], course: Course, least: int) -> float:
    """Return the mean wait of the jobs with so many GPUs."""
    return statistics.fmean(course.started[job.name] - job.arrival for job in jobs if job.units >= least)


def one_seed(seed: int, nodes: int, jobs: int, load: float) -> dict[str, dict[str, float]]:
    """Run every queue over the same jobs."""
    rng = random.Random(seed)
    drawn, sizes = draw(rng, jobs, 8 * nodes, load), [8] * nodes
    loose = loosely(drawn, rng)
    queues: dict[str, Callable[[], Course]] = {
        "easy": lambda: queuesim.gangs(drawn, sizes, _POLICY),
        "loose": lambda: queuesim.gangs(loose, sizes, _POLICY),
        "skip": lambda: queuesim.gangs(drawn, sizes, _POLICY, reserves=False),
        "pods": lambda: queuesim.pods(drawn, sizes),
    }
    waits = {}
    for name, run in queues.items():
        course = run()
        waits[name] = {"all": mean_wait(drawn, course, 1), "large": mean_wait(drawn, course, _LARGE)}
    print(f"load {load:g} seed {seed}: {json.dumps(waits)}", file=sys.stderr)
    return waits


def measure(seeds: int, nodes: int, jobs: int, loads: Sequence[float]) -> dict[str, Any]:
    """Run all seeds at all loads."""
    result: dict[str, Any] = {}
    for load in loads:
        runs = [one_seed(seed, nodes, jobs, load) for seed in range(seeds)]
        entry: dict[str, Any] = {
            name: {who: round(statistics.fmean(run[name][who] for run in runs)) for who in ("all", "large")}
            for name in runs[0]
        }
        for name in ("easy", "loose", "skip"):
            entry[name]["large_to_pods"] = round(entry[name]["large"] / entry["pods"]["large"], 3)
            entry[name]["seeds_no_longer_than_pods"] = sum(run[name]["large"] <= run["pods"]["large"] for run in runs)
        result[f"load_{load:g}"] = entry
    return {
        "bench": "waits",
        "hardware": "fake",
        "cpus": len(os.sched_getaffinity(0)),
        "nodes": nodes,
        "jobs": jobs,
        "seeds": seeds,
        **result,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--jobs", type=int, default=600)
    parser.add_argument("--loads", type=float, nargs="+", default=[0.7, 0.85])
    arguments = parser.parse_args()
    print(json.dumps(measure(arguments.seeds, arguments.nodes, arguments.jobs, arguments.loads)))


if __name__ == "__main__":
    main()
