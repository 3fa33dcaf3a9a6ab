"""The demo tells its whole story, and leaves nothing behind however it ends."""

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

ROOT = pathlib.Path(__file__).parents[2]

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


def start(folder, *arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "hack.demo", "--keep", str(folder), *arguments],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def left_behind(folder):
    """Return every live process that was started for this folder."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and any(str(folder) in part for part in process.cmdline()):
                found.append(process)
    return found


def nothing_left(folder):
    end = time.monotonic() + 15
    while left_behind(folder) and time.monotonic() < end:
        time.sleep(0.1)
    return [process.cmdline() for process in left_behind(folder)]


def test_every_step_is_as_expected(tmp_path):
    demo = start(tmp_path, "--json")
    out, err = demo.communicate(timeout=200)
    result = json.loads(out.splitlines()[-1])
    wrong = [(step["name"], step["expected"], step["seen"]) for step in result["steps"] if not step["ok"]]
    assert (wrong, result["problem"], result["ok"], demo.returncode) == ([], "", True, 0), err
    assert len(result["steps"]) >= 12
    assert all(set(step) == {"name", "expected", "seen", "ok"} for step in result["steps"])
    assert nothing_left(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_nothing(tmp_path, number):
    demo = start(tmp_path)
    end = time.monotonic() + 60
    while len(left_behind(tmp_path)) < 6 and time.monotonic() < end:
        time.sleep(0.1)
    assert len(left_behind(tmp_path)) >= 6, "the programs were to be running by now"
    demo.send_signal(number)
    out, _ = demo.communicate(timeout=60)
    assert (demo.returncode, "interrupted" in out) == (2, True)
    assert nothing_left(tmp_path) == []


@pytest.fixture
def held(tmp_path):
    demo = start(tmp_path, "--hold")
    yield demo
    demo.terminate()
    demo.communicate(timeout=60)


def test_a_held_fleet_can_be_asked_and_broken_by_hand(tmp_path, held):
    def until(words):
        line = ""
        while words not in line:
            line = held.stdout.readline()
            assert line, held.stderr.read()
        return line

    def type_(line):
        held.stdin.write(line + "\n")
        held.stdin.flush()

    def ask(command):
        # As a person would: the environment that the demo has printed, then the command.
        line = f". {tmp_path}/environment; muster {command}"
        return subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)

    until("quit ")
    type_("lose gpu-c 5")
    end = time.monotonic() + 60
    while "OVER" not in (status := ask("status")).stdout and time.monotonic() < end:
        time.sleep(0.2)
    assert (status.returncode, "GpuLost" in status.stdout) == (1, True), status.stderr
    type_("ask")
    assert "gpu-c OVER" in until("team-a/llm-24: ")
    assert ask("why gang/team-a/llm-24").returncode == 1
    type_("quit")
    assert held.wait(60) == 0
    assert held.stdout.read() == "Everything that was started has ended.\n"
    assert nothing_left(tmp_path) == []


@pytest.mark.parametrize("name", ["file", "full", "n" * 120])
def test_a_folder_that_does_not_fit_is_bad_input(tmp_path, name):
    (tmp_path / "file").touch()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    demo = start(tmp_path / name)
    _, err = demo.communicate(timeout=60)
    assert demo.returncode == 2
    assert f"error: --keep: {tmp_path / name}: " in err
