"""A cycle's sentence names every cause with its verdict, and says which of them has no effect."""

from agent import sentence
from agent.model.policy import Mode, Policy
from hack.matrix import captures
from muster.model import codec
from muster.model.reading import Known
from tests import builders
from tests.ruleshown import a_timeline


def facts(policy):
    node = builders.with_gpus(builders.a_node(), builders.a_gpu(3, drain=Known(True)))
    return sentence.facts_of(captures.replay(a_timeline("gpu-drained", node), policy)[-1])


def test_a_cause_stands_with_its_verdict():
    assert facts(Policy())["causes"] == ["GpuDrained/OVER"]


def test_a_cause_that_is_only_observed_says_so():
    found = facts(Policy(modes=codec.freeze({"gpu-drained": Mode.OBSERVE})))
    assert found["causes"] == ["GpuDrained/observed"]
    assert found["resources"]["nvidia.com/gpu"]["admit_strict"] == 8
