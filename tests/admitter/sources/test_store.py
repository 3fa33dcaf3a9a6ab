"""What a cluster watch keeps of nodes that are gone."""

import dataclasses
import datetime

import pytest

from admitter.sources.store import Store
from tests.admitter.grouppods import a_pod, rejected
from tests.admitter.nodeworld import a_kube_node

NOW = datetime.datetime(2026, 12, 2, 10, tzinfo=datetime.UTC)
REFUSED = dataclasses.replace(rejected(a_pod("trainer-0"), "n1"), reported_at=NOW)


@pytest.fixture
def store():
    made = Store()
    made.change_node(a_kube_node("n1"), is_gone=False)
    made.change_pod(REFUSED, is_gone=True)
    assert len(made.remember_rejections("n1", NOW)) == 1
    return made


def test_rejections_go_with_their_node(store):
    """No agent asks for them any more, and autoscalers never use most names twice."""
    store.change_node(a_kube_node("n1"), is_gone=True)
    assert store.remember_rejections("n1", NOW) == ()


def test_rejections_go_with_a_node_that_a_full_list_does_not_have(store):
    store.replace_nodes([a_kube_node("n2")])
    assert store.remember_rejections("n1", NOW) == ()


def test_rejections_of_a_node_that_stays_are_kept(store):
    store.replace_nodes([a_kube_node("n1")])
    assert len(store.remember_rejections("n1", NOW)) == 1
