"""What a person may type while the demo's fleet is held: every line gets one answer, and none ends the fleet."""

import pytest

from hack.demo import hold
from hack.demo.scene import Scene
from hack.fakenode.fleet import Fleet
from hack.fakenode.node import FakeNode, with_mig


@pytest.fixture
def scene(tmp_path):
    """Two fake machines; no program runs."""
    sliced = FakeNode(tmp_path, "gpu-d", "dgx-a100")
    sliced.restart_plugin(with_mig(sliced, (("3g.40gb", 0),)))
    with Fleet(tmp_path, [FakeNode(tmp_path, "gpu-c"), sliced], scale=0.05) as fleet:
        yield Scene(fleet, muster=None)


MISUSED = {
    "bogus": "bogus: is none of lose, xid, hang, heal, reset, cut, plugin, kill, start, ask, run, end, help, quit",
    "lose gpu-c": "is written: lose NODE GPU",
    "lose gpu-x 1": "lose: 'gpu-x' is none of gpu-c, gpu-d",
    "lose gpu-c 8": "lose: '8' is no GPU of gpu-c, 0 to 7",
    "lose gpu-c -1": "lose: '-1' is no GPU of gpu-c, 0 to 7",
    "xid gpu-c 1 x": "xid: 'x' is no Xid, 1 to 999",
    "cut gpu-c": "cut: only gpu-d is cut into instances",
    "kill gpu-c": "kill: 'gpu-c' is none of the running: ",
    "start nobody": "start: 'nobody' is none of the stopped: admitter, gpu-c, gpu-d",
    "run": "run: there is no lease to run on: no answer yet",
    "end": "end: nothing is asked for",
}


@pytest.mark.parametrize(("line", "said"), MISUSED.items(), ids=MISUSED)
async def test_a_line_that_does_not_fit_says_how(scene, line, said):
    assert await hold.answer(scene, line) == said


async def test_a_gpu_is_lost_and_reset(scene):
    node = scene.fleet.nodes["gpu-c"]
    await hold.answer(scene, "lose gpu-c 5")
    assert node.driver.gpus[5].lost
    assert await hold.answer(scene, "reset gpu-c 5") == "GPU 5 of gpu-c was reset"
    assert not node.driver.gpus[5].lost


async def test_a_hang_is_healed(scene):
    node = scene.fleet.nodes["gpu-c"]
    await hold.answer(scene, "hang gpu-c 4")
    assert len(node.driver.faults) == 1
    await hold.answer(scene, "heal gpu-c 4")
    assert len(node.driver.faults) == 0


async def test_a_plugin_promises_what_is_there(scene):
    node = scene.fleet.nodes["gpu-d"]
    before = node.free_ids("nvidia.com/mig-3g.40gb")
    await hold.answer(scene, "cut gpu-d")
    assert node.free_ids("nvidia.com/mig-3g.40gb") == before
    await hold.answer(scene, "plugin gpu-d")
    there = {instance.uuid for gpu in node.driver.gpus for instance in gpu.mig}
    assert set(node.free_ids("nvidia.com/mig-3g.40gb")) == there
    assert not there & set(before)


async def test_help_names_every_command(scene):
    said = await hold.answer(scene, "help")
    assert all(name in said for name in (*hold.COMMANDS, "quit"))
