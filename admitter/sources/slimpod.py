"""Pods as slim values: see slim.py.

Invariant: `requests` of a KubePod is what the scheduler counts; `requests` of its containers is what the agents compare
with devices. A predicate on nodes that Constraints does not hold is named in `unmodelled`, so that whoever places a pod
knows what they have not looked at. A pod is taken for part of the GPU stack by what a tenant cannot write into one: a folder
of the host that it mounts, or a namespace that the operator of the cluster names. Its own name or image is no proof.
"""

import datetime
import itertools
from collections.abc import Collection, Iterator, Mapping

from lightkube.models import core_v1, meta_v1
from lightkube.resources import core_v1 as core

from admitter.model.cluster import (
    Condition,
    Constraints,
    Expression,
    KubePod,
    NodeTerm,
    Owner,
    Told,
    Toleration,
)
from admitter.sources import quantities, slim
from admitter.sources.sharing import Shared
from muster.model import kube

PLUGINS_FOLDER = "/device-plugins"
"""End of the kubelet's registration folder, wherever its root is."""
_MIG_MANAGER = "mig-manager"
"""In the name or image of NVIDIA's manager of MIG layouts; it mounts no folder that tells it from other privileged pods."""
_TOLD = frozenset(
    {
        "MIG_STRATEGY", "DEVICE_LIST_STRATEGY", "PASS_DEVICE_SPECS", "DP_DISABLE_HEALTHCHECKS", "CONFIG_FILE",
        "CONFIG_FILE_SRCDIR", "DEFAULT_CONFIG", "NODE_LABEL",
    }
)  # fmt: skip
"""Variables of the GPU stack that are kept; any other may be a secret."""
_PHASES = {phase.value: phase for phase in kube.PodPhase}
_NO_STATUS = core_v1.PodStatus()


def pod(item: core.Pod, shared: Shared, serving: Collection[str] = ()) -> KubePod | None:
    """Return a Pod; None if it has no identity or no spec. `serving` are the namespaces of the GPU stack."""
    metadata, spec, status = item.metadata, item.spec, item.status or _NO_STATUS
    if metadata is None or not (metadata.uid and metadata.name and metadata.namespace) or spec is None:
        return None
    is_plugin = _serves_devices(spec)
    is_mig_manager = not is_plugin and metadata.namespace in serving and _is_named_mig_manager(metadata.name, spec)
    return KubePod(
        uid=metadata.uid,
        namespace=shared.text(metadata.namespace),
        name=metadata.name,
        resource_version=metadata.resourceVersion or "",
        node=shared.text(spec.nodeName),
        phase=_PHASES.get(status.phase or "", kube.PodPhase.PENDING),
        reason=shared.text(status.reason),
        message=shared.text((status.message or "")[: slim.MAX_TEXT]),
        created_at=slim.moment(metadata.creationTimestamp),
        deletion_at=slim.moment(metadata.deletionTimestamp),
        started_at=slim.moment(status.startTime),
        reported_at=_reported_at(metadata),
        labels=shared.mapping(metadata.labels or {}),
        annotations=slim.annotations(metadata, shared),
        gates=shared.value(tuple(gate.name for gate in spec.schedulingGates or ())),
        owners=shared.value(tuple(_owner(reference) for reference in metadata.ownerReferences or ())),
        scheduler=shared.text(spec.schedulerName),
        scheduling_group=_group(spec, shared),
        priority=spec.priority or 0,
        priority_class=shared.text(spec.priorityClassName),
        requests=shared.mapping(quantities.of_pod(spec)),
        constraints=constraints(spec, shared),
        restart_policy=shared.text(spec.restartPolicy),
        active_deadline_seconds=spec.activeDeadlineSeconds,
        nominated_node=shared.text(status.nominatedNodeName),
        conditions=tuple(shared.value(_condition(condition, shared)) for condition in status.conditions or ()),
        containers=tuple(_containers(spec, status, shared)),
        images=shared.value(tuple(container.image or "" for container in spec.containers)),
        init_images=shared.value(tuple(container.image or "" for container in spec.initContainers or ())),
        unpulled_images=shared.value(_unpulled(spec)),
        runtime_class=shared.text(spec.runtimeClassName),
        pull_secrets=shared.value(tuple(sorted(each.name or "" for each in spec.imagePullSecrets or ()))),
        restarts=sum(entry.restartCount for entry in status.containerStatuses or ()),
        serves_devices=is_plugin,
        last_words=_last_words(status) if is_plugin else "",
        told=_told(spec, shared) if is_plugin or is_mig_manager else None,
        manages_mig=is_mig_manager,
    )


