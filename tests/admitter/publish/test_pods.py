"""How a pod is sent back: at once where nobody runs it, and by its kubelet where one might."""

from lightkube.models import core_v1, meta_v1
from lightkube.resources import core_v1 as core

from admitter.publish import pods
from admitter.publish.nodes import Outcome
from tests.admitter.clusters import TAKEN
from tests.admitter.grouppods import a_pod


def test_a_pod_on_a_node_ends_in_its_kubelets_time():
    assert pods.eviction(a_pod()).deleteOptions.gracePeriodSeconds == 0
    assert pods.eviction(a_pod(node="n1")).deleteOptions.gracePeriodSeconds is None


class Client:
    """An API server on which a pod's name is free only after a while."""

    def __init__(self, refusals):
        self.refusals, self.asked = refusals, []

    async def get(self, kind, name, *, namespace):
        metadata = meta_v1.ObjectMeta(name=name, namespace=namespace)
        return core.Pod(metadata=metadata, spec=core_v1.PodSpec(containers=[], nodeName="n1"))

    async def create(self, item, name="", *, namespace="", dry_run=False):
        kind = type(item).__name__
        self.asked.append((kind, "dry run" if dry_run else ""))
        if kind == "Pod" and not dry_run and self.refusals:
            self.refusals -= 1
            raise OSError("still there")


async def test_a_bare_pod_on_a_node_is_made_anew_once_its_kubelet_has_let_it_go(monkeypatch):
    monkeypatch.setattr(pods, "GONE_AGAIN_SECONDS", 0.001)
    client = Client(refusals=3)
    writer = pods.PodWriter(client, lambda _: True, lambda: TAKEN, reporter="a")
    assert await writer.send_back(a_pod(node="n1"), 1) == (Outcome.DONE, "")
    assert client.asked == [("Pod", "dry run"), ("PodEviction", ""), *[("Pod", "")] * 4]
