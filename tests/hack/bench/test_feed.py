"""The feed benchmark ends with one JSON line that has the promised keys."""

import json
import subprocess
import sys

import pytest


@pytest.mark.e2e
def test_a_small_run_says_what_it_measured():
    small = ["--only", "certificates", "--nodes", "3", "--seconds", "1", "--rate", "30"]
    command = [sys.executable, "-m", "hack.bench.feed", *small]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=100)
    figures = json.loads(done.stdout.splitlines()[-1])
    assert (figures["bench"], figures["hardware"], figures["nodes"]) == ("feed", "fake", 3)
    assert figures["deltas_per_s"] > 0
    assert figures["mib_at_3"] > 0
    assert figures["refused"] == {}
