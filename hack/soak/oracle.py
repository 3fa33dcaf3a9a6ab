"""What a node may be asked to admit at most, and must offer at least: from what was done to the machine, not from a rule.

In: `Facts`, everything the soak did to one fake machine, taken from the fakes' own states. Out: a `Bound` for one moment:
most, least, and why.

Invariant: nothing of the agent is imported here, and nothing that an agent says is looked at. Every clause is a sentence of
faults.md (section 3, or the entry named) or of design.md sections 3, 4, 5 and 8, written down again.

Where the catalogue leaves room (a marker under which the node goes on serving; a process list that fails), `most` and
`least` differ. What is not here: how long an agent may take (watch.py), and which cause it must name (injuries.py).
"""

import dataclasses
from collections.abc import Iterator, Mapping

from hack import fakenvml
from hack.fakenode import kubeletstate
from muster.model import kube
from muster.model.reading import Known

PLANES = frozenset({"agent", "reader", "driver", "kubelet", "api", "promise"})
"""Through which a fault is seen; `promise`: the kubelet offers anything, so that a bad device is somebody's risk."""

RESET_NEEDED = (1, 2, 4)
"""Field 230: reset, reboot, drain and reset. 3 is about peers (agents.md b1)."""
FABRIC_DONE = (None, 0, 3)
"""Not supported, or completed (faults.md D4)."""
BASELINE_BYTES = 1 << 30
"""faults.md E6: hundreds of MiB are the driver's own."""
HARMLESS_FUNCTIONS = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetPowerUsage")
"""An error or a delay of these identifies nobody and sickens nobody."""
SERVING_SECONDS, MARKER_SECONDS = 300.0, 1800.0
"""design.md section 8 and faults.md section 2: a marker counts at least while nothing serves under it for 5 min, and at
most for the 30 min of a driver upgrade."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """One machine at one moment. Instants are of this process's monotonic clock."""

    resource: str
    driver: fakenvml.State
    driver_away: bool = False
    """Unloaded, malformed, of another version than its library, or crashing."""
    kubelet: kubeletstate.KubeletState
    is_kubelet_up: bool = True
    node: kube.NodeObject | None
    """None: the API server has none."""
    pods: tuple[kube.Pod, ...] = ()
    is_speaking: bool = True
    """The agent runs and reaches the admitter."""
    is_reader_up: bool = True
    is_restless: bool = False
    """The reader was ended a moment ago: it is there or not."""
    owners: Mapping[int, str] = dataclasses.field(default_factory=dict)
    """Process -> pod UID by its cgroup; empty: no pod."""
    missing_files: frozenset[str] = frozenset()
    is_spec_stale: bool = False
    """No CDI spec names the devices, and a container waits for one (faults.md D6)."""
    ceiling: int | None = None
    """What the kubelet said is available, and nothing has answered it since (faults.md B4, E3: until the plugin, or the
    kubelet, restarts); 0: pods are refused for the plugin's sake."""
    marker_at: float | None = None
    """Since when somebody is announced to be at work."""
    remembered: frozenset[int] = frozenset()
    """GPUs that were seen contended and whose process list has failed ever since."""
    unsure: bool = False
    """Something makes answers come and go: nothing is promised but the upper bound."""
    leased: int = 0
    """Units that gangs hold and no pod has taken yet: nobody else may be offered them."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What may be admitted of the resource."""

    most: int
    least: int
    why: str


def bound(facts: Facts, now: float, time_scale: float) -> Bound:
    """Return what holds once everybody has had the time to see it.

    Leases only lower what must be offered: that they are subtracted is looked at by itself (watch.py), since one may end
    a moment before its client hears so.
    """
    there = _there(facts, now, time_scale)
    return dataclasses.replace(there, least=max(0, there.least - facts.leased))


def _there(facts: Facts, now: float, time_scale: float) -> Bound:
    blocked = next(_nothing(facts, now, time_scale), "")
    if blocked:
        return Bound(most=0, least=0, why=blocked)
    most, why = _strict(facts, _bad_for_certain(facts))
    least, _ = _strict(facts, _bad_perhaps(facts))
    if facts.marker_at is not None and (now - facts.marker_at) * time_scale < MARKER_SECONDS:
        return Bound(most=most, least=0, why="a marker that may or may not be believed")
    if facts.ceiling is not None:
        most, least = min(most, facts.ceiling), min(least, facts.ceiling)
        why = f"the kubelet refuses beyond {facts.ceiling}"
    return Bound(most=most, least=0 if facts.unsure else least, why=why)


def readable(facts: Facts) -> frozenset[str]:
    """Return the planes through which somebody can see; none while a marker or a flapping part clouds everything."""
    if facts.unsure or facts.is_restless or facts.marker_at is not None:
        return frozenset()
    return PLANES - {plane for plane, _ in _unreadable(facts)}


def _unreadable(facts: Facts) -> Iterator[tuple[str, str]]:
    """Yield every required plane that cannot be read, and why (design.md section 3: BLIND)."""
    if not facts.is_speaking:
        yield "agent", "the agent is silent"
    if not facts.is_reader_up:
        yield "reader", "the reader does not answer"
    if facts.driver_away:
        yield "driver", "the driver does not answer"
    if not facts.is_kubelet_up or facts.kubelet.socket is not kubeletstate.SocketState.SERVING:
        yield "kubelet", "the kubelet does not answer"
    for fault in (facts.kubelet.list_fault, facts.kubelet.allocatable_fault):
        if fault is not None and fault.kind is not kubeletstate.FaultKind.SLOW:
            yield "kubelet", f"the kubelet's answer: {fault.kind.value}"
    if facts.node is None:
        yield "api", "the API server has no such Node"
    if not any(item.healthy for item in facts.kubelet.resources.get(facts.resource, ())):
        yield "promise", "nothing is advertised"


