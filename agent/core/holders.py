"""Who uses which unit: List, then processes, each process classified once.

Input: snapshot and policy. Output: for every unit UUID the pods that hold it, and the processes nobody accounts for.

Invariant: a process that could not be attributed (no host PID view) accuses nobody: it makes the holder unknown and
changes no number (design.md section 3). One that can be attributed is never dropped.

Why List first: a unit that List gives to somebody is not free, whatever runs on it; processes only add what the kubelet
does not know (faults.md E4, E5, E8).
"""

import dataclasses
import enum
from collections.abc import Mapping

from agent.model.policy import Policy
from agent.model.snapshot import GpuProcess, Snapshot
from muster.model import kube
from muster.model.reading import Known, Unknown


class Use(enum.Enum):
    """What a process on a unit that List gives to nobody else means."""

    IGNORED = enum.auto()
    """A management process with a tiny context, or the MPS server in front of its clients (faults.md F3).

    Process names are free, so a pod's server is believed only where the plugin shares the GPU, and a tool only while it is tiny.
    """
    UNATTRIBUTED = enum.auto()
    ACCOUNTED = enum.auto()
    """Its pod holds the unit by List."""
    KNOWN_POD = enum.auto()
    """A pod of this node whose record is on its way, or hidden: an init container (faults.md E8, S10)."""
    ORPHAN = enum.auto()
    """Its pod is gone, or holds something else (faults.md E4)."""
    FOREIGN = enum.auto()
    """No pod at all (faults.md E5)."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """One process on one unit."""

    unit: str
    process: GpuProcess
    use: Use
    pod: str = ""
    """namespace/name, where the pod is known."""


_MPS_SERVER = "nvidia-cuda-mps"


def usages_of(snapshot: Snapshot, policy: Policy) -> tuple[Usage, ...]:
    """Return every (unit, process) pair with its meaning, sorted."""
    pods = _pods_by_uid(snapshot)
    held = units_of_pods(snapshot)
    listed = _listed_uids(snapshot)
    shared = {device.uuid for view in snapshot.resources for device in view.ids() if device.is_replica}
    result: list[Usage] = []
    for process in snapshot.processes:
        for unit in process.units:
            if _is_ignored(process, policy, is_shared=unit in shared):
                use, pod = Use.IGNORED, ""
            else:
                use, pod = _use_of(process, unit, snapshot, pods, held, listed)
            result.append(Usage(unit=unit, process=process, use=use, pod=pod))
    return tuple(sorted(result, key=lambda usage: (usage.unit, usage.process.pid, repr(usage.process))))


def _use_of(
    process: GpuProcess,
    unit: str,
    snapshot: Snapshot,
    pods: Mapping[str, kube.Pod],
    held: Mapping[str, frozenset[str]],
    listed: Mapping[str, frozenset[str]],
) -> tuple[Use, str]:
    match process.owner:
        case Unknown():
            return Use.UNATTRIBUTED, ""
        case Known(uid):
            pass
    if not uid:
        return Use.FOREIGN, ""
    pod = pods.get(uid)
    name = pod.full_name if pod is not None else next(iter(sorted(listed.get(uid, ()))), "")
    if unit in held.get(uid, ()) or (len(process.units) > 1 and held.get(uid, frozenset()) & set(process.units)):
        return Use.ACCOUNTED, name
    if isinstance(snapshot.pods, Unknown):
        # Nobody says whose UID it is: whoever List gives the unit to is the best guess.
        return (Use.ACCOUNTED, name) if any(unit in units for units in held.values()) else (Use.ORPHAN, name)
    if pod is None:
        return Use.ORPHAN, name
    if pod.deletion_at is not None and not held.get(uid):
        return Use.ORPHAN, name  # List has let go of it: the kubelet may hand the device out
    if not held.get(uid) or _is_initialising(pod):
        return Use.KNOWN_POD, name
    return Use.ORPHAN, name


def _is_ignored(process: GpuProcess, policy: Policy, *, is_shared: bool) -> bool:
    if process.name.startswith(_MPS_SERVER):
        is_pods = isinstance(process.owner, Known) and process.owner.value != ""
        return is_shared or not is_pods
    match process.used_bytes:
        case Known(used):
            return process.name in policy.management_processes and used <= policy.management_bytes
        case Unknown():
            return False


def _is_initialising(pod: kube.Pod) -> bool:
    return any(
        container.kind is kube.ContainerKind.INIT and container.state is not kube.ContainerState.TERMINATED
        for container in pod.containers
    )


def _pods_by_uid(snapshot: Snapshot) -> dict[str, kube.Pod]:
    match snapshot.pods:
        case Known(pods):
            return {pod.uid: pod for pod in pods}
        case Unknown():
            return {}


def _listed_uids(snapshot: Snapshot) -> dict[str, frozenset[str]]:
    result: dict[str, frozenset[str]] = {}
    match snapshot.listed:
        case Known(listed):
            for item in listed:
                for uid in item.uids:
                    result[uid] = result.get(uid, frozenset()) | {item.full_name}
        case Unknown():
            pass
    return result


def units_of_pods(snapshot: Snapshot) -> dict[str, frozenset[str]]:
    """Return which units each pod holds by List: by pod UID, or by namespace/name where no UID is known."""
    uuid_of = {device.id: device.uuid for view in snapshot.resources for device in view.ids()}
    result: dict[str, frozenset[str]] = {}
    match snapshot.listed:
        case Known(listed):
            for item in listed:
                units = frozenset(uuid_of.get(text, text) for ids in item.ids.values() for text in ids)
                for uid in item.uids or (item.full_name,):
                    result[uid] = result.get(uid, frozenset()) | units
        case Unknown():
            pass
    return result


def owners_of_processes(snapshot: Snapshot) -> frozenset[str]:
    """Return the UIDs of the pods that own a GPU process."""
    return frozenset(
        process.owner.value
        for process in snapshot.processes
        if isinstance(process.owner, Known) and process.owner.value
    )
