"""An eight-GPU node with a second fault on it, and what its numbers must be: worked out from P3 and P3a by sets alone.

Nothing here is taken from the core: the oracle of tests/agent/core/test_semantics.py and test_principles.py.
"""

import dataclasses

import pytest

from agent.model import planes
from muster.model import codec
from muster.model.reading import Known
from tests import builders
from tests.builders import WHOLE, a_gpu, a_listed_pod, a_lost_gpu, a_node, a_process

EIGHT = tuple(range(8))
MIG = "nvidia.com/mig-1g.10gb"
SETTLED = (0, 20, 40)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Beside:
    """A second fault on GPUs that the row does not touch."""

    lost: frozenset[int] = frozenset()
    used: frozenset[int] = frozenset()
    out: frozenset[int] = frozenset()


BESIDES = {
    "alone": Beside(),
    "beside a lost GPU": Beside(lost=frozenset({6})),
    "beside a stranger's process": Beside(used=frozenset({7})),
    "with one counted out": Beside(out=frozenset({5})),
    "beside all three": Beside(lost=frozenset({6}), used=frozenset({7}), out=frozenset({5})),
}
each_beside = pytest.mark.parametrize("beside", BESIDES.values(), ids=BESIDES)


def ids(numbers):
    return tuple(f"GPU-{number}" for number in sorted(numbers))


def node(beside, *pods, listed=(), kubelet=codec.EMPTY, says=None, gpus=(), **changes):
    """Return an eight-GPU node with the second fault on it; `says` is the Node's (capacity, allocatable)."""
    offered = set(EIGHT) - beside.out
    state = dataclasses.replace(builders.a_kubelet({WHOLE: ids(offered)}, listed).value, **kubelet)
    whole = a_node(
        **{
            "kubelet": Known(state),
            "node_object": builders.a_node_object({WHOLE: says or (8, len(offered))}),
            "pods": Known(pods),
            **changes,
        }
    )
    strange = [a_gpu(number, processes=Known((a_process(),))) for number in beside.used]
    return builders.with_gpus(whole, *gpus, *(a_lost_gpu(number) for number in beside.lost), *strange)


def expected(beside, *, held=(), waiting=0, asked=None, left=None):
    """Work P3 and P3a out by sets: (strict, lenient, pick risk)."""
    pick = set(EIGHT) - beside.out - set(held)
    wrong = pick & (beside.lost | beside.used)
    asked = len(held) + waiting if asked is None else asked
    left = len(EIGHT) - len(beside.out) if left is None else left
    lenient = max(0, min(len(pick - wrong) - waiting, left - asked))
    return (0 if wrong else lenient, lenient, len(wrong) / len(pick) if pick else 0.0)


def numbers(observation, times=SETTLED, name=WHOLE):
    return builders.numbers_of(builders.reports_of(observation, times)[-1])[name][1:]


def causes(report):
    return {
        finding.cause
        for finding in (*report.node_findings, *(f for item in report.resources.values() for f in item.findings))
    }


A_ON_0 = (a_listed_pod("a", "GPU-0"),)


def a_cut_node(*promised, profiles=("1g.10gb",) * 3, name=MIG):
    return a_node(
        nvml=Known(planes.Nvml(devices=(builders.a_mig_gpu(0, profiles),))),
        kubelet=builders.a_kubelet({name: promised}),
        node_object=builders.a_node_object({name: len(promised)}),
    )
