"""The fake kubelet is honest: it follows its file, and fails loudly when the file is wrong."""

import asyncio
import json
import subprocess
import sys

import pytest

from agent.sources import podresources
from hack.fakenode import kubeletstate as state
from hack.fakenode.kubelet import FakeKubelet
from muster.model.codec import Malformed
from muster.model.reading import Known

GPU = "nvidia.com/gpu"


async def test_a_file_that_goes_wrong_ends_the_server(tmp_path):
    """A malformed replacement is loud, and the socket is gone with it."""
    file, socket = tmp_path / "s.json", tmp_path / "k.sock"
    state.write_state(file, state.gpus(["GPU-a"]))
    async with FakeKubelet(state=file, socket=socket) as kubelet:
        file.write_text('{"resources": {"nvidia.com/gpu": [{"id": null}]}}')
        with pytest.raises(Malformed, match=r"nvidia.com/gpu\[0\].id"):
            await asyncio.wait_for(kubelet.wait(), 10)
        assert not socket.exists()


@pytest.mark.parametrize(
    "text", ["{", '{"socket": "open"}', '{"list_fault": {"kind": "slow"}}', '{"pods": [], "extra": 1}']
)
def test_the_program_refuses_a_malformed_file(tmp_path, text):
    """Exit status 2 and the field's path; nothing is served."""
    file = tmp_path / "s.json"
    file.write_text(text)
    command = [
        sys.executable,
        "-m",
        "hack.fakenode.kubelet",
        "--state",
        str(file),
        "--socket",
        str(tmp_path / "k.sock"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("fake kubelet: ")
    assert not (tmp_path / "k.sock").exists()


def test_the_checkpoint_is_written_on_three_occasions_only():
    """Plugin list, allocation, expiry write it; a lost plugin and an ended pod do not (S11)."""
    now = state.allocate("ml", "a", GPU, ["GPU-a"])(state.gpus(["GPU-a", "GPU-b"]))
    after = state.free("ml", "a")(state.plugin_down(GPU)(now))
    assert after.checkpoint == now.checkpoint
    assert after.pods == ()
    forgotten = state.forget(GPU)(after)
    assert dict(forgotten.checkpoint.registered) == {}


async def test_the_life_of_a_plugin(tmp_path):
    """Down empties what is advertised, up fills it; a restarted kubelet waits for registration (S3)."""
    file, socket, saved = tmp_path / "s.json", tmp_path / "k.sock", tmp_path / "checkpoint"
    state.write_state(file, state.gpus(["GPU-a"]))
    client = podresources.PodResources(socket)
    async with FakeKubelet(state=file, socket=socket, checkpoint=saved) as kubelet:
        state.edit(file, state.plugin_down(GPU))
        assert await client.read_allocatable() == Known(())
        state.edit(file, state.plugin_up(GPU))
        match await client.read_allocatable():
            case Known((entry,)):
                assert entry.ids == ("GPU-a",)
            case other:
                pytest.fail(str(other))
        state.edit(file, state.restart)
        await kubelet.settled()
        assert await client.read_allocatable() == Known(())
        assert json.loads(saved.read_text())["Data"]["RegisteredDevices"] == {GPU: ["GPU-a"]}
        await client.close()


async def test_a_checkpoint_that_is_no_text_is_written_anew(tmp_path):
    """What a test left in its place does not end the kubelet."""
    file, socket, saved = tmp_path / "s.json", tmp_path / "k.sock", tmp_path / "checkpoint"
    state.write_state(file, state.gpus(["GPU-a"]))
    async with FakeKubelet(state=file, socket=socket, checkpoint=saved) as kubelet:
        saved.write_bytes(b"\xff\xfe\x00")
        state.edit(file, state.plugin_up(GPU))
        state.edit(file, state.device_unhealthy(GPU, "GPU-a"))
        await kubelet.settled()
        assert json.loads(saved.read_bytes())["Data"]["RegisteredDevices"] == {GPU: []}
