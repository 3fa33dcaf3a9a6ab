"""The manifests that put the gate on new pods, on a real API server."""

import contextlib
import pathlib

import yaml
from lightkube import generic_resource
from lightkube.core import exceptions

GATES = pathlib.Path(__file__).resolve().parents[2] / "daemonset" / "gates"
PLURALS = {
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
}


def resource(kind):
    return generic_resource.create_global_resource("admissionregistration.k8s.io", "v1", kind, PLURALS[kind])


@contextlib.contextmanager
def installed(kube, file="policy.yaml", change=lambda document: document):
    """Have the objects of a manifest there for as long as the block; `change` may adapt each first."""
    made = []
    try:
        for document in yaml.safe_load_all((GATES / file).read_text()):
            kind = document["kind"]
            kube.create(resource(kind)(**change(document)))
            made.append((resource(kind), document["metadata"]["name"]))
        yield
    finally:
        for kind, name in reversed(made):
            with contextlib.suppress(exceptions.ApiError):  # the test may have taken it away
                kube.delete(kind, name)