def _is_named_mig_manager(name: str, spec: core_v1.PodSpec) -> bool:
    return any(_MIG_MANAGER in text for text in (name, *(container.image or "" for container in spec.containers)))


def _unpulled(spec: core_v1.PodSpec) -> tuple[str, ...]:
    containers = (*spec.containers, *(spec.initContainers or ()))
    never = {container.image or "" for container in containers if container.imagePullPolicy == "Never"}
    pulled = {container.image or "" for container in containers if container.imagePullPolicy != "Never"}
    return tuple(sorted(never - pulled))


def _reported_at(metadata: meta_v1.ObjectMeta) -> datetime.datetime | None:
    """Return when the status was last written: a rejected pod has no other date in its status (kubelet 1.37)."""
    written = [
        moment
        for entry in metadata.managedFields or ()
        if entry.subresource == "status" and (moment := slim.moment(entry.time)) is not None
    ]
    return max(written, default=None)


def _group(spec: core_v1.PodSpec, shared: Shared) -> str:
    group = spec.schedulingGroup
    return shared.text(group.podGroupName) if group is not None else ""


def _owner(reference: meta_v1.OwnerReference) -> Owner:
    return Owner(
        kind=reference.kind,
        name=reference.name,
        uid=reference.uid,
        api_version=reference.apiVersion,
        is_controller=bool(reference.controller),
    )


def _condition(condition: core_v1.PodCondition, shared: Shared) -> Condition:
    return Condition(
        type=shared.text(condition.type),
        status=shared.text(condition.status),
        reason=shared.text(condition.reason),
        message=shared.text((condition.message or "")[: slim.MAX_TEXT]),
        since=slim.moment(condition.lastTransitionTime),
    )


def _containers(spec: core_v1.PodSpec, status: core_v1.PodStatus, shared: Shared) -> Iterator[kube.Container]:
    reported = {
        entry.name: entry for entry in (*(status.initContainerStatuses or ()), *(status.containerStatuses or ()))
    }
    for container in spec.initContainers or ():
        kind = kube.ContainerKind.SIDECAR if container.restartPolicy == "Always" else kube.ContainerKind.INIT
        yield _container(container, kind, reported.get(container.name), shared)
    for container in spec.containers:
        yield _container(container, kube.ContainerKind.APP, reported.get(container.name), shared)


def _container(
    container: core_v1.Container, kind: kube.ContainerKind, status: core_v1.ContainerStatus | None, shared: Shared
) -> kube.Container:
    asked = {name: count for name, count in quantities.of_container(container).items() if quantities.is_extended(name)}
    name, requests = shared.text(container.name), shared.mapping(asked)
    state = status.state if status is not None else None
    match state:
        case core_v1.ContainerState(terminated=core_v1.ContainerStateTerminated() as ended):
            return kube.Container(
                name=name,
                kind=kind,
                state=kube.ContainerState.TERMINATED,
                since=slim.moment(ended.finishedAt),
                reason=shared.text(ended.reason),
                message=shared.text((ended.message or "")[: slim.MAX_TEXT]),
                exit_code=ended.exitCode,
                requests=requests,
            )
        case core_v1.ContainerState(running=core_v1.ContainerStateRunning() as running):
            return kube.Container(
                name=name,
                kind=kind,
                state=kube.ContainerState.RUNNING,
                since=slim.moment(running.startedAt),
                requests=requests,
            )
        case core_v1.ContainerState(waiting=core_v1.ContainerStateWaiting() as waiting):
            return kube.Container(
                name=name,
                kind=kind,
                state=kube.ContainerState.WAITING,
                reason=shared.text(waiting.reason),
                message=shared.text((waiting.message or "")[: slim.MAX_TEXT]),
                requests=requests,
            )
        case _:
            return kube.Container(name=name, kind=kind, requests=requests)


def constraints(spec: core_v1.PodSpec, shared: Shared) -> Constraints:
    """Return where a pod of this spec may go."""
    affinity = spec.affinity.nodeAffinity if spec.affinity is not None else None
    required = affinity.requiredDuringSchedulingIgnoredDuringExecution if affinity is not None else None
    preferred = affinity.preferredDuringSchedulingIgnoredDuringExecution if affinity is not None else None
    selector = spec.nodeSelector or {}
    terms = tuple(_term(term) for term in (required.nodeSelectorTerms if required is not None else ()))
    preferences = tuple(_term(entry.preference, entry.weight) for entry in preferred or ())
    tolerations = tuple(_toleration(entry) for entry in spec.tolerations or ())
    unmodelled = tuple(sorted(_unmodelled(spec)))
    return shared.made(
        ("constraints", tuple(sorted(selector.items())), terms, preferences, tolerations, unmodelled),
        lambda: Constraints(
            node_selector=shared.mapping(selector),
            required=terms,
            preferred=preferences,
            tolerations=tolerations,
            unmodelled=unmodelled,
        ),
    )


