"""Slices from a file: re-read live, and the last good one stands."""

import asyncio
import json

import pytest

from admitter.sources.clusterfile import ClusterFile, parse
from muster.model import kube
from muster.model.reading import Known
from tests.admitter import admitters


class Clock:
    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now


def write(path, content):
    fresh = path.with_suffix(".new")
    fresh.write_text(content if isinstance(content, str) else json.dumps(content))
    fresh.replace(path)


def a_slice(gpus):
    return {"node_object": {"capacity": {"nvidia.com/gpu": gpus}, "allocatable": {"nvidia.com/gpu": gpus}}}


def gpus_of(content):
    match content.node_object:
        case Known(node):
            return node.allocatable["nvidia.com/gpu"]
    return None


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cluster.json"


def test_slices_are_read_and_changes_named(path):
    write(path, {"nodes": {"n1": a_slice(8), "n2": a_slice(4)}})
    source = ClusterFile(path, Clock().monotonic)
    assert sorted(source.refresh()) == ["n1", "n2"]
    assert source.refresh() == {}
    write(path, {"nodes": {"n1": a_slice(7)}})
    changed = source.refresh()
    assert gpus_of(changed["n1"]) == 7
    assert changed["n2"] == kube.NodeSlice()
    content, age = source.slice_of("n1")
    assert (gpus_of(content), age) == (7, 0.0)


BAD = {
    "not JSON": "{",
    "no nodes": {"machines": {}},
    "a bad slice": {"nodes": {"n1": {"node_object": {"capacity": "many"}}}},
    "an unknown field": {"nodes": {"n1": {"gpus": 8}}},
}


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_the_last_good_file_stands_and_grows_old(path, content):
    clock = Clock()
    write(path, {"nodes": {"n1": a_slice(8)}})
    source = ClusterFile(path, clock.monotonic)
    source.refresh()
    write(path, content)
    clock.now += 5
    assert source.refresh() == {}
    assert source.problem
    clock.now += 3
    kept, age = source.slice_of("n1")
    assert (gpus_of(kept), age) == (8, 3.0)
    write(path, {"nodes": {"n1": a_slice(2)}})
    assert gpus_of(source.refresh()["n1"]) == 2
    assert source.problem == ""


def test_the_same_file_counts_again_when_it_is_back(path, tmp_path):
    clock = Clock()
    write(path, {"nodes": {"n1": a_slice(8)}})
    source = ClusterFile(path, clock.monotonic)
    source.refresh()
    path.rename(tmp_path / "aside.json")
    source.refresh()
    clock.now += 5
    assert source.slice_of("n1")[1] == 5.0
    (tmp_path / "aside.json").rename(path)
    assert sorted(source.refresh()) == ["n1"]
    assert (source.problem, source.slice_of("n1")[1]) == ("", 0.0)
    assert source.refresh() == {}


def test_every_slice_is_sent_again_after_a_failure(path):
    """An agent that came meanwhile was told an age: it would be blind for as long as nothing changes on its node."""
    write(path, {"nodes": {"n1": a_slice(8), "n2": a_slice(4)}})
    source = ClusterFile(path, Clock().monotonic)
    source.refresh()
    write(path, "{")
    source.refresh()
    write(path, {"nodes": {"n1": a_slice(8), "n2": a_slice(5)}})
    assert {node: gpus_of(content) for node, content in source.refresh().items()} == {"n1": 8, "n2": 5}
    assert source.refresh() == {}


def test_nothing_is_known_before_the_first_good_file(path):
    source = ClusterFile(path, Clock().monotonic)
    assert source.refresh() == {}
    assert source.slice_of("n1") is None


def test_every_problem_is_named_at_once():
    data = json.dumps({"nodes": {"n1": {"gpus": 8}, "n2": {"node_object": 4}}, "pods": []}).encode()
    with pytest.raises(ValueError, match="pods") as caught:
        parse(data)
    assert "$.nodes.n1.gpus" in str(caught.value)
    assert "$.nodes.n2.node_object" in str(caught.value)


async def test_changes_are_sent_as_the_file_changes(path):
    write(path, {"nodes": {"n1": a_slice(8)}})
    source = ClusterFile(path, Clock().monotonic)
    source.refresh()
    sent = asyncio.Queue()
    task = asyncio.create_task(source.watch(lambda node, content: sent.put_nowait((node, gpus_of(content)))))
    write(path, {"nodes": {"n1": a_slice(6)}})
    async with asyncio.timeout(20):
        assert await sent.get() == ("n1", 6)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_node_is_sent_its_slice_and_every_change_of_it(tmp_path, path):
    """Through a whole admitter: at once when the agent connects, and again when the file is replaced."""
    town = admitters.Town(tmp_path)
    write(path, {"nodes": {"n1": a_slice(8), "n2": a_slice(1)}})
    async with town.admitter(cluster_file=path) as (_, address), town.node(address, "n1") as node:
        await admitters.until(lambda: sent_gpus(node) == [8])
        write(path, {"nodes": {"n1": a_slice(5)}})
        await admitters.until(lambda: sent_gpus(node) == [8, 5])


def sent_gpus(node):
    return [content.node_object.allocatable["nvidia.com/gpu"] for content in node.slices]
