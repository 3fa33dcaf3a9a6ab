"""How many pods each node takes, and how little is looked at to say so."""

import dataclasses

import hypothesis
from hypothesis import strategies as st

from admitter.core import fit, offers
from admitter.core.table import Table
from admitter.model.decision import Policy
from tests.admitter.clusters import a_gang, a_podset, a_view, some_facts

POLICY = Policy()
RESOURCES = ("cpu", "memory", "example.com/net", "example.com/none")


def rooms(view, podset):
    question = fit.question(a_gang(podset), podset, POLICY.gpu_resource, "")
    return fit.rooms(question, offers.of_view(view, {}, POLICY))


def test_resources_that_no_node_has_are_looked_up_no_further_than_the_first(monkeypatch):
    view = a_view(("n1", 8), ("n2", 8), facts={"n1": some_facts(), "n2": some_facts()})
    asked, real = [], Table.column

    def counted(table, resource, **options):
        asked.append(resource)
        return real(table, resource, **options)

    monkeypatch.setattr(Table, "column", counted)
    requests = {"cpu": 1, **{f"example.com/{index}": 1 for index in range(1000)}}
    assert rooms(view, a_podset(requests=requests)).pods.tolist() == [0, 0]
    assert asked == ["nvidia.com/gpu", "cpu", "example.com/0"]


@hypothesis.given(
    st.lists(
        st.tuples(st.integers(0, 8), st.integers(0, 9), st.integers(0, 9), st.integers(0, 3)), min_size=1, max_size=5
    ),
    st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 4)),
    st.integers(1, 3),
)
def test_a_node_takes_as_many_pods_as_the_scarcest_of_all_that_they_ask_for(nodes, requests, gpus):
    names = [f"n{index}" for index in range(len(nodes))]
    allocatable = [dict(zip(RESOURCES, amounts, strict=False)) for _, *amounts in nodes]
    pods = 5
    facts = {
        name: dataclasses.replace(some_facts(), allocatable={**each, "pods": pods})
        for name, each in zip(names, allocatable, strict=True)
    }
    view = a_view(*((name, free) for name, (free, *_) in zip(names, nodes, strict=True)), facts=facts)
    expected = [
        min(free // gpus, pods, *(each.get(name, 0) // need for name, need in requests.items() if need))
        for (free, *_), each in zip(nodes, allocatable, strict=True)
    ]
    assert rooms(view, a_podset(gpus=gpus, requests=requests)).pods.tolist() == expected
