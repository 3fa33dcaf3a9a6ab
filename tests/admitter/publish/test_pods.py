"""How a pod is sent back: at once where nobody runs it, and by its kubelet where one might."""

from admitter.publish import pods
from tests.admitter.grouppods import a_pod


def test_a_pod_on_a_node_ends_in_its_kubelets_time():
    assert pods.eviction(a_pod()).deleteOptions.gracePeriodSeconds == 0
    assert pods.eviction(a_pod(node="n1")).deleteOptions.gracePeriodSeconds is None
