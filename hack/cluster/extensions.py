"""Kueue and JobSet on a started control plane: their API objects, their certificates, their configuration.

In: the manifests that the program's own module renders to (build.py keeps them beside the binary). Out: those objects,
applied, and the command line of a program that runs outside the cluster, on loopback.

Invariant: what the module ships is changed in one respect only, where its webhooks are. There is no pod and no
kube-proxy, so the webhook's Service becomes an ExternalName for localhost, and each reference to it names our port;
the API server still expects the Service's own name in the certificate.

Why two ways to certificates: Kueue without its own certificate authority insists on a folder under /etc, so it keeps
its own, and we do what the kubelet does, mount its Secret. JobSet with its own insists on a folder under /tmp that two
clusters would share, so it gets a pair from us.

Not here: their pods and metrics services, and Kueue's visibility server.
"""

import base64
import dataclasses
import pathlib
import time
from collections.abc import Iterator
from typing import Any

import lightkube
import yaml
from lightkube import codecs
from lightkube.resources import apiextensions_v1, core_v1

from hack.cluster import flags, grants, pki

MOUNT_SECONDS = 60.0
_PAIR = {"tls.crt": "certificate", "tls.key": "key"}
_LEFT_OUT = {"Deployment", "APIService", "ConfigMap"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """A controller that brings its own API."""

    name: str
    configuration: str
    """apiVersion of its configuration file."""
    makes_certificates: bool
    """Has a certificate authority of its own, and writes the pair into a Secret that somebody must mount."""
    options: dict[str, Any]
    """What its configuration holds beyond ports and certificates."""

    @property
    def namespace(self) -> str:
        return f"{self.name}-system"

    @property
    def service(self) -> str:
        return f"{self.name}-webhook-service"

    @property
    def user(self) -> tuple[str, tuple[str, ...]]:
        """Who it is: its own service account, by client certificate, so that its own roles decide."""
        account = f"system:serviceaccount:{self.namespace}:{self.name}-controller-manager"
        return account, ("system:serviceaccounts", f"system:serviceaccounts:{self.namespace}")


KUEUE = Extension(
    name="kueue",
    configuration="config.kueue.x-k8s.io/v1beta2",
    makes_certificates=True,
    options={
        "integrations": {"frameworks": ["batch/job", "jobset.x-k8s.io/jobset", "pod"]},
        "featureGates": {"VisibilityOnDemand": False},
    },
)
JOBSET = Extension(name="jobset", configuration="config.jobset.x-k8s.io/v1alpha1", makes_certificates=False, options={})
EXTENSIONS = {extension.name: extension for extension in (JOBSET, KUEUE)}
"""In the order of their start: Kueue looks for JobSet's API when it starts."""


def install(layout: flags.Layout, extension: Extension, manifests: pathlib.Path, authority: pki.Authority) -> list[str]:
    """Apply the extension's objects, write its files, and return its arguments."""
    bundle = "" if extension.makes_certificates else authority.pair.certificate.read_text()
    connection = grants.client(layout.kubeconfig("admin"), field_manager="muster-cluster")
    documents = list(objects(manifests.read_text(), extension, layout.ports[f"{extension.name}-webhook"], bundle))
    # What a namespace or a custom resource is needed for comes after it.
    for document in sorted(documents, key=lambda each: each["kind"] not in {"Namespace", "CustomResourceDefinition"}):
        connection.apply(codecs.from_dict(document), force=True)
    for document in documents:
        if document["kind"] == "CustomResourceDefinition":
            connection.wait(
                apiextensions_v1.CustomResourceDefinition, document["metadata"]["name"], for_conditions=["Established"]
            )
    connection.close()
    folder = _folder(layout, extension)
    folder.mkdir()
    if not extension.makes_certificates:
        pair = authority.issue_server(f"{extension.name}-webhook", f"{extension.service}.{extension.namespace}.svc")
        for name, field in _PAIR.items():
            (folder / name).write_bytes(getattr(pair, field).read_bytes())
    path = layout.folder / f"{extension.name}.yaml"
    path.write_text(yaml.safe_dump(_configuration(layout, extension, folder)))
    return [f"--config={path}", f"--kubeconfig={layout.kubeconfig(extension.name)}"]


def mount(layout: flags.Layout, extension: Extension) -> None:
    """Write the pair that the extension has made for itself where it looks for it, as a kubelet mounts a Secret."""
    if not extension.makes_certificates:
        return
    connection = grants.client(layout.kubeconfig("admin"))
    deadline = time.monotonic() + MOUNT_SECONDS
    while time.monotonic() < deadline:
        data = _secret(connection, extension)
        if _PAIR.keys() <= data.keys():
            for name, value in data.items():
                (_folder(layout, extension) / name).write_bytes(base64.b64decode(value))
            break
        time.sleep(0.2)
    connection.close()


def _secret(connection: lightkube.Client, extension: Extension) -> dict[str, str]:
    secret = connection.get(core_v1.Secret, f"{extension.name}-webhook-server-cert", namespace=extension.namespace)
    return secret.data or {}


def _folder(layout: flags.Layout, extension: Extension) -> pathlib.Path:
    return layout.folder / f"{extension.name}-webhook"


def objects(text: str, extension: Extension, port: int, bundle: str) -> Iterator[dict[str, Any]]:
    """Yield the module's objects with their webhooks pointed at `port` of this machine."""
    for document in yaml.load_all(text, Loader=yaml.CSafeLoader):
        kind = document["kind"]
        if kind in _LEFT_OUT or (kind == "Service" and document["metadata"]["name"] != extension.service):
            continue
        if kind == "Service":
            document["spec"] = {"type": "ExternalName", "externalName": "localhost"}
        for client in _webhook_clients(document):
            client["service"]["port"] = port
            if bundle:
                client["caBundle"] = base64.b64encode(bundle.encode()).decode()
        yield document


def _webhook_clients(document: dict[str, Any]) -> list[dict[str, Any]]:
    if document["kind"] == "CustomResourceDefinition":
        conversion = document["spec"].get("conversion", {})
        return [conversion["webhook"]["clientConfig"]] if "webhook" in conversion else []
    return [webhook["clientConfig"] for webhook in document.get("webhooks", ())]


def _configuration(layout: flags.Layout, extension: Extension, certificates: pathlib.Path) -> dict[str, Any]:
    ports = layout.ports
    webhook = {"host": pki.LOOPBACK, "port": ports[f"{extension.name}-webhook"], "certDir": str(certificates)}
    return {
        "apiVersion": extension.configuration,
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"{pki.LOOPBACK}:{ports[extension.name]}"},
        "metrics": {"bindAddress": "0"},
        "webhook": webhook,
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": extension.makes_certificates},
        **extension.options,
    }
