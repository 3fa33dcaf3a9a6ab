"""Starting, stopping and the summary; with stand-ins for the programs where the promise is about failing."""

import os
import subprocess
import sys

import psutil
import pytest

from hack.cluster import assets, run, versions


@pytest.fixture
def broken(tmp_path, monkeypatch):
    """Bring along programs that end at once, the way an operator brings real ones."""
    folder = tmp_path / "assets"
    folder.mkdir()
    for name in versions.CONTROL_PLANE:
        (folder / name).write_text(f"#!/bin/sh\necho {name} has no disk >&2\nexit 1\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv(assets.ASSETS_VARIABLE, str(folder))


def children():
    return {process.pid for process in psutil.Process().children(recursive=True)}


def test_a_part_that_does_not_come_up_is_named_with_the_end_of_its_log(broken, tmp_path):
    before = children()
    with pytest.raises(run.NotStarted) as failed:
        run.start(tmp_path / "cluster", versions.DEFAULT_LINE)
    assert "etcd: not running" in str(failed.value)
    assert "etcd has no disk" in str(failed.value)
    assert (tmp_path / "cluster" / "logs" / "etcd.log").read_text() == "etcd has no disk\n"
    assert run.read(tmp_path / "cluster") is None
    assert children() <= before


def command(folder, *arguments):
    line = [sys.executable, "-m", "hack.cluster", "--folder", str(folder), *arguments]
    return subprocess.run(line, check=False, text=True, capture_output=True, timeout=60)


def test_status_without_a_cluster_says_so(tmp_path):
    done = command(tmp_path, "status")
    assert done.returncode == 3
    assert done.stdout.splitlines()[-1].startswith("cluster: none in ")


def test_status_of_a_running_cluster_ends_in_one_summary_line(cluster):
    done = command(cluster.folder, "status")
    assert done.returncode == 0, done.stdout
    assert "cluster: all parts work" in done.stdout.splitlines()[-1]
    assert len(done.stdout.splitlines()) == len(cluster.parts) + 1


def test_a_dead_part_makes_the_status_fail_and_stop_ends_the_others(new_cluster):
    cluster = new_cluster()
    scheduler = cluster.part("kube-scheduler").process()
    scheduler.kill()
    scheduler.wait(timeout=10)
    done = command(cluster.folder, "status")
    assert done.returncode == 1
    assert "1 of 4 parts down: kube-scheduler" in done.stdout.splitlines()[-1]
    run.stop(cluster, keep=True)
    assert [part.name for part in cluster.parts if part.process()] == []
    assert (cluster.folder / "logs" / "etcd.log").exists()


def test_two_clusters_live_side_by_side(cluster, new_cluster):
    other = new_cluster()
    assert run.faults(cluster) == {}
    assert run.faults(other) == {}
    run.stop(other, keep=True)
    assert run.faults(cluster) == {}


def test_an_unknown_line_is_refused_with_the_lines_there_are():
    line = [sys.executable, "-m", "hack.cluster", "status"]
    environment = {**os.environ, versions.LINE_VARIABLE: "1.2"}
    done = subprocess.run(line, check=False, text=True, capture_output=True, timeout=60, env=environment)
    assert done.returncode == 2
    assert "no such line; there are 1.35, 1.37" in done.stderr
