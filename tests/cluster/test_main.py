"""`python -m hack.cluster`: one cluster for each checkout, whatever was killed before."""

import os
import signal
import subprocess
import sys

import pytest

from hack.cluster import assets, run, versions

PROGRAM = [sys.executable, "-m", "hack.cluster"]


def command(folder, *arguments):
    line = [*PROGRAM, "--folder", str(folder), *arguments]
    return subprocess.run(line, check=False, text=True, capture_output=True, timeout=110)


@pytest.fixture
def by_hand(built, tmp_path):
    """Return the folder of a cluster that was started by the command, with two fake nodes."""
    folder = tmp_path / "cluster"
    done = command(folder, "start", "--nodes", "2")
    assert done.returncode == 0, done.stderr
    yield folder
    command(folder, "stop")


def test_killed_parts_make_the_status_fail_and_the_next_start_replaces_all(by_hand):
    before = run.read(by_hand)
    killed = []
    for part in reversed(before.parts):
        os.kill(part.pid, signal.SIGKILL)
        killed.append(part.name)
        done = command(by_hand, "status")
        assert done.returncode == 1
        assert all(name in done.stdout.splitlines()[-1] for name in killed)
    assert command(by_hand, "start", "--nodes", "2").returncode == 0
    after = run.read(by_hand)
    assert run.faults(after) == {}
    assert {part.pid for part in after.parts}.isdisjoint(part.pid for part in before.parts)


def test_a_running_cluster_is_left_alone_and_another_wish_is_refused(by_hand):
    parts_before = run.read(by_hand).parts
    same = command(by_hand, "start", "--nodes", "2")
    assert (same.returncode, same.stdout.split(".")[0]) == (0, "cluster: already there, --line 1")
    assert command(by_hand, "start").returncode == 0, "no wish is no other wish"
    other = command(by_hand, "start", "--nodes", "4", "--with", "jobset")
    assert other.returncode == 2
    line = run.read(by_hand).line
    assert other.stderr == (
        f"cluster: there is one with --line {line} --nodes 2, and not --line {line} --with jobset --nodes 4: "
        "`make cluster-stop` first\n"
    )
    assert run.read(by_hand).parts == parts_before


@pytest.fixture
def waiting(tmp_path, monkeypatch):
    """Start a cluster whose etcd never answers; return its folder and the starter, once etcd is written down."""
    brought = tmp_path / "assets"
    brought.mkdir()
    for name in versions.CONTROL_PLANE:
        (brought / name).write_text("#!/bin/sh\nexec sleep 600\n")
        (brought / name).chmod(0o755)
    monkeypatch.setenv(assets.ASSETS_VARIABLE, str(brought))
    folder = tmp_path / "cluster"
    with subprocess.Popen([*PROGRAM, "--folder", folder, "start"], stderr=subprocess.DEVNULL) as starter:
        yield folder, starter
        starter.kill()
    command(folder, "stop")


def etcd_of(folder):
    cluster = run.read(folder)
    return cluster.part("etcd") if cluster and cluster.parts else None


def test_a_killed_start_is_seen_and_stop_ends_what_it_left(waiting, wait_for):
    folder, starter = waiting
    part = wait_for(lambda: etcd_of(folder), "etcd")
    starter.kill()
    starter.wait()
    assert part.process() is not None, "a part outlives its starter"
    status = command(folder, "status")
    assert status.returncode == 1
    assert "not all there yet, its start runs or was killed" in status.stdout.splitlines()[-1]
    assert command(folder, "stop").returncode == 0
    assert part.process() is None
    assert not folder.exists()


def test_a_process_that_a_killed_start_had_not_written_down_ends_too(waiting, wait_for):
    folder, starter = waiting
    part = wait_for(lambda: etcd_of(folder), "etcd")
    starter.kill()
    starter.wait()
    (folder / "cluster.json").unlink()
    assert command(folder, "stop").stdout == f"cluster: none in {folder}\n"
    assert part.process() is None


@pytest.mark.parametrize("verb", ["start", "stop"])
def test_two_commands_at_once_do_not_share_a_folder(waiting, wait_for, verb):
    folder, _ = waiting
    part = wait_for(lambda: etcd_of(folder), "etcd")
    done = command(folder, verb)
    assert (done.returncode, done.stderr) == (3, f"cluster: another start or stop is at work in {folder}\n")
    assert part.process() is not None


def test_a_boot_later_nothing_of_the_old_cluster_is_signalled(waiting, wait_for):
    """The kernel gives pids out again: after a reboot cluster.json names strangers."""
    folder, starter = waiting
    part = wait_for(lambda: etcd_of(folder), "etcd")
    starter.kill()
    starter.wait()
    with subprocess.Popen(["sleep", "600"]) as stranger:
        text = (folder / "cluster.json").read_text()
        boot = part.birth.split()[0]
        (folder / "cluster.json").write_text(
            text.replace(f'"pid": {part.pid}', f'"pid": {stranger.pid}').replace(boot, "an-earlier-boot")
        )
        assert command(folder, "status").returncode == 1
        assert command(folder, "stop").returncode == 0
        assert stranger.poll() is None
        stranger.kill()


def test_status_without_a_cluster_says_so(tmp_path):
    done = command(tmp_path, "status")
    assert done.returncode == 3
    assert done.stdout.splitlines()[-1].startswith("cluster: none in ")


def test_status_of_a_running_cluster_ends_in_one_summary_line(cluster):
    done = command(cluster.folder, "status")
    assert done.returncode == 0, done.stdout
    assert "cluster: all parts work" in done.stdout.splitlines()[-1]
    assert len(done.stdout.splitlines()) == len(cluster.parts) + 1


@pytest.mark.parametrize("nodes", ["-1", "1001", "many"])
def test_a_number_of_nodes_that_cannot_be_is_refused(tmp_path, nodes):
    done = command(tmp_path, "start", f"--nodes={nodes}")
    assert done.returncode == 2
    assert f"{nodes} is not between 0 and 1000" in done.stderr


def test_an_unknown_line_is_refused_with_the_lines_there_are():
    environment = {**os.environ, versions.LINE_VARIABLE: "1.2"}
    line = [*PROGRAM, "status"]
    done = subprocess.run(line, check=False, text=True, capture_output=True, timeout=60, env=environment)
    assert done.returncode == 2
    assert "no such line; there are 1.35, 1.37" in done.stderr
