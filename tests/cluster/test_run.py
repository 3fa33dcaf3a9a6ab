"""Starting and stopping; with stand-ins for the programs where the promise is about failing."""

import concurrent.futures

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


def test_a_dead_part_is_a_fault_and_stop_ends_the_others(new_cluster):
    cluster = new_cluster()
    scheduler = cluster.part("kube-scheduler").process()
    scheduler.kill()
    scheduler.wait(timeout=10)
    assert run.faults(cluster) == {"kube-scheduler": "not running"}
    run.stop(cluster, keep=True)
    assert [part.name for part in cluster.parts if part.process()] == []
    assert (cluster.folder / "logs" / "etcd.log").exists()


def test_what_a_cluster_was_asked_for_is_read_again(tmp_path):
    asked = run.Asked(line="1.35", wanted=("jobset", "kueue"), nodes=3, gpus=4, real=True)
    run._write(run.Cluster(folder=tmp_path, asked=asked, is_complete=True))
    assert run.read(tmp_path) == run.Cluster(folder=tmp_path, asked=asked, is_complete=True)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"node_ports": {}, "asked": {"line": "1.37"}}'])
def test_a_file_that_says_nothing_is_no_cluster_and_its_folder_is_cleared(tmp_path, text):
    folder = tmp_path / "cluster"
    folder.mkdir()
    (folder / "cluster.json").write_text(text)
    assert run.read(folder) is None
    run.clear(folder)
    assert not folder.exists()


def test_two_starts_at_once_get_ports_of_their_own(cluster, tmp_path, line):
    with concurrent.futures.ThreadPoolExecutor() as pool:
        starts = [pool.submit(run.start, tmp_path / name, line) for name in ("one", "two")]
        started = [each.result() for each in starts]
    assert [run.faults(each) for each in [cluster, *started]] == [{}, {}, {}]
    for each in started:
        run.stop(each)
    assert run.faults(cluster) == {}
