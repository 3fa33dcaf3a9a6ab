"""Autoscalers are asked to leave leased and reserved nodes alone, and nothing of others is touched."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admitter import gatesettings
from admitter.core import keepnodes
from admitter.core.keepnodes import KeepPolicy
from admitter.model.cluster import KubeNode
from muster.model import kube, labels
from muster.model.keptnodes import ANNOTATIONS, is_marked

CA, KARPENTER = sorted(ANNOTATIONS)
POLICY = KeepPolicy(pools=(("pool", "gpu"),), most=2)


def a_node(name="n1", *, pool="gpu", **annotations):
    found = kube.NodeObject(capacity={}, allocatable={}, labels={"pool": pool}, annotations=annotations)
    return KubeNode(name=name, uid=f"uid-{name}", resource_version="1", object=found)


def after(node, changes):
    """The Node once the changes of it are written."""
    found = dict(node.object.annotations)
    for change in changes:
        if change.node == node.name:
            for key, value in change.annotations.items():
                found.pop(key, None)
                if value is not None:
                    found[key] = value
    return dataclasses.replace(node, object=dataclasses.replace(node.object, annotations=found))


def test_a_leased_node_gets_both_and_loses_both():
    node = a_node()
    changes = keepnodes.changes([node], {"n1"}, POLICY, may_let_go=True)
    kept = after(node, changes)
    assert kept.object.annotations == {CA: "true", KARPENTER: "true", labels.KEPT.full: f"{CA},{KARPENTER}"}
    assert keepnodes.changes([kept], {"n1"}, POLICY, may_let_go=True) == ()
    assert after(kept, keepnodes.changes([kept], set(), POLICY, may_let_go=True)) == node


def test_what_a_person_has_written_stays():
    node = a_node(**{CA: "false"})
    kept = after(node, keepnodes.changes([node], {"n1"}, POLICY, may_let_go=True))
    assert kept.object.annotations == {CA: "false", KARPENTER: "true", labels.KEPT.full: KARPENTER}
    assert after(kept, keepnodes.changes([kept], set(), POLICY, may_let_go=True)) == node
    whole = a_node(**{CA: "true", KARPENTER: "true"})
    assert keepnodes.changes([whole], {"n1"}, POLICY, may_let_go=True) == ()


def test_a_node_of_no_pool_is_never_asked_for():
    assert keepnodes.changes([a_node(pool="cpu")], {"n1"}, POLICY, may_let_go=True) == ()
    assert keepnodes.changes([a_node()], {"n1"}, KeepPolicy(), may_let_go=True) == ()


def test_a_node_that_left_the_pool_is_let_go():
    kept = after(a_node(), keepnodes.changes([a_node()], {"n1"}, POLICY, may_let_go=True))
    left = dataclasses.replace(kept, object=dataclasses.replace(kept.object, labels={"pool": "other"}))
    (change,) = keepnodes.changes([left], {"n1"}, POLICY, may_let_go=True)
    assert not change.is_kept


def test_a_new_leader_lets_nothing_go_before_it_knows_what_is_leased():
    kept = after(a_node(), keepnodes.changes([a_node()], {"n1"}, POLICY, may_let_go=True))
    assert keepnodes.changes([kept], set(), POLICY, may_let_go=False) == ()


@given(rounds=st.lists(st.sets(st.sampled_from("abcdef")), max_size=8))
def test_never_more_than_the_cap_and_a_kept_node_stays_kept_while_it_is_wanted(rounds):
    nodes = [a_node(name) for name in "abcdef"]
    for wanted in rounds:
        before = {node.name for node in nodes if is_marked(node.object.annotations)}
        changes = keepnodes.changes(nodes, wanted, POLICY, may_let_go=True)
        nodes = [after(node, changes) for node in nodes]
        now = {node.name for node in nodes if is_marked(node.object.annotations)}
        assert len(now) == min(len(wanted), POLICY.most)
        assert before & wanted <= now <= wanted


@pytest.mark.parametrize(
    ("pools", "is_good"), [(("pool=gpu",), True), (("a.b/c=",), True), (("pool",), False), (("=x",), False)]
)
def test_pools_are_label_and_value(pools, is_good):
    config = dataclasses.replace(gatesettings.GateSettings(), keep_pools=pools)
    assert (not any(check(config) for check in gatesettings.CHECKS)) is is_good
