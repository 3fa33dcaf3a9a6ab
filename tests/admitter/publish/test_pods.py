"""How a pod is sent back: at once where nobody runs it, and by its kubelet where one might."""

import httpx2
from lightkube.core import exceptions
from lightkube.models import core_v1, meta_v1
from lightkube.resources import core_v1 as core

from admitter.publish import pods, remaking
from admitter.publish.nodes import Outcome
from tests.admitter.clusters import TAKEN
from tests.admitter.grouppods import a_pod


def test_a_pod_on_a_node_ends_in_its_kubelets_time():
    assert pods.eviction(a_pod(), "1").deleteOptions.gracePeriodSeconds == 0
    assert pods.eviction(a_pod(node="n1"), "1").deleteOptions.gracePeriodSeconds is None


class Client:
    """An API server on which a pod's name is free only after a while."""

    def __init__(self, refusals):
        self.refusals, self.asked = refusals, []

    async def get(self, kind, name, *, namespace):
        metadata = meta_v1.ObjectMeta(name=name, namespace=namespace)
        return core.Pod(metadata=metadata, spec=core_v1.PodSpec(containers=[], nodeName="n1"))

    async def patch(self, kind, name, body, *, namespace, patch_type):
        return core.Pod(metadata=meta_v1.ObjectMeta(name=name, resourceVersion="2"))

    async def create(self, item, name="", *, namespace="", dry_run=False):
        kind = type(item).__name__
        self.asked.append((kind, "dry run" if dry_run else ""))
        if kind == "Pod" and not dry_run and self.refusals:
            self.refusals -= 1
            raise OSError("still there")


async def test_a_bare_pod_on_a_node_is_made_anew_once_its_kubelet_has_let_it_go(monkeypatch):
    monkeypatch.setattr(remaking, "MOST_SECONDS", 0.0)
    client = Client(refusals=3)
    writer = pods.PodWriter(client, lambda _: True, lambda: TAKEN, reporter="a")
    assert await writer.send_back(a_pod(node="n1"), 1) == (Outcome.DONE, "")
    await writer._remaker.wait()
    assert client.asked == [("Pod", "dry run"), ("PodEviction", ""), *[("Pod", "")] * 4]


class LostAnswers(Client):
    """Takes the pod, and answers nobody for a long time; then says that the name is taken."""

    def __init__(self, silences):
        super().__init__(refusals=0)
        self.silences, self.uid = silences, "uid-trainer-0"

    async def get(self, kind, name, *, namespace):
        found = await super().get(kind, name, namespace=namespace)
        found.metadata.uid = self.uid
        return found

    async def create(self, item, name="", *, namespace="", dry_run=False):
        await super().create(item, name, namespace=namespace, dry_run=dry_run)
        if type(item).__name__ != "Pod" or dry_run:
            return
        self.uid = "uid-anew"
        if self.silences:
            self.silences -= 1
            raise OSError("no answer")
        response = httpx2.Response(
            409, json={"kind": "Status", "code": 409}, request=httpx2.Request("POST", "http://a")
        )
        raise exceptions.ApiError(response=response)


async def test_a_bare_pod_is_tried_for_longer_than_an_outage_and_one_whose_answer_was_lost_is_there(monkeypatch):
    monkeypatch.setattr(remaking, "MOST_SECONDS", 0.0)
    client = LostAnswers(silences=300)
    writer = pods.PodWriter(client, lambda _: True, lambda: TAKEN, reporter="a")
    assert await writer.send_back(a_pod(node="n1"), 1) == (Outcome.DONE, "")
    await writer._remaker.wait()
    assert client.asked.count(("Pod", "")) == 301
