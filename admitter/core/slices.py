"""What one node's agent is told of the API server's view of its node: the NodeSlice of design.md section 4.

In: the node, the pods bound to it, what DRA offers there, ConfigMaps of the GPU stack, the rejections known so far. Out: one NodeSlice; the rejections
to remember.

Invariants: a slice is made from one state of the cluster, whole. A pod is listed while the API server has it, finished or
not. A rejection outlives its pod: a controller deletes and replaces the pod within a second, and the pile would never be
seen (faults.md E9).

Why rejections are kept here and in memory only: the agents need them for minutes (faults.md section 2), and a new admitter
finds those whose pods still exist.

Not here: reading the API server, and what any of it means for the numbers (agent/core).
"""

import datetime
from collections.abc import Iterable, Mapping

from admitter.core import gpuconfig
from admitter.model.cluster import KubeNode, KubePod, KubeSlice
from muster.model import codec, kube
from muster.model.reading import NOT_COLLECTED, Known, Reading, Unknown

KEPT = datetime.timedelta(minutes=15)
"""Rules look back five minutes (faults.md section 2, rejections); clocks of API server and admitter differ."""
MOST_KEPT = 64
"""Of one node: more rejections than this say the same thing."""

_ADMISSION = "UnexpectedAdmissionError"
"""The one reason that agents take for evidence (faults.md B3, B4, E3). The others a tenant causes at will, with pods that
it binds itself to a node which cannot take them."""
_REASONS = frozenset({_ADMISSION, "TopologyAffinityError", "NodeAffinity", "NodeSelectorMismatching"})
_SHORT_OF = "OutOf"
"""`OutOfcpu`, `OutOfnvidia.com/gpu`: kubelet's own count said no."""
_VENDORS = (("nvidia", "nvidia.com"), ("hami", "nvidia.com"))
"""A word in a plugin pod's name or image -> the prefix of what it serves. Other vendors' plugins are none of ours."""
_MIG_CONFIG = "nvidia.com/mig.config"
_CRASH_LOOP = "CrashLoopBackOff"

Rejections = Mapping[str, kube.Rejection]
"""By UID of the pod."""


def assemble(
    node: KubeNode | None,
    pods: Iterable[KubePod],
    rejections: Iterable[kube.Rejection],
    dra: Reading[kube.Dra],
    documents: gpuconfig.Documents = gpuconfig.NOTHING,
) -> kube.NodeSlice:
    """Return a node's slice; `node` is None where there is no such Node, `documents` are those of the GPU stack's ConfigMaps."""
    listed = tuple(sorted(pods, key=lambda pod: (pod.namespace, pod.name, pod.uid)))
    labels = node.object.labels if node is not None else codec.EMPTY
    plugins = tuple(plugin for pod in listed if (plugin := _plugin(pod, labels, documents)) is not None)
    return kube.NodeSlice(
        node_object=Known(node.object)
        if node is not None
        else Unknown("NoSuchNode", "the API server has no such Node"),
        pods=Known(tuple(_pod(pod) for pod in listed)),
        rejections=tuple(sorted(rejections, key=lambda rejection: (rejection.at, rejection.pod, rejection.uid))),
        plugins=Known(plugins),
        dra=dra,
        desired_mig=_desired_mig(labels, listed, documents),
        features=_features(dra),
    )


def rejection(pod: KubePod) -> kube.Rejection | None:
    """Return the kubelet's refusal of a pod, if that is how it ended."""
    is_one = pod.reason in _REASONS or pod.reason.startswith(_SHORT_OF)
    at = pod.reported_at or pod.started_at or pod.created_at
    if pod.phase is not kube.PodPhase.FAILED or not is_one or not pod.node or at is None:
        return None
    return kube.Rejection(at=at, pod=pod.full_name, uid=pod.uid, reason=pod.reason, message=pod.message)


