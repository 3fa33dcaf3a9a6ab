"""Pods as the API server binds them and as the kubelet lists them, made to name each other.

Input: the Pods plane, List, the checkpoint, DRA slices. Output: bound, unfinished pods by UID, and listed pods with the
UIDs they can be and the ids they hold.

Invariant: a pod is one by UID. List names pods by namespace and name only: the slice gives the UID; if two pods share a name
the checkpoint's UID decides, else both stay (design.md section 3). A finished pod holds nothing (faults.md E1).
"""

from collections.abc import Iterable, Mapping

from agent.model import planes
from agent.model.snapshot import ListedPod
from muster.model import codec, kube
from muster.model.reading import Known, Reading, Unknown

DraIds = Mapping[tuple[str, str], str]
"""(driver, device name) -> UUID, or the name where the slice gives none."""


def bound_pods(pods: Reading[tuple[kube.Pod, ...]]) -> Reading[tuple[kube.Pod, ...]]:
    """Return the unfinished pods, sorted by UID, each once."""
    match pods:
        case Known(items):
            by_uid = {pod.uid: pod for pod in sorted(items, key=repr) if not pod.is_finished}
            return Known(tuple(by_uid[uid] for uid in sorted(by_uid)))
        case Unknown() as unread:
            return unread


def dra_ids(dra: kube.Dra) -> DraIds:
    """Return what each device of a slice is called in the views: its UUID, so that it joins."""
    devices = ((item.driver, device) for item in dra.slices for device in item.devices)
    return {(driver, device.name): device.uuid or device.name for driver, device in devices}


def listed_pods(
    kubelet: planes.Kubelet, pods: Reading[tuple[kube.Pod, ...]], claimed: DraIds
) -> Reading[tuple[ListedPod, ...]]:
    """Return the pods of List that hold something, or may; `claimed` names the devices of DRA claims."""
    match kubelet.pods:
        case Unknown() as unread:
            return unread
        case Known(items):
            pass
    api: Mapping[str, list[kube.Pod]] = {}
    match pods:
        case Known(bound):
            api = _by_name(bound)
        case Unknown():
            pass
    held_by_uid = _checkpoint_ids(kubelet.checkpoint)
    result = [_listed_pod(item, api.get(item.full_name, []), held_by_uid, claimed) for item in items]
    return Known(tuple(sorted((pod for pod in result if pod is not None), key=repr)))


def _by_name(pods: Iterable[kube.Pod]) -> dict[str, list[kube.Pod]]:
    result: dict[str, list[kube.Pod]] = {}
    for pod in pods:
        result.setdefault(pod.full_name, []).append(pod)
    return result


def _listed_pod(
    item: planes.ListedPod, candidates: list[kube.Pod], held_by_uid: Mapping[str, frozenset[str]], claimed: DraIds
) -> ListedPod | None:
    """None for a pod that has finished: it holds nothing (faults.md E1)."""
    if item.uid:
        candidates = [pod for pod in candidates if pod.uid == item.uid]
    if candidates and all(pod.is_finished for pod in candidates):
        return None
    ids: dict[str, set[str]] = {}
    for container in item.containers:
        for devices in container.devices:
            ids.setdefault(devices.resource, set()).update(devices.ids)
        for device in (device for claim in container.claims for device in claim.devices):
            ids.setdefault(device.driver, set()).add(claimed.get((device.driver, device.device), device.device))
    uids = {pod.uid for pod in candidates if not pod.is_finished} or ({item.uid} if item.uid else set())
    if len(uids) > 1:
        everything = set().union(*ids.values()) if ids else set()
        # Two pods of one name: the checkpoint's UID decides, else both stay (design.md section 3).
        uids = {uid for uid in uids if held_by_uid.get(uid, frozenset()) & everything} or uids
    return ListedPod(
        full_name=item.full_name,
        uids=tuple(sorted(uids)),
        ids=codec.freeze({name: tuple(sorted(values)) for name, values in ids.items() if values}),
    )


def _checkpoint_ids(checkpoint: Reading[planes.Checkpoint]) -> dict[str, frozenset[str]]:
    result: dict[str, frozenset[str]] = {}
    match checkpoint:
        case Known(value):
            for entry in value.pods:
                result[entry.uid] = result.get(entry.uid, frozenset()) | frozenset(entry.ids)
        case Unknown():
            pass
    return result
