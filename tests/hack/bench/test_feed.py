"""The feed benchmark ends with one JSON line that has the promised keys."""

import json
import subprocess
import sys

import pytest

from hack.cluster import versions


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


@pytest.mark.e2e
@pytest.mark.real(*versions.CONTROL_PLANE)
@pytest.mark.timeout(300)
def test_a_small_fleet_with_tokens_comes_back_and_is_asked_about_once():
    command = [sys.executable, "-m", "hack.bench.feed", "--only", "tokens", "--nodes", "3"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=280)
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["fresh99_s"] == figures["tokens"]["fresh99_s"] > 0
    # After the restart nobody is remembered; what was asked then is remembered when the streams break.
    assert (figures["tokens"]["token_reviews"], figures["tokens"]["again"]["token_reviews"]) == (3, 0)