def remember(known: Rejections, pods: Iterable[KubePod], now: datetime.datetime) -> Rejections:
    """Return the rejections of a node with those of these pods added and the old ones dropped.

    The first sight of a rejection dates it: later writes to the pod's status must not make it young again. Where there
    are too many, no other reason pushes out an admission error.
    """
    fresh = {item.uid: item for pod in pods if (item := rejection(pod)) is not None}
    recent = [item for item in {**fresh, **known}.values() if now - item.at <= KEPT]
    kept = sorted(recent, key=lambda item: (item.reason == _ADMISSION, item.at, item.uid))[-MOST_KEPT:]
    return codec.freeze({item.uid: item for item in kept}) if kept else codec.EMPTY


def offered(
    slices: Iterable[KubeSlice], classes: Iterable[kube.DeviceClass], problem: Unknown | None
) -> Reading[kube.Dra]:
    """Return what DRA offers on a node; `problem` is why it could not be read."""
    if problem is not None:
        return problem
    return Known(
        kube.Dra(
            slices=tuple(item.content for item in sorted(slices, key=lambda item: item.name)),
            device_classes=tuple(
                sorted((item for item in classes if item.extended_resource), key=lambda item: item.name)
            ),
        )
    )


def _pod(pod: KubePod) -> kube.Pod:
    owner = pod.controller or next(iter(pod.owners), None)
    return kube.Pod(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        phase=pod.phase,
        reason=pod.reason,
        created_at=pod.created_at,
        deletion_at=pod.deletion_at,
        owner_kind=owner.kind if owner is not None else "",
        requests=codec.freeze({name: count for name, count in pod.requests.items() if "/" in name}),
        containers=pod.containers,
    )


def _plugin(pod: KubePod, labels: Mapping[str, str], documents: gpuconfig.Documents) -> kube.Plugin | None:
    """Return the pod half of a device plugin of ours."""
    if not pod.serves_devices or pod.is_finished:
        return None
    words = " ".join((pod.name, *pod.images)).lower()
    prefix = next((prefix for word, prefix in _VENDORS if word in words), "")
    if not prefix:
        return None
    waiting = [item for item in pod.containers if item.state is kube.ContainerState.WAITING]
    said = [pod.last_words, *(f"{item.reason}: {item.message}".rstrip(": ") for item in waiting)]
    return kube.Plugin(
        resource_prefix=prefix,
        pod=pod.full_name,
        pod_phase=pod.phase.value,
        restarts=Known(pod.restarts),
        crash_looping=Known(any(item.reason == _CRASH_LOOP for item in waiting)),
        message="; ".join(part for part in said if part),
        config=gpuconfig.plugin_config(pod.namespace, pod.told, labels, documents) if pod.told else codec.EMPTY,
        version=_tag(pod.images),
    )


def _tag(images: tuple[str, ...]) -> str:
    """Return the first image's tag.

    >>> _tag(("registry:5000/nvidia/k8s-device-plugin:v0.17.0@sha256:ab",)), _tag(("registry:5000/x",))
    ('v0.17.0', '')
    """
    name = images[0].partition("@")[0].rpartition("/")[2] if images else ""
    return name.partition(":")[2]


def _desired_mig(
    labels: Mapping[str, str], pods: Iterable[KubePod], documents: gpuconfig.Documents
) -> Reading[kube.DesiredMig]:
    wanted = labels.get(_MIG_CONFIG, "")
    if not wanted:
        return NOT_COLLECTED
    layouts = (
        gpuconfig.layout(wanted, pod.namespace, pod.told, documents)
        for pod in pods
        if pod.manages_mig and pod.told is not None and not pod.is_finished
    )
    return Known(kube.DesiredMig(name=wanted, layout=next((layout for layout in layouts if layout), ())))


def _features(dra: Reading[kube.Dra]) -> Mapping[str, bool]:
    """Return what can be told from the API: a server with the feature off drops the class's field."""
    match dra:
        case Known(content):
            return codec.freeze({"DRAExtendedResource": bool(content.device_classes)})
        case Unknown():
            return codec.EMPTY