def _term(term: core_v1.NodeSelectorTerm, weight: int = 0) -> NodeTerm:
    return NodeTerm(
        labels=tuple(_expression(entry) for entry in term.matchExpressions or ()),
        fields=tuple(_expression(entry) for entry in term.matchFields or ()),
        weight=weight,
    )


def _expression(entry: core_v1.NodeSelectorRequirement) -> Expression:
    return Expression(key=entry.key, operator=entry.operator, values=tuple(entry.values or ()))


def _toleration(entry: core_v1.Toleration) -> Toleration:
    return Toleration(
        key=entry.key or "", operator=entry.operator or "Equal", value=entry.value or "", effect=entry.effect or ""
    )


def _unmodelled(spec: core_v1.PodSpec) -> Iterator[str]:
    affinity = spec.affinity
    used: Mapping[str, object] = {
        "podAffinity": affinity is not None and affinity.podAffinity,
        "podAntiAffinity": affinity is not None and affinity.podAntiAffinity,
        "topologySpreadConstraints": spec.topologySpreadConstraints,
        "resourceClaims": spec.resourceClaims,
        "runtimeClassName": spec.runtimeClassName,
        "hostPorts": any(port.hostPort for container in spec.containers for port in container.ports or ()),
        "persistentVolumeClaims": any(
            volume.persistentVolumeClaim or volume.ephemeral or volume.csi for volume in spec.volumes or ()
        ),
    }
    return (name for name, is_used in used.items() if is_used)


def _serves_devices(spec: core_v1.PodSpec) -> bool:
    folders = {
        volume.name
        for volume in spec.volumes or ()
        if volume.hostPath is not None and volume.hostPath.path.rstrip("/").endswith(PLUGINS_FOLDER)
    }
    return bool(folders) and any(
        mount.name in folders and not mount.readOnly
        for container in (*(spec.initContainers or ()), *spec.containers)
        for mount in container.volumeMounts or ()
    )


def _last_words(status: core_v1.PodStatus) -> str:
    """Return how a container ended before the present one."""
    for entry in status.containerStatuses or ():
        last = entry.lastState.terminated if entry.lastState is not None else None
        if last is not None:
            return f"{last.reason or 'ended'}, exit {last.exitCode}: {last.message or ''}"[: slim.MAX_TEXT].rstrip(": ")
    return ""


def _told(spec: core_v1.PodSpec, shared: Shared) -> Told:
    """Return what the containers were told, by flag or variable, and where ConfigMaps are mounted; the first one's word counts."""
    maps = {volume.name: volume.configMap.name for volume in spec.volumes or () if volume.configMap is not None}
    settings: dict[str, str] = {}
    folders: dict[str, str] = {}
    for container in (*spec.containers, *(spec.initContainers or ())):
        variables = ((entry.name, entry.value) for entry in container.env or ())
        # A flag stands above its variable, in the plugin as here.
        for name, value in (*_flags([*(container.command or ()), *(container.args or ())]), *variables):
            if name in _TOLD and value:
                settings.setdefault(name, value[: slim.MAX_TEXT])
        for mount in container.volumeMounts or ():
            if (found := maps.get(mount.name)) is not None and not mount.subPath:
                folders.setdefault(mount.mountPath.rstrip("/"), found)
    return shared.made(
        ("told", tuple(sorted(settings.items())), tuple(sorted(folders.items()))),
        lambda: Told(settings=shared.mapping(settings), folders=shared.mapping(folders)),
    )


def _flags(words: list[str]) -> Iterator[tuple[str, str]]:
    """Yield flags by the variable that each stands for.

    >>> list(_flags(["nvidia-device-plugin", "--mig-strategy=mixed", "--config-file", "/config/config.yaml"]))
    [('MIG_STRATEGY', 'mixed'), ('CONFIG_FILE', '/config/config.yaml')]
    """
    for word, after in itertools.zip_longest(words, words[1:], fillvalue=""):
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            yield name.upper().replace("-", "_"), value if equals else after
