"""The placement benchmark ends with one JSON line that has the promised keys; its exact solver is exact."""

import json
import random
import subprocess
import sys

import pytest

from hack.bench import exactplace
from hack.bench.exactplace import Instance, Node
from tests.admitter.clusters import a_gang, a_podset


@pytest.mark.e2e
def test_a_small_run_says_what_it_measured():
    command = [sys.executable, "-m", "hack.bench.place", "--nodes", "40", "--gangs", "5", "--instances", "20"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=100)
    figures = json.loads(done.stdout.splitlines()[-1])
    assert (figures["bench"], figures["hardware"], figures["nodes"], figures["gpus"]) == ("place", "fake", 40, 320)
    assert figures["place"]["p99_ms"] > 0
    assert figures["loaded"]["count"] == 5
    assert figures["blocked"]["waiting"] == 20
    assert 0 < figures["optimal_share"] <= 1


@pytest.mark.e2e
def test_waits_under_four_queues():
    command = [
        sys.executable,
        "-m",
        "hack.bench.waits",
        "--seeds",
        "1",
        "--nodes",
        "8",
        "--jobs",
        "150",
        "--loads",
        "0.7",
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=100)
    figures = json.loads(done.stdout.splitlines()[-1])
    assert set(figures["load_0.7"]) == {"easy", "loose", "skip", "pods"}


def an_instance(nodes, *podsets):
    made = tuple(Node(name=f"n{i}", rack=rack, gpus=gpus, cpu=99) for i, (rack, gpus) in enumerate(nodes))
    return Instance(nodes=made, gang=a_gang(*podsets))


def a_set(name, count, gpus):
    return a_podset(name, count, gpus, requests={"cpu": 1})


SCORES = {
    "one node": ((("a", 8), ("a", 4)), (a_set("p", 2, 2),), (0, 1)),
    "one rack": ((("a", 4), ("b", 4), ("a", 4)), (a_set("p", 2, 4),), (1, 2)),
    "everything": ((("a", 4), ("b", 4)), (a_set("p", 2, 4),), (2, 2)),
    "nowhere": ((("a", 4), ("b", 3)), (a_set("p", 2, 4),), None),
    "podsets that only fit crosswise": ((("a", 6), ("a", 6)), (a_set("p", 2, 3), a_set("q", 3, 2)), (1, 2)),
}


@pytest.mark.parametrize(("nodes", "podsets", "score"), SCORES.values(), ids=SCORES)
def test_the_exact_solver(nodes, podsets, score):
    assert exactplace.best(an_instance(nodes, *podsets)) == score


def test_the_engine_is_never_better_than_exact():
    rng = random.Random(7)
    for instance in (exactplace.an_instance(rng) for _ in range(100)):
        exact, engine = exactplace.best(instance), exactplace.found(instance)
        assert (exact is None) is (engine is None)
        assert exact is None or exact <= engine