def _nothing(facts: Facts, now: float, time_scale: float) -> Iterator[str]:
    """Yield why nothing at all may start."""
    yield from (why for _, why in _unreadable(facts))
    if any(fault.error in ("NO_PERMISSION", "UNKNOWN") and _is_of_gpu(fault) for fault in facts.driver.faults):
        yield "a GPU that nobody can say anything about"
    if facts.missing_files & {"nvidiactl", "nvidia-uvm"}:
        yield "a control file of the driver is missing"
    if facts.is_spec_stale:
        yield "no CDI spec names the devices"
    if facts.marker_at is not None and (now - facts.marker_at) * time_scale < SERVING_SECONDS / 2:
        yield "somebody is at work on the node"


def _strict(facts: Facts, bad: frozenset[int]) -> tuple[int, str]:
    """faults.md P3 and P3a, in signed integers, clamped once."""
    advertised = {item.id for item in facts.kubelet.resources.get(facts.resource, ()) if item.healthy}
    # A finished pod holds nothing (E1).
    finished = {pod.uid for pod in facts.pods if pod.is_finished}
    listed = [pod for pod in facts.kubelet.pods if pod.uid not in finished]
    held = {id_ for pod in listed for item in pod.containers for id_ in item.devices.get(facts.resource, ())}
    pick = advertised - held
    units = units_of(facts.driver)
    spoiled = {id_ for id_ in pick if id_ not in units or units[id_] in bad}
    if spoiled:
        return 0, f"{len(spoiled)} of {len(pick)} that may be picked are bad"
    quietly_held = {id_ for id_ in pick if units[id_] in _held_unlisted(facts)}
    asked = {pod.uid: pod.requests.get(facts.resource, 0) for pod in facts.pods if not pod.is_finished}
    seen = {pod.uid for pod in listed if any(item.devices.get(facts.resource) for item in pod.containers)}
    running = {owner for owner in facts.owners.values() if owner}
    waiting = sum(units for uid, units in asked.items() if uid not in seen | running)
    assert facts.node is not None
    left = facts.node.allocatable.get(facts.resource, 0) - sum(asked.values())
    return max(0, min(len(pick - quietly_held) - waiting, left)), f"{len(pick)} free, {waiting} waited for, {left} left"


def units_of(driver: fakenvml.State) -> Mapping[str, int]:
    """Return UUID -> index of the GPU, for whatever a pod can be given as: a GPU in MIG mode is not one of them."""
    units: dict[str, int] = {}
    for index, gpu in enumerate(driver.gpus):
        if driver.counted is not None and index >= driver.counted:
            continue
        if not gpu.mig_current:
            units[gpu.uuid] = index
        units |= {instance.uuid: index for instance in gpu.mig}
    return units


def _bad_for_certain(facts: Facts) -> frozenset[int]:
    unread = _without_process_list(facts)
    sick = {index for index, gpu in enumerate(facts.driver.gpus) if _is_sick(gpu)}
    broken = {fault.gpu for fault in facts.driver.faults if fault.gpu is not None and _is_of_gpu(fault)}
    files = {index for index, gpu in enumerate(facts.driver.gpus) if f"nvidia{gpu.minor}" in facts.missing_files}
    used = {index for index in _contended(facts) if index not in unread}
    return frozenset(sick | broken | files | used | facts.remembered)


def _bad_perhaps(facts: Facts) -> frozenset[int]:
    """What is used without anybody being able to see it."""
    return _bad_for_certain(facts) | _contended(facts) | _without_process_list(facts)


def _is_of_gpu(fault: fakenvml.Fault) -> bool:
    is_plain = fault.error is not None or fault.hang
    return fault.gpu is not None and is_plain and fault.fn not in HARMLESS_FUNCTIONS


def _is_sick(gpu: fakenvml.Gpu) -> bool:
    return bool(
        gpu.is_broken
        or gpu.recovery_action in RESET_NEEDED
        or gpu.remap_pending
        or gpu.remap_failed
        or gpu.retired_pending
        or gpu.sram_threshold
        or gpu.drain
        or gpu.fabric_state not in FABRIC_DONE
    )


def _contended(facts: Facts) -> frozenset[int]:
    """GPUs used by somebody the kubelet does not know: no pod, or none that is here (E4, E5); or memory alone (E6)."""
    known = {pod.uid for pod in facts.pods}
    used = set()
    for index, gpu in enumerate(facts.driver.gpus):
        owners = [facts.owners.get(process.pid, "") for process in gpu.processes]
        if any(owner not in known for owner in owners) or (not owners and gpu.used > BASELINE_BYTES):
            used.add(index)
    return frozenset(used)


def _held_unlisted(facts: Facts) -> frozenset[int]:
    """GPUs in the ledger for a known pod, which List does not show (E8)."""
    known = {pod.uid for pod in facts.pods}
    return frozenset(
        index
        for index, gpu in enumerate(facts.driver.gpus)
        if any(facts.owners.get(process.pid, "") in known for process in gpu.processes)
    )


def _without_process_list(facts: Facts) -> frozenset[int]:
    return frozenset(
        fault.gpu for fault in facts.driver.faults if fault.gpu is not None and fault.fn == HARMLESS_FUNCTIONS[0]
    )


def node_of(slice_: kube.NodeSlice) -> kube.NodeObject | None:
    """Return the slice's Node."""
    return slice_.node_object.value if isinstance(slice_.node_object, Known) else None
