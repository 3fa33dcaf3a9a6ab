"""Selectors, affinity, taints and cordons refuse what the default scheduler refuses."""

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from admitter.core import predicates
from admitter.core.marks import REFUSALS, Marks
from admitter.model.cluster import ANYWHERE, Constraints, Expression, NodeTerm, Toleration
from admitter.model.nodefacts import NodeFacts
from muster.model import kube


def holds(operator, values, value):
    return predicates.matches(Expression(key="k", operator=operator, values=tuple(values)), value)


OPERATORS = {
    "In": (("In", ["a", "b"], "a"), True),
    "In, another value": (("In", ["a"], "b"), False),
    "In, no label": (("In", ["a"], None), False),
    "NotIn": (("NotIn", ["a"], "b"), True),
    "NotIn, no label": (("NotIn", ["a"], None), True),
    "NotIn, the value": (("NotIn", ["a"], "a"), False),
    "Exists": (("Exists", [], ""), True),
    "Exists, no label": (("Exists", [], None), False),
    "DoesNotExist": (("DoesNotExist", [], None), True),
    "DoesNotExist, a label": (("DoesNotExist", [], "x"), False),
    "Gt": (("Gt", ["4"], "8"), True),
    "Gt, equal": (("Gt", ["8"], "8"), False),
    "Gt, no number": (("Gt", ["4"], "many"), False),
    "Gt, what only Python takes for a number": (("Gt", ["4"], "1_0"), False),
    "Gt, two bounds": (("Gt", ["4", "5"], "8"), False),
    "Gt, no label": (("Gt", ["4"], None), False),
    "Lt": (("Lt", ["4"], "-3"), True),
    "an operator of a later version": (("Near", ["a"], "a"), False),
}


@pytest.mark.parametrize(("asked", "expected"), OPERATORS.values(), ids=OPERATORS)
def test_operators(asked, expected):
    assert holds(*asked) is expected


def a_taint(effect="NoSchedule", key="gpu", value="yes"):
    return kube.Taint(key=key, value=value, effect=effect)


TOLERATED = {
    "equal": Toleration(key="gpu", value="yes", effect="NoSchedule"),
    "exists": Toleration(key="gpu", operator="Exists"),
    "everything": Toleration(operator="Exists"),
    "every effect": Toleration(key="gpu", value="yes"),
}


@pytest.mark.parametrize("toleration", TOLERATED.values(), ids=TOLERATED)
@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_a_tolerated_taint_refuses_nobody(toleration, effect):
    found = predicates.taint_refusal((toleration,), (a_taint(effect),), is_cordoned=False)
    assert (found is None) is (toleration.effect in ("", effect))


NOT_TOLERATED = {
    "another value": Toleration(key="gpu", value="no"),
    "another key": Toleration(key="disk", operator="Exists"),
    "another effect": Toleration(key="gpu", value="yes", effect="PreferNoSchedule"),
    "no key and no operator": Toleration(),
}


@pytest.mark.parametrize("toleration", NOT_TOLERATED.values(), ids=NOT_TOLERATED)
def test_a_taint_refuses_and_is_named(toleration):
    found = predicates.taint_refusal((toleration,), (a_taint(),), is_cordoned=False)
    assert (found.reason, found.detail) == ("Taint", "taint gpu=yes:NoSchedule")


def test_a_soft_taint_refuses_nobody_and_is_unwelcome():
    soft = (a_taint("PreferNoSchedule"),)
    assert predicates.taint_refusal((), soft, is_cordoned=False) is None
    assert predicates.is_unwelcome((), soft)
    assert not predicates.is_unwelcome((TOLERATED["everything"],), soft)


def test_a_cordon_refuses_who_does_not_tolerate_it():
    assert predicates.taint_refusal((), (), is_cordoned=True).reason == "Cordoned"
    assert predicates.taint_refusal((TOLERATED["everything"],), (), is_cordoned=True) is None


@pytest.mark.parametrize("key", ["ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"])
def test_a_node_that_an_autoscaler_takes_away_is_nobodys(key):
    found = predicates.taint_refusal((TOLERATED["everything"],), (a_taint(key=key),), is_cordoned=False)
    assert found.reason == "Leaving"


def term(*labels, fields=()):
    return NodeTerm(labels=labels, fields=fields)


A_IS_1 = Expression(key="a", operator="In", values=("1",))
B_EXISTS = Expression(key="b", operator="Exists")
IS_N1 = Expression(key="metadata.name", operator="In", values=("n1",))

AFFINITY = {
    "one of the terms": ((term(A_IS_1), term(B_EXISTS)), {"b": ""}, True),
    "all of a term": ((term(A_IS_1, B_EXISTS),), {"a": "1"}, False),
    "a term that asks for nothing holds nowhere": ((term(),), {"a": "1"}, False),
    "by name": ((term(fields=(IS_N1,)),), {}, True),
    "by a field that nodes are not selected by": (
        (term(fields=(Expression(key="spec.x", operator="In", values=("n1",)),)),), {}, False),
}  # fmt: skip


