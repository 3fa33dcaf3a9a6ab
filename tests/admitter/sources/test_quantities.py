"""What a pod asks of its node stays a number that arrays and messages can hold."""

import hypothesis
import hypothesis.strategies as st
from lightkube.models import core_v1

from admitter.sources import quantities

texts = st.one_of(
    st.integers(min_value=0, max_value=2**80).map(str),
    st.tuples(st.integers(0, 10**6), st.sampled_from(("E", "Ei", "P", "m", ""))).map(
        lambda pair: f"{pair[0]}{pair[1]}"
    ),
)
requests = st.dictionaries(st.sampled_from(("cpu", "memory", "nvidia.com/gpu")), texts, min_size=1)


def a_container(asked):
    return core_v1.Container(name="main", resources=core_v1.ResourceRequirements(requests=asked))


@hypothesis.given(containers=st.lists(requests, min_size=1, max_size=4))
def test_whatever_containers_ask_for_the_sum_is_within_bounds_and_below_none_of_them(containers):
    spec = core_v1.PodSpec(containers=[a_container(asked) for asked in containers])
    total = quantities.of_pod(spec)
    assert all(0 <= number <= quantities.MOST for number in total.values())
    for asked in containers:
        assert all(total[name] >= number for name, number in quantities.amounts(asked).items())


def test_two_containers_that_ask_for_all_64_bits_do_not_go_over_them():
    asked = {"nvidia.com/gpu": str(2**63 - 1)}
    assert quantities.of_pod(core_v1.PodSpec(containers=[a_container(asked)] * 2)) == {
        "nvidia.com/gpu": quantities.MOST
    }
