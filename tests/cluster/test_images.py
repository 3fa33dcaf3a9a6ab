"""Images on a real API server: what is not there leases nothing, what cannot be pulled goes back, whose secrets are read."""

import asyncio
import base64
import contextlib
import json
import time

import pytest
import yaml
from lightkube.models import core_v1, meta_v1, rbac_v1
from lightkube.resources import batch_v1, node_v1
from lightkube.resources import core_v1 as core
from lightkube.resources import rbac_authorization_v1 as rbac

from admitter.model.content import Credential
from admitter.sources import apiclient, pullsecrets
from hack.cluster import fakekubelet
from muster.model.vocabulary import WaitReason
from muster.model.warmth import NOTHING, ImageStore, NodeWarmth
from muster.pb.muster.v1 import feed_pb2
from tests.admitter.kubegangs import a_template, create_gang, create_job, gated, held, notes, pods, remove, running
from tests.admitter.kubetown import KubeTown, until

IMAGE = "r.example/ml/train:v1"
DIGEST = "sha256:" + 64 * "a"
AUTH = {"auths": {"r.example": {"username": "user", "password": "s3cret"}}}


class ImageTown(KubeTown):
    """Every node has a warmer, which answers what the test says."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.reason, self.feeders = "", []

    def answer(self, question):
        reason = self.reason if question.reference == IMAGE else ""
        return feed_pb2.ImageAnswer(reason=reason, digest="" if reason else DIGEST, bytes_total=1)

    @contextlib.asynccontextmanager
    async def node(self, address, name, free=8, **fields):
        async with super().node(address, name, free, **fields) as feeder:
            feeder.answer = self.answer
            feeder.warmth = NodeWarmth(observed_at=NOTHING.observed_at, store=ImageStore(snapshotter="overlayfs"))
            await feeder.say(free)
            self.feeders.append(feeder)
            yield feeder


@pytest.fixture
def town(tmp_path, cluster, client, namespace):
    return ImageTown(tmp_path, cluster, client, namespace)


def with_image(template, image=IMAGE, **spec):
    template.spec.containers[0].image = image
    for key, value in spec.items():
        setattr(template.spec, key, value)
    return template


def record(admitter, town, name):
    book = admitter._loop.book
    found = [each for each in book.records.values() if each.gang.namespace == town.namespace] if book else []
    return next((each for each in found if name in each.gang.name), None)


def waits_for(admitter, town, name):
    found = record(admitter, town, name)
    return found.why.reason if found is not None and found.why is not None else None


async def test_an_image_that_is_not_there_leases_nothing_until_it_is(town, client):
    town.reason = "NotFound"
    async with gated(town, client, image_fresh_seconds=1.0) as admitter:
        create_job(town, "train", 2, with_image(a_template(8)))
        await until(lambda: waits_for(admitter, town, "train") is WaitReason.IMAGE_UNAVAILABLE, "ImageUnavailable")
        assert len(held(town, "train")) == 2
        assert record(admitter, town, "train").lease is None
        assert sum(feeder.units() for feeder in town.feeders) == 0
        create_gang(town, "other", 4)
        await until(lambda: len(running(town, "other")) == 4, "who needs the same nodes and has no such image")
        for pod in pods(town, "other"):
            town.kube.delete(core.Pod, pod.metadata.name, namespace=town.namespace, grace_period=0)
        town.reason = ""
        await until(lambda: len(running(town, "train")) == 2, "the gang, once its image is there")


async def test_a_gang_that_cannot_pull_goes_back_and_is_made_anew(town, client):
    async with gated(town, client, pull_patience_seconds=2.0, strike_seconds=1.0):
        create_job(town, "train", 2, with_image(a_template(8, **{fakekubelet.UNPULLABLE: "true"})))
        await until(lambda: any(pod.spec.nodeName for pod in pods(town, "train")), "pods that are let go")
        before = {pod.metadata.uid for pod in pods(town, "train")}
        await until(
            lambda: len(found := pods(town, "train")) == 2 and not before & {pod.metadata.uid for pod in found},
            "other pods in their place",
        )
        await until(lambda: any("image pull on" in text for text in notes(town, "OnStrike")), "why, for a person")
        town.kube.delete(batch_v1.Job, "train", namespace=town.namespace)
        remove(town, "train")


async def test_a_runtime_class_is_followed_to_its_handler(town, client):
    name = f"fast-{town.namespace}"
    client.create(node_v1.RuntimeClass(metadata=meta_v1.ObjectMeta(name=name), handler="kata"))
    try:
        async with gated(town, client) as admitter:
            create_job(town, "train", 2, with_image(a_template(8), runtimeClassName=name))
            await until(lambda: record(admitter, town, "train") is not None, "the gang")
            await until(lambda: len(running(town, "train")) == 2, "its pods")
            (podset,) = record(admitter, town, "train").gang.podsets
            assert (podset.content.images, podset.content.handler) == ((IMAGE,), "kata")
    finally:
        client.delete(node_v1.RuntimeClass, name)


def create_secret(town, name):
    data = {".dockerconfigjson": base64.b64encode(json.dumps(AUTH).encode()).decode()}
    metadata = meta_v1.ObjectMeta(name=name, namespace=town.namespace)
    town.kube.create(core.Secret(metadata=metadata, type="kubernetes.io/dockerconfigjson", data=data))


async def test_the_secret_of_a_waiting_pod_is_shown_to_one_node_once(town, client):
    create_secret(town, "regcred")
    town.reason = "NotFound"
    async with gated(town, client, pull_secrets=True, image_fresh_seconds=3600.0) as admitter:
        secrets = [core_v1.LocalObjectReference(name="regcred")]
        create_job(town, "train", 2, with_image(a_template(8), imagePullSecrets=secrets))
        await until(lambda: waits_for(admitter, town, "train") is WaitReason.IMAGE_UNAVAILABLE, "an answer that counts")
        lists = [question for feeder in town.feeders for each in feeder.warm for question in each.questions]
        shown = [question.credential.password for question in lists if question.credential.password]
        assert shown == ["s3cret"]
        assert admitter._image_figures.secrets_shown == 1
    assert "s3cret" not in (town.folder / "decisions.jsonl").read_text()


@pytest.fixture
def reader(town, tmp_path):
    """A kubeconfig of an account that may nothing yet."""
    town.account("reader")
    form = yaml.safe_load(town.cluster.kubeconfig.read_text())
    form["users"][0]["user"] = {"token": town.token("reader", audience="")}
    path = tmp_path / "reader.kubeconfig"
    path.write_text(json.dumps(form))
    return path


def grant(town, secret):
    """As docs/images.md has it."""
    metadata = meta_v1.ObjectMeta(name="muster-pull-secrets", namespace=town.namespace)
    rule = rbac_v1.PolicyRule(apiGroups=[""], resources=["secrets"], resourceNames=[secret], verbs=["get"])
    town.kube.create(rbac.Role(metadata=metadata, rules=[rule]))
    reference = rbac_v1.RoleRef(apiGroup="rbac.authorization.k8s.io", kind="Role", name=metadata.name)
    subject = rbac_v1.Subject(kind="ServiceAccount", name="reader", namespace=town.namespace)
    town.kube.create(rbac.RoleBinding(metadata=metadata, roleRef=reference, subjects=[subject]))


async def test_a_secret_is_read_only_where_a_role_binding_says_so(town, reader, monkeypatch):
    monkeypatch.setattr(pullsecrets, "SECONDS", 0.5)
    for name in ("regcred", "other"):
        create_secret(town, name)
    connection = apiclient.from_kubeconfig(reader).client()
    secrets = pullsecrets.PullSecrets(connection, time.monotonic)
    task = asyncio.create_task(secrets.run())
    wanted = {town.namespace: frozenset({"regcred", "other", "nobody-made-it"})}
    read = lambda: {name for (_, name), (found, _) in secrets._known.items() if found}  # noqa: E731
    try:
        await until(lambda: secrets.want(wanted) == {} and len(secrets._known) == 3, "three refusals")
        grant(town, "regcred")
        await until(lambda: secrets.want(wanted) and read(), "the secret, once it may be read")
        assert read() == {"regcred"}
        ((key, found),) = secrets.want(wanted).items()
        assert key == (town.namespace, "r.example")
        assert found.credential == Credential(username="user", password="s3cret")
        assert found.version == version(town)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await connection.close()


def version(town):
    metadata = town.kube.get(core.Secret, "regcred", namespace=town.namespace).metadata
    return f"{metadata.uid}/{metadata.resourceVersion}"