@pytest.mark.parametrize(("terms", "labels", "expected"), AFFINITY.values(), ids=AFFINITY)
def test_required_affinity(terms, labels, expected):
    found = predicates.label_refusal(Constraints(required=terms), "n1", labels)
    assert (found is None) is expected
    if found is not None:
        assert found.reason == "NodeAffinity"


def test_a_selector_says_what_the_node_has():
    asked = Constraints(node_selector={"pool": "train"})
    assert predicates.label_refusal(asked, "n1", {"pool": "test"}).detail == "selector pool=train, has test"
    assert predicates.label_refusal(asked, "n1", {}).detail == "selector pool=train, has none"
    assert predicates.label_refusal(asked, "n1", {"pool": "train"}) is None


KEYS, VALUES = st.sampled_from(["a", "b"]), st.sampled_from(["1", "2", "x"])
EXPRESSIONS = st.builds(
    Expression,
    key=KEYS,
    operator=st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Odd"]),
    values=st.lists(VALUES, max_size=2).map(tuple),
)
FIELDS = st.builds(
    Expression,
    key=st.sampled_from(["metadata.name", "other"]),
    operator=st.sampled_from(["In", "NotIn"]),
    values=st.lists(st.sampled_from(["n0", "n1"]), max_size=2).map(tuple),
)
TERMS = st.builds(
    NodeTerm, labels=st.lists(EXPRESSIONS, max_size=2).map(tuple), fields=st.lists(FIELDS, max_size=1).map(tuple)
)
EFFECTS = st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])
TOLERATIONS = st.builds(
    Toleration,
    key=st.sampled_from(["", "a", "node.kubernetes.io/unschedulable"]),
    operator=st.sampled_from(["Equal", "Exists"]),
    value=st.sampled_from(["", "1"]),
    effect=st.sampled_from(["", "NoSchedule"]),
)
TAINTS = st.builds(
    kube.Taint,
    key=st.sampled_from(["a", "karpenter.sh/disrupted", "node.kubernetes.io/not-ready"]),
    value=st.sampled_from(["", "1"]),
    effect=EFFECTS,
)
CONSTRAINTS = st.builds(
    Constraints,
    node_selector=st.dictionaries(KEYS, VALUES, max_size=2),
    required=st.lists(TERMS, max_size=2).map(tuple),
    preferred=st.lists(TERMS, max_size=1).map(tuple),
    tolerations=st.lists(TOLERATIONS, max_size=2).map(tuple),
)
FACTS = st.builds(
    NodeFacts,
    labels=st.dictionaries(KEYS, VALUES, max_size=2),
    taints=st.lists(TAINTS, max_size=2).map(tuple),
    is_cordoned=st.booleans(),
)


@hypothesis.given(st.lists(st.none() | FACTS, max_size=5), CONSTRAINTS)
def test_the_fleet_is_answered_as_each_node_is(facts, constraints):
    marks = Marks([f"n{row}" for row in range(len(facts))], facts, is_ideal=False)
    refused = marks.refused(constraints)
    for row, code in enumerate(refused):
        alone = marks.refusal(constraints, row)
        assert (REFUSALS[code] if code >= 0 else None) == (None if alone is None else alone.reason)
    for row, entry in enumerate(facts):
        if entry is not None:
            wished = not predicates.is_unwelcome(constraints.tolerations, entry.taints) and all(
                predicates.term_matches(each, f"n{row}", entry.labels) for each in constraints.preferred
            )
            assert bool(marks.wished(constraints)[row]) is wished


@hypothesis.given(st.lists(FACTS, min_size=1, max_size=5), CONSTRAINTS)
def test_what_is_refused_for_good_is_refused_now(facts, constraints):
    names = [f"n{row}" for row in range(len(facts))]
    now, ever = (Marks(names, facts, is_ideal=ideal).refused(constraints) >= 0 for ideal in (False, True))
    assert not (ever & ~now).any()


def test_a_node_that_the_api_server_does_not_know_is_refused():
    marks = Marks(["n0"], [None], is_ideal=False)
    assert [REFUSALS[code] for code in marks.refused(ANYWHERE)] == ["NoNodeObject"]


#   block  b0        b1      -       (n3 has no rack)
#   rack   r0  r0    r0      -
def test_a_rack_is_named_with_its_block_and_a_node_without_one_is_alone():
    facts = [
        NodeFacts(labels={"rack": "r0", "block": "b0"}),
        NodeFacts(labels={"rack": "r0", "block": "b0"}),
        NodeFacts(labels={"rack": "r0", "block": "b1"}),
        NodeFacts(labels={"block": "b1"}),
        None,
    ]
    codes, names = Marks([f"n{row}" for row in range(5)], facts, is_ideal=False).domains(("rack", "block"))
    assert [names[code] for code in codes] == ["b0/r0", "b0/r0", "b1/r0", "node n3", "node n4"]
    assert len(np.unique(codes)) == 4
