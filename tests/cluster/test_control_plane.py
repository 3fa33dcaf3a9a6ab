"""The started control plane is the real thing: controllers work, RBAC decides, the APIs that Muster needs are served."""

import contextlib
import http.client
import ssl

import pytest
from lightkube.core import exceptions
from lightkube.models import (
    admissionregistration_v1,
    authentication_v1,
    authorization_v1,
    batch_v1,
    core_v1,
    meta_v1,
)
from lightkube.resources import admissionregistration_v1 as admissionregistration
from lightkube.resources import admissionregistration_v1beta1 as admissionregistration_beta
from lightkube.resources import authentication_v1 as authentication
from lightkube.resources import authorization_v1 as authorization
from lightkube.resources import batch_v1 as batch
from lightkube.resources import core_v1 as core

from hack.cluster import grants, parts, pki, run

AUDIENCE = "muster-admitter"


def a_job(namespace, **spec):
    container = core_v1.Container(name="main", image="none")
    template = core_v1.PodTemplateSpec(spec=core_v1.PodSpec(containers=[container], restartPolicy="Never"))
    metadata = meta_v1.ObjectMeta(name="job", namespace=namespace)
    return batch.Job(metadata=metadata, spec=batch_v1.JobSpec(template=template, **spec))


def a_pod(namespace, name):
    spec = core_v1.PodSpec(containers=[core_v1.Container(name="main", image="none")])
    return core.Pod(metadata=meta_v1.ObjectMeta(name=name, namespace=namespace), spec=spec)


def test_every_part_works(cluster):
    assert run.faults(cluster) == {}
    assert [part.name for part in cluster.parts][:2] == ["etcd", "kube-apiserver"]


def test_the_job_controller_makes_the_pods_of_a_job(client, namespace, wait_for):
    client.create(a_job(namespace, completions=3, parallelism=3, suspend=False))
    pods = wait_for(lambda: [*client.list(core.Pod, namespace=namespace)][2:], "three pods")
    assert pods[0].metadata.ownerReferences[0].kind == "Job"


def test_a_user_without_rights_is_refused(cluster, namespace):
    nobody = grants.client(cluster.kubeconfig_of("nobody"))
    with pytest.raises(exceptions.ApiError) as refused:
        [*nobody.list(core.Pod, namespace=namespace)]
    nobody.close()
    assert refused.value.status.code == 403


def test_the_fake_nodes_may_not_read_secrets(cluster, namespace):
    nodes = grants.client(cluster.kubeconfig_of("fakenodes"))
    with pytest.raises(exceptions.ApiError) as refused:
        [*nodes.list(core.Secret, namespace=namespace)]
    nodes.close()
    assert refused.value.status.code == 403


def test_a_token_is_reviewed_for_its_audience(client, namespace):
    asked = authentication_v1.TokenRequestSpec(audiences=[AUDIENCE])
    request = core.ServiceAccountToken(spec=asked, metadata=meta_v1.ObjectMeta(namespace=namespace))
    token = client.create(request, "default", namespace=namespace).status.token

    def review(audience):
        spec = authentication_v1.TokenReviewSpec(token=token, audiences=[audience])
        return client.create(authentication.TokenReview(spec=spec)).status

    accepted = review(AUDIENCE)
    assert accepted.authenticated
    assert accepted.audiences == [AUDIENCE]
    assert accepted.user.username == f"system:serviceaccount:{namespace}:default"
    assert not review("somebody-else").authenticated


def test_subject_access_is_reviewed(client, namespace):
    attributes = authorization_v1.ResourceAttributes(verb="list", resource="pods", namespace=namespace)
    spec = authorization_v1.SubjectAccessReviewSpec(user="muster:nobody", resourceAttributes=attributes)
    assert not client.create(authorization.SubjectAccessReview(spec=spec)).status.allowed


def test_a_mutating_admission_policy_changes_a_pod(client, line, namespace, wait_for):
    served = admissionregistration if line != "1.35" else admissionregistration_beta
    rule = admissionregistration_v1.NamedRuleWithOperations(
        apiGroups=[""], apiVersions=["v1"], operations=["CREATE"], resources=["pods"]
    )
    expression = 'Object{metadata: Object.metadata{labels: {"muster.dev/seen": "true"}}}'
    own = meta_v1.LabelSelector(matchLabels={"kubernetes.io/metadata.name": namespace})
    policy = {
        "metadata": {"name": namespace},
        "spec": {
            "matchConstraints": {"namespaceSelector": own.to_dict(), "resourceRules": [rule.to_dict()]},
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}],
        },
    }
    binding = {"metadata": {"name": namespace}, "spec": {"policyName": namespace}}
    client.create(served.MutatingAdmissionPolicy.from_dict(policy))
    client.create(served.MutatingAdmissionPolicyBinding.from_dict(binding))
    names = iter(range(10_000))

    def is_labelled():
        pod = client.create(a_pod(namespace, f"pod-{next(names)}"))
        return (pod.metadata.labels or {}).get("muster.dev/seen") == "true"

    assert wait_for(is_labelled, "the policy to take effect")
    client.delete(served.MutatingAdmissionPolicyBinding, namespace)
    client.delete(served.MutatingAdmissionPolicy, namespace)


def test_etcd_does_not_know_the_administrator(cluster):
    """RBAC cannot be walked around: the API's users are strangers to etcd."""
    port = next(flag for flag in _command(cluster, "etcd") if flag.startswith("--listen-client-urls")).rsplit(":", 1)[1]
    keys = cluster.folder / "pki"
    admin = pki.Pair(certificate=keys / "user-admin.pem", key=keys / "user-admin.key")
    context = parts.client_context(keys / "etcd-ca.pem", admin)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        _ask(http.client.HTTPSConnection(pki.LOOPBACK, int(port), context=context, timeout=10))


def _ask(connection):
    """Ask for something: with TLS 1.3 the refusal comes after the handshake, with the first answer."""
    with contextlib.closing(connection):
        connection.request("GET", "/version")
        return connection.getresponse().status


def _command(cluster, name):
    return cluster.part(name).process().cmdline()
