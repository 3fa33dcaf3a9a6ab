"""What the soak did to a machine, and what it tells the oracle of it."""

import random
import subprocess
import sys

import psutil

from hack.fakenode.node import FakeNode
from hack.soak.world import Publisher, World


class NoFleet:
    """Runs nothing."""


def test_a_stopped_reader_that_the_agent_has_replaced_is_up_again(tmp_path):
    """design.md section 8: a hung reader is killed and replaced once, and then the node is read again."""
    node = FakeNode(tmp_path, "soak-0", "t4")
    world = World(NoFleet(), node, random.Random(1), Publisher(tmp_path / "cluster.json"), is_elder=False)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        world.stop(psutil.Process(child.pid))
        world.switches.reader = False
        assert not world.facts().is_reader_up
        child.kill()
        child.wait()
        assert world.facts().is_reader_up
        world.go_on()
