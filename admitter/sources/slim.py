"""From the API server's objects to the slim values of admitter/model/cluster.py: what is not taken here is not kept.

In: objects as lightkube decodes them. Out: frozen values, equal parts shared. Pure, but for what `Shared` remembers.

Invariant: an object makes a value or is left out whole; a field that is odd is left out, and never a zero. Finished pods
are kept: they hold nothing, and the gang code and the agents still want to know how they ended.

Not here: reading from the API server (watch.py), and pods' containers and constraints (slimpod.py).
"""

import datetime
from collections.abc import Mapping

from lightkube.models import core_v1, meta_v1, resource_v1
from lightkube.resources import core_v1 as core
from lightkube.resources import resource_v1 as dra

from admitter.model.cluster import Condition, KubeNode, KubeSlice
from admitter.sources import quantities
from admitter.sources.sharing import Shared
from muster.model import kube
from muster.model.reading import Known, Reading, Unknown

MAX_TEXT = 1024
"""Of an annotation or message: longer ones are other programs' state, not words for us."""
_KUBECTL = "kubectl.kubernetes.io/last-applied-configuration"
_READY: Mapping[str, Reading[bool]] = {"True": Known(value=True), "False": Known(value=False)}
_SILENT: Reading[bool] = Unknown("NodeUnknown", "the node controller has not heard from the kubelet")


def node(item: core.Node, shared: Shared) -> KubeNode | None:
    """Return a Node; None if it has no name."""
    metadata, status, spec = item.metadata, item.status, item.spec
    if metadata is None or not metadata.name:
        return None
    conditions = (status.conditions if status is not None else None) or []
    ready = next((condition for condition in conditions if condition.type == "Ready"), None)
    capacity = quantities.amounts(status.capacity if status is not None else None)
    allocatable = quantities.amounts(status.allocatable if status is not None else None)
    return KubeNode(
        name=metadata.name,
        uid=metadata.uid or "",
        resource_version=metadata.resourceVersion or "",
        allocatable=shared.mapping(allocatable),
        conditions=tuple(_condition(condition, shared) for condition in conditions),
        object=kube.NodeObject(
            heartbeat_at=moment(ready.lastHeartbeatTime) if ready is not None else None,
            ready=_READY.get(ready.status, _SILENT) if ready is not None else Unknown("NotReported"),
            capacity=shared.mapping(_extended(capacity)),
            allocatable=shared.mapping(_extended(allocatable)),
            labels=shared.mapping(metadata.labels or {}),
            annotations=annotations(metadata, shared),
            taints=tuple(_taint(taint) for taint in (spec.taints if spec is not None else None) or ()),
            unschedulable=bool(spec is not None and spec.unschedulable),
            conditions=tuple(
                kube.NodeCondition(
                    type=shared.text(condition.type),
                    status=shared.text(condition.status),
                    reason=shared.text(condition.reason),
                    since=moment(condition.lastTransitionTime),
                )
                for condition in conditions
            ),
        ),
    )


def resource_slice(item: dra.ResourceSlice, _shared: Shared) -> KubeSlice | None:
    """Return a ResourceSlice of one node; None for one that is every node's or nobody's."""
    if item.metadata is None or not item.metadata.name or item.spec is None or not item.spec.nodeName:
        return None
    return KubeSlice(
        name=item.metadata.name,
        node=item.spec.nodeName,
        content=kube.DraSlice(
            driver=item.spec.driver,
            pool=item.spec.pool.name,
            published_at=moment(item.metadata.creationTimestamp),
            devices=tuple(_device(device) for device in item.spec.devices or ()),
        ),
    )


def device_class(item: dra.DeviceClass, _shared: Shared) -> kube.DeviceClass | None:
    """Return a DeviceClass, whether or not it serves an extended resource: it may have done so before."""
    if item.metadata is None or not item.metadata.name:
        return None
    name = item.spec.extendedResourceName if item.spec is not None else None
    return kube.DeviceClass(name=item.metadata.name, extended_resource=name or "")


def _device(device: resource_v1.Device) -> kube.DraDevice:
    attributes = {name.rpartition("/")[2]: value for name, value in (device.attributes or {}).items()}
    return kube.DraDevice(
        name=device.name,
        uuid=_text_attribute(attributes, "uuid"),
        type=_text_attribute(attributes, "type"),
        taints=tuple(
            kube.Taint(key=taint.key, value=taint.value or "", effect=taint.effect) for taint in device.taints or ()
        ),
    )


def _text_attribute(attributes: Mapping[str, object], name: str) -> str:
    value = attributes.get(name)
    text = value.get("string") if isinstance(value, dict) else getattr(value, "string", None)
    return text if isinstance(text, str) else ""


def annotations(metadata: meta_v1.ObjectMeta, shared: Shared) -> Mapping[str, str]:
    """Return the annotations that are words, not state of another program."""
    return shared.mapping(
        (name, value)
        for name, value in (metadata.annotations or {}).items()
        if name != _KUBECTL and len(value) <= MAX_TEXT
    )


def moment(time: object) -> datetime.datetime | None:
    """Return a timestamp in UTC, to the millisecond as the model keeps it."""
    if not isinstance(time, datetime.datetime):
        return None
    utc = time.astimezone(datetime.UTC) if time.tzinfo is not None else time.replace(tzinfo=datetime.UTC)
    return utc.replace(microsecond=utc.microsecond // 1000 * 1000)


def _condition(condition: core_v1.NodeCondition, shared: Shared) -> Condition:
    return Condition(
        type=shared.text(condition.type),
        status=shared.text(condition.status),
        reason=shared.text(condition.reason),
        message=shared.text((condition.message or "")[:MAX_TEXT]),
        since=moment(condition.lastTransitionTime),
    )


def _taint(taint: core_v1.Taint) -> kube.Taint:
    return kube.Taint(key=taint.key, value=taint.value or "", effect=taint.effect)


def _extended(numbers: Mapping[str, int]) -> dict[str, int]:
    return {name: number for name, number in numbers.items() if quantities.is_extended(name)}
