"""The story on a real control plane: kube-scheduler alone deadlocks, Muster runs both gangs, and nothing is left behind."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import psutil
import pytest

from hack.cluster import versions

ROOT = pathlib.Path(__file__).parents[2]


def start(folder, **environment):
    return subprocess.Popen(
        [sys.executable, "-m", "hack.demo", "--cluster", "--keep", str(folder)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment},
    )  # fmt: skip


def left_behind(folder):
    """Return the command lines that name this folder."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and any(str(folder) in part for part in process.cmdline()):
                found.append(process.cmdline())
    return found


def nothing_left(folder):
    end = time.monotonic() + 30
    while left_behind(folder) and time.monotonic() < end:
        time.sleep(0.1)
    return left_behind(folder)


@pytest.mark.real(*versions.CONTROL_PLANE)
@pytest.mark.timeout(500)
def test_both_gangs_run_with_muster_and_neither_without(tmp_path):
    demo = start(tmp_path)
    out, err = demo.communicate(timeout=450)
    result = json.loads(out.splitlines()[-1])
    wrong = [(step["name"], step["expected"], step["seen"]) for step in result["steps"] if not step["ok"]]
    assert (wrong, result["problem"], result["ok"], demo.returncode) == ([], "", True, 0), out + err
    assert set(result["wait_s"]["kube-scheduler"].values()) == {None}
    assert all(wait > 0 for wait in result["wait_s"]["muster"].values())
    assert result["rejections"]["plain"] > 0
    assert result["rejections"]["muster"] == 0
    assert nothing_left(tmp_path) == []


@pytest.mark.real(*versions.CONTROL_PLANE)
@pytest.mark.timeout(240)
def test_an_interrupted_story_leaves_nothing(tmp_path):
    demo = start(tmp_path)
    end = time.monotonic() + 100
    while len(left_behind(tmp_path)) < 9 and time.monotonic() < end:
        time.sleep(0.1)
    assert len(left_behind(tmp_path)) >= 9, "the control plane and the first programs were to be running by now"
    demo.send_signal(signal.SIGTERM)
    out, err = demo.communicate(timeout=100)
    assert (demo.returncode, json.loads(out.splitlines()[-1])["problem"]) == (2, "interrupted"), err
    assert nothing_left(tmp_path) == []


@pytest.mark.e2e
def test_without_a_control_plane_it_says_so_in_one_line(tmp_path):
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    demo = start(tmp_path / "demo", PATH=str(nothing), MUSTER_CACHE=str(nothing), KUBEBUILDER_ASSETS="")
    out, err = demo.communicate(timeout=60)
    assert demo.returncode == 2, err
    problem = json.loads(out.splitlines()[-1])["problem"]
    assert problem.startswith("no control plane: ")
    assert problem in out.splitlines()
