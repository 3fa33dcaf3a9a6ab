"""The checkpoint reader: both shapes, and anything else that may lie in the file's place."""

import json
import os

import hypothesis
import hypothesis.strategies as st
import pytest

from agent.model import planes
from agent.sources import checkpoint
from hack.fakenode import kubelet, kubeletstate
from muster.model.reading import Known, Unknown

GPU = "nvidia.com/gpu"


def a_state(shape):
    made = kubeletstate.gpus(["GPU-a", "GPU-b"], numa_nodes={"GPU-b": 1})
    made = kubeletstate.allocate("ml", "train-0", GPU, ["GPU-a", "GPU-b"], uid="u1")(made)
    return kubeletstate.dataclasses.replace(made, checkpoint_shape=shape)


@pytest.mark.parametrize("shape", list(kubeletstate.CheckpointShape))
def test_both_shapes_say_the_same(shape):
    """1.19's flat list and 1.20's map by NUMA node read alike (S12)."""
    assert checkpoint.parse(kubelet.checkpoint_text(a_state(shape)).encode()) == Known(
        planes.Checkpoint(
            registered={GPU: ("GPU-a", "GPU-b")},
            pods=(planes.CheckpointPod(uid="u1", container="main", resource=GPU, ids=("GPU-a", "GPU-b")),),
        )
    )


def test_a_device_on_two_numa_nodes_counts_once():
    """The same id under two nodes is one device."""
    entry = {"PodUID": "u", "ContainerName": "c", "ResourceName": GPU, "DeviceIDs": {"0": ["x"], "1": ["x"]}}
    read = checkpoint.parse(json.dumps({"Data": {"PodDeviceEntries": [entry], "RegisteredDevices": None}}).encode())
    assert isinstance(read, Known)
    assert read.value.pods[0].ids == ("x",)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe\x00",
        b"null",
        b"[]",
        b'{"Data": 3}',
        b'{"Data": {"PodDeviceEntries": {}}}',
        b'{"Data": {"PodDeviceEntries": [{"PodUID": 4}]}}',
        b'{"Data": {"RegisteredDevices": {"a": "GPU-a"}}}',
        b'{"Data": {"RegisteredDevices": {"a": ["\\ud800"]}}}',
        b"[" * 100_000,
        kubelet.checkpoint_text(a_state(kubeletstate.CheckpointShape.NUMA)).encode()[:-30],
    ],
)
def test_a_file_that_is_no_checkpoint_is_unknown(content):
    """Half-written, binary and wrong files give a reason, not an exception."""
    read = checkpoint.parse(content)
    assert isinstance(read, Unknown)
    assert read.reason == "Malformed"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["Data", "PodDeviceEntries", "RegisteredDevices", "PodUID", "DeviceIDs", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@hypothesis.given(st.one_of(st.binary(max_size=200), json_values.map(lambda value: json.dumps(value).encode())))
def test_whatever_the_bytes_a_read_returns(content):
    """No content raises."""
    assert isinstance(checkpoint.parse(content), Known | Unknown)


@hypothesis.given(st.data())
def test_a_damaged_checkpoint_never_raises(data):
    """A true checkpoint cut or overwritten anywhere is Known or Unknown."""
    content = bytearray(kubelet.checkpoint_text(a_state(kubeletstate.CheckpointShape.NUMA)).encode())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at : at + data.draw(st.integers(0, 20))] = data.draw(st.binary(max_size=4))
    assert isinstance(checkpoint.parse(bytes(content)), Known | Unknown)


def test_places_that_hold_no_file(tmp_path):
    """Missing, directory, FIFO, too large: each has its reason, and none of them blocks."""
    assert checkpoint.CheckpointFile(tmp_path / "none").read().reason == "NotFound"
    assert checkpoint.CheckpointFile(tmp_path).read().reason == "NotAFile"
    os.mkfifo(tmp_path / "fifo")
    assert checkpoint.CheckpointFile(tmp_path / "fifo").read().reason == "NotAFile"
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(checkpoint.MAX_BYTES + 1)
    assert checkpoint.CheckpointFile(tmp_path / "huge").read().reason == "TooLarge"


def test_a_replaced_file_is_read_again(tmp_path):
    """The cache follows the file, also when it gets worse."""
    path = tmp_path / "kubelet_internal_checkpoint"
    path.write_text(kubelet.checkpoint_text(a_state(kubeletstate.CheckpointShape.FLAT)))
    source = checkpoint.CheckpointFile(path)
    first = source.read()
    assert isinstance(first, Known)
    assert source.read() is first
    path.write_bytes(b"{")
    assert isinstance(source.read(), Unknown)
