"""A rule's mode, from the policy file of a running agent to what the admitter says of the node."""

import functools
import json

import pytest

from hack.fakenode.fleet import Fleet, wait_until
from hack.fakenode.node import FakeNode
from tests.e2e.test_scrape import SETTINGS, WAIT_SECONDS, page_of

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

TOLD = 'muster_findings{cause="GpuLostStillPromised",mode="observe",reason="GpuLost",resource="nvidia.com/gpu",verdict="OVER"}'
"""The finding with its own verdict: its hold-down is over."""


def says(port, *texts):
    page = page_of(port)
    return all(text in page for text in texts)


def test_an_observed_fault_is_told_and_takes_nothing(tmp_path):
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"modes": {"B2": "observe"}}))
    node = FakeNode(tmp_path, "gpu-a1")
    with Fleet(tmp_path, [node], scale=0.1, settings={**SETTINGS, "--policy": str(policy)}) as fleet:
        fleet.start()
        agent, admitter = fleet.metrics["gpu-a1"], fleet.metrics["admitter"]
        heard = functools.partial(says, admitter, 'muster_admitter_admissible_units{resource="nvidia.com/gpu"} 8.0')
        assert wait_until(heard, WAIT_SECONDS), fleet.log_of("admitter")[-4000:]
        node.lose_gpu(3)
        assert wait_until(functools.partial(says, agent, TOLD), WAIT_SECONDS), fleet.log_of("gpu-a1")[-4000:]
        kept = ('count="admit_strict",resource="nvidia.com/gpu"} 8.0', 'muster_node_verdict{verdict="OK"} 1.0')
        assert says(agent, TOLD, *kept)
        shown = fleet.muster("status")
        assert (shown.returncode, "observed" in shown.stdout, "GPU_IS_LOST" in shown.stdout) == (0, True, True)
        assert says(admitter, 'muster_admitter_nodes{verdict="OK"} 1.0', 'muster_admitter_nodes{verdict="OVER"} 0.0')
        assert heard()
