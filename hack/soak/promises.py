"""Injuries of what is promised and recorded: plugin, kubelet, Node, pods, markers (faults.md A, C, D, E, G, H).

Invariant: one of them at a time touches the kubelet's word, and one the Node's, so that each can be undone by itself.
"""

import dataclasses
import datetime
import time
import uuid
from collections.abc import Callable
from typing import Any

from hack.fakenode import host, kubeletstate, proctable
from hack.fakenode.kubeletstate import Fault, FaultKind
from hack.soak import injuries
from hack.soak.injuries import NOTHING, Hurt, Injury, Shows
from hack.soak.oracle import PLANES
from hack.soak.world import World, gone
from muster.model import codec, kube
from muster.model.reading import Known

_KUBELET = frozenset({"kubelet"})
_NODE = frozenset({"node"})
_POD = frozenset({"pod"})
_BOTH = _KUBELET | _NODE
_DOWN = ("PluginDownInGrace", "PluginDownAfterGrace", "PluginRepelledByTaint", "PluginRunningYetUnregistered")
_RESTARTED = (
    "KubeletRestartZeroWindow",
    "KubeletSocketRecreatedUnnoticed",
    "PluginDownInGrace",
    "KubeletRestartAllocFlash",
)


def now() -> datetime.datetime:
    """Return the wall clock's time, as the API server would write it."""
    return datetime.datetime.fromtimestamp(time.time(), datetime.UTC)


def shows(*causes: str, verdict: str = "", wait: float = 0.0) -> Shows:
    """Return what must be said, whether or not anything is advertised."""
    return dataclasses.replace(injuries.shows(*causes, verdict=verdict, wait=wait), through=PLANES - {"promise"})


def _blinding(shown: Shows, *planes: str) -> Shows:
    return dataclasses.replace(shown, through=shown.through - set(planes))


# -- plugin and kubelet


def _plugin_down(world: World) -> Hurt:
    host.stop_plugin(world.root)
    world.edit_kubelet(kubeletstate.plugin_down(world.resource))

    def mend() -> None:
        host.start_plugin(world.root)
        world.edit_kubelet(kubeletstate.plugin_up(world.resource))

    return Hurt(mend=mend, shows=shows(*_DOWN, "XidStickyUnhealthy", verdict="UNDER", wait=60))


def _plugin_forgotten(world: World) -> Hurt:
    """The grace is over: 0/0, the key kept (A2)."""
    devices = world.kubelet.resources[world.resource]
    host.stop_plugin(world.root)
    world.edit_kubelet(kubeletstate.register(world.resource, ()))

    def mend() -> None:
        host.start_plugin(world.root)
        world.edit_kubelet(kubeletstate.register(world.resource, devices))

    return Hurt(mend=mend, shows=shows(*_DOWN, "NoDevicesWaitingForever", "NodeReadyBeforeGpu"))


def _kubelet_restarted(world: World) -> Hurt:
    host.stop_kubelet(world.root)
    host.start_kubelet(world.root)
    world.edit_kubelet(kubeletstate.restart)
    return Hurt(mend=lambda: world.edit_kubelet(kubeletstate.plugin_up(world.resource)), shows=shows(*_RESTARTED))


def _socket_missed(world: World) -> Hurt:
    """The kubelet has restarted and the plugin did not notice (A4)."""
    (world.root / "device-plugins" / host.PLUGIN_SOCKET).unlink(missing_ok=True)
    host.stop_kubelet(world.root)
    host.start_kubelet(world.root)
    world.edit_kubelet(kubeletstate.restart)

    def mend() -> None:
        host.stop_plugin(world.root)
        host.start_plugin(world.root)
        world.edit_kubelet(kubeletstate.plugin_up(world.resource))

    return Hurt(mend=mend, shows=shows(*_RESTARTED))


def _counted_out(world: World) -> Hurt:
    """The plugin calls a good device unhealthy (B1)."""
    gpu = world.take_gpu()
    id_ = world.dice.choice(world.ids_of(gpu))
    world.edit_kubelet(kubeletstate.device_unhealthy(world.resource, id_))

    def mend() -> None:
        world.edit_kubelet(kubeletstate.plugin_up(world.resource))
        world.busy.discard(gpu)

    return Hurt(mend=mend, shows=shows("XidStickyUnhealthy", verdict="UNDER"))


def _late(world: World) -> Hurt:
    """The plugin started before a GPU was ready (A11)."""
    gpu = world.take_gpu()
    before = world.kubelet.resources[world.resource]
    left = tuple(item for item in before if item.id not in world.ids_of(gpu))
    world.edit_kubelet(kubeletstate.register(world.resource, left))

    def mend() -> None:
        world.edit_kubelet(kubeletstate.register(world.resource, before))
        world.busy.discard(gpu)

    return Hurt(mend=mend, shows=shows("LateGpusMissed", verdict="UNDER"))


def _answers(kind: FaultKind, *causes: str, seconds: float = 0.0, size: int = 0) -> Callable[[World], Hurt]:
    def inflict(world: World) -> Hurt:
        word = Fault(kind=kind, seconds=seconds, size=size)
        if world.dice.random() < 0.5:
            world.edit_kubelet(kubeletstate.with_faults(list_fault=word))
        else:
            world.edit_kubelet(kubeletstate.with_faults(allocatable_fault=word))
        said = _blinding(shows(*causes), "kubelet") if causes else NOTHING
        return Hurt(mend=lambda: world.edit_kubelet(kubeletstate.with_faults()), shows=said)

    return inflict


def _refusing(socket: kubeletstate.SocketState) -> Callable[[World], Hurt]:
    def inflict(world: World) -> Hurt:
        world.edit_kubelet(kubeletstate.with_socket(socket))

        def mend() -> None:
            world.edit_kubelet(kubeletstate.with_socket(kubeletstate.SocketState.SERVING))

        return Hurt(mend=mend, shows=_blinding(shows("PodresourcesMissing"), "kubelet"))

    return inflict


def _kubelet_killed(world: World) -> Hurt:
    world.node.kill()
    return Hurt(mend=world.node.start, shows=_blinding(shows("PodresourcesMissing"), "kubelet"))


# -- the Node


def _with_node(**changes: Any) -> Callable[[kube.NodeSlice], kube.NodeSlice]:
    def edit(content: kube.NodeSlice) -> kube.NodeSlice:
        assert isinstance(content.node_object, Known)
        return dataclasses.replace(
            content, node_object=Known(dataclasses.replace(content.node_object.value, **changes))
        )

    return edit


def _node_gone(world: World) -> Hurt:
    world.edit_slice("node", gone)
    return Hurt(mend=lambda: world.edit_slice("node", None), shows=_blinding(shows("NodeSliceUnreadable"), "api"))


def _status(more: int) -> Callable[[World], Hurt]:
    """The Node says more, or less, than the kubelet (S4, E7)."""

    def edit(content: kube.NodeSlice) -> kube.NodeSlice:
        assert isinstance(content.node_object, Known)
        node = content.node_object.value
        counts = {name: max(0, count + more) for name, count in node.allocatable.items()}
        return _with_node(allocatable=codec.freeze(counts))(content)

    def inflict(world: World) -> Hurt:
        world.edit_slice("node", edit)
        return Hurt(
            mend=lambda: world.edit_slice("node", None), shows=shows("NodeStatusStale", "UnhealthyInAllocatableApi")
        )

    return inflict


def _ghost(world: World) -> Hurt:
    """A name of an earlier layout is still promised by the Node alone (C2)."""

    def edit(content: kube.NodeSlice) -> kube.NodeSlice:
        assert isinstance(content.node_object, Known)
        node, name = content.node_object.value, "nvidia.com/mig-7g.80gb"
        return _with_node(
            capacity=codec.freeze({**node.capacity, name: 7}), allocatable=codec.freeze({**node.allocatable, name: 7})
        )(content)

    world.edit_slice("node", edit)
    return Hurt(mend=lambda: world.edit_slice("node", None), shows=shows("GhostResourcesNonZero", verdict="OVER"))


def _marker(label: str, value: str, *causes: str) -> Callable[[World], Hurt]:
    """Somebody announces work (D5, C7): the session is closed, and nothing starts."""

    def inflict(world: World) -> Hurt:
        world.edit_slice("node", _with_node(labels=codec.freeze({label: value})))
        world.switches.marker_at = time.monotonic()

        def mend() -> None:
            world.edit_slice("node", None)
            world.switches.marker_at = None

        return Hurt(mend=mend, shows=dataclasses.replace(shows(*causes), through=frozenset({"agent"})))

    return inflict


def _labels(world: World) -> Hurt:
    """A count label of an earlier machine (G1), and labels that nobody knows: no number moves."""
    labels = codec.freeze({"nvidia.com/gpu.count": str(world.dice.choice((0, 3, 99))), "example.com/x": "\u2603"})
    world.edit_slice("node", _with_node(labels=labels))
    return Hurt(mend=lambda: world.edit_slice("node", None))


def _rejections(message: str, count: int, ceiling: int, cause: str) -> Callable[[World], Hurt]:
    def inflict(world: World) -> Hurt:
        at = now()
        refused = tuple(
            kube.Rejection(
                at=at,
                pod=f"ml/refused-{index}",
                uid=str(uuid.uuid4()),
                reason="UnexpectedAdmissionError",
                message=message.format(resource=world.resource, left=ceiling),
            )
            for index in range(count)
        )
        world.edit_slice("pods", lambda content: dataclasses.replace(content, rejections=refused))
        world.switches.ceiling, world.switches.rejected_at = ceiling, time.monotonic()

        def mend() -> None:
            world.edit_slice("pods", None)
            world.switches.ceiling = None

        return Hurt(mend=mend, shows=shows(cause, verdict="BLOCKED"))

    return inflict


# -- pods


def _bind(world: World, pod: kube.Pod) -> Callable[[], None]:
    """Have the API server know a pod; return what makes it forget."""
    name = f"pod {pod.uid}"

    def add(content: kube.NodeSlice) -> kube.NodeSlice:
        if not isinstance(content.pods, Known):
            return content
        return dataclasses.replace(content, pods=Known((*content.pods.value, pod)))

    world.edit_slice(name, add)
    return lambda: world.edit_slice(name, None)


def _pod(world: World, phase: kube.PodPhase, state: kube.ContainerState, **more: Any) -> kube.Pod:
    asked = codec.freeze({world.resource: 1})
    uid = str(uuid.uuid4())
    container = kube.Container(
        name="main",
        kind=kube.ContainerKind.APP,
        state=state,
        since=now(),
        requests=asked,
        reason=str(more.pop("why", "")),
    )
    fields: dict[str, Any] = {"requests": asked, "containers": (container,), **more}
    return kube.Pod(namespace="ml", name=f"pod-{uid[:8]}", uid=uid, phase=phase, **fields)


def _holding(
    phase: kube.PodPhase, *causes: str, verdict: str = "", is_running: bool = True, **more: Any
) -> Callable[[World], Hurt]:
    """A pod that List shows with a device."""

    def inflict(world: World) -> Hurt:
        gpu = world.take_gpu()
        id_ = world.dice.choice(world.ids_of(gpu))
        fields = {**more, "deletion_at": now()} if "deletion_at" in more else dict(more)
        pod = _pod(world, phase, kube.ContainerState.RUNNING, **fields)
        world.edit_kubelet(kubeletstate.allocate(pod.namespace, pod.name, world.resource, [id_], uid=pod.uid))
        forget = _bind(world, pod)
        pid = 0
        if is_running and not world.is_mig:
            pid = world.start_gpu_process(gpu, proctable.pod_cgroup(pod.uid), pod.uid)

        def mend() -> None:
            if pid:
                world.end_gpu_process(pid)
            world.edit_kubelet(kubeletstate.free(pod.namespace, pod.name))
            forget()
            world.busy.discard(gpu)

        return Hurt(mend=mend, shows=shows(*causes, verdict=verdict))

    return inflict


def _waiting(world: World) -> Hurt:
    """A pod that is bound and has no device yet: it will take one that looks free."""
    return Hurt(mend=_bind(world, _pod(world, kube.PodPhase.PENDING, kube.ContainerState.WAITING)))


def _without_gpu(world: World) -> Hurt:
    """A pod that asked for a device runs with none (A8)."""
    pod = _pod(world, kube.PodPhase.RUNNING, kube.ContainerState.RUNNING)
    bare = kubeletstate.Pod(
        namespace=pod.namespace, name=pod.name, uid=pod.uid, containers=(kubeletstate.Container(name="main"),)
    )
    world.edit_kubelet(lambda state: dataclasses.replace(state, pods=(*state.pods, bare)))
    forget = _bind(world, pod)

    def mend() -> None:
        world.edit_kubelet(kubeletstate.free(pod.namespace, pod.name))
        forget()

    return Hurt(mend=mend, shows=shows("CheckpointLostPodWithoutGpu", verdict="BLOCKED", wait=60))


def _not_injected(world: World) -> Hurt:
    """A pod holds a device that no CDI spec names, and its container cannot be created (D6)."""
    spec = world.root / "cdi" / "nvidia.json"
    spec.write_text('{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": []}')
    gpu = world.take_gpu()
    pod = _pod(world, kube.PodPhase.PENDING, kube.ContainerState.WAITING, why="CreateContainerError")
    id_ = world.ids_of(gpu)[0]
    world.edit_kubelet(kubeletstate.allocate(pod.namespace, pod.name, world.resource, [id_], uid=pod.uid))
    forget = _bind(world, pod)
    world.switches.is_spec_stale = True

    def mend() -> None:
        spec.unlink()
        world.edit_kubelet(kubeletstate.free(pod.namespace, pod.name))
        forget()
        world.switches.is_spec_stale = False
        world.busy.discard(gpu)

    return Hurt(mend=mend, shows=shows("CdiSpecEmptyOrStale", verdict="BLOCKED", wait=60))


def _many_pods(world: World) -> Hurt:
    """4,000 pods on the node, none of which asks for a GPU."""
    names = [f"web-{index:04}" for index in range(4000)]
    listed = tuple(
        kubeletstate.Pod(namespace="web", name=name, uid=f"uid-{name}", containers=(kubeletstate.Container(name="c"),))
        for name in names
    )
    bound = tuple(
        kube.Pod(namespace="web", name=name, uid=f"uid-{name}", phase=kube.PodPhase.RUNNING, containers=())
        for name in names
    )
    world.edit_kubelet(lambda state: dataclasses.replace(state, pods=(*state.pods, *listed)))
    world.edit_slice(
        "many",
        lambda content: (
            dataclasses.replace(content, pods=Known((*content.pods.value, *bound)))
            if isinstance(content.pods, Known)
            else content
        ),
    )

    def mend() -> None:
        world.edit_kubelet(_without_web)
        world.edit_slice("many", None)

    return Hurt(mend=mend)


def _without_web(state: kubeletstate.KubeletState) -> kubeletstate.KubeletState:
    return dataclasses.replace(state, pods=tuple(pod for pod in state.pods if pod.namespace != "web"))


def _spare(world: World) -> bool:
    return bool(world.spare())


_LEAK = "Allocate failed due to requested number of devices unavailable for {resource}. Requested: 1, Available: {left}, which is unexpected"
_PREFERRED = "Allocate failed: preferred allocation: error initializing NVML"

INJURIES = (
    Injury(name="plugin down", group="A", inflict=_plugin_down, touches=_BOTH, weight=2),
    Injury(name="plugin forgotten", group="A", inflict=_plugin_forgotten, touches=_BOTH),
    Injury(name="kubelet restarted", group="A", inflict=_kubelet_restarted, touches=_BOTH, weight=2),
    Injury(name="kubelet socket missed", group="A", inflict=_socket_missed, touches=_BOTH),
    Injury(name="counted out", group="B", inflict=_counted_out, touches=_BOTH, fits=_spare),
    Injury(name="late gpu", group="A", inflict=_late, touches=_BOTH, fits=_spare),
    Injury(name="kubelet garbage", group="H", inflict=_answers(FaultKind.GARBAGE, "PodresourcesMissing"), touches=_KUBELET),
    Injury(
        name="kubelet too much",
        group="H",
        inflict=_answers(FaultKind.TOO_LARGE, "Grpc4mib", size=17 << 20),
        touches=_KUBELET,
        weight=0.2,
    ),
    Injury(
        name="kubelet without the method",
        group="H",
        inflict=_answers(FaultKind.UNIMPLEMENTED, "PodresourcesMissing"),
        touches=_KUBELET,
    ),
    Injury(name="kubelet error", group="H", inflict=_answers(FaultKind.ERROR, "PodresourcesMissing"), touches=_KUBELET),
    Injury(name="kubelet hangs", group="H", inflict=_answers(FaultKind.HANG, "PodresourcesMissing"), touches=_KUBELET),
    Injury(name="kubelet slow", group="N", inflict=_answers(FaultKind.SLOW, seconds=0.2), touches=_KUBELET),
    Injury(
        name="kubelet refuses", group="H", inflict=_refusing(kubeletstate.SocketState.REFUSING), touches=_KUBELET
    ),
    Injury(name="kubelet absent", group="H", inflict=_refusing(kubeletstate.SocketState.ABSENT), touches=_KUBELET),
    Injury(name="kubelet killed", group="X", inflict=_kubelet_killed, touches=_KUBELET),
    Injury(name="node gone", group="H", inflict=_node_gone, touches=_NODE | _POD),
    Injury(name="node says more", group="A", inflict=_status(2), touches=_BOTH),
    Injury(name="node says less", group="A", inflict=_status(-2), touches=_BOTH),
    Injury(name="ghost resource", group="C", inflict=_ghost, touches=_BOTH),
    Injury(
        name="driver upgrade announced",
        group="D",
        inflict=_marker("nvidia.com/gpu-driver-upgrade-state", "upgrade-in-progress", "DriverUpgradeWindow"),
        touches=_NODE | {"session"},
    ),
    Injury(
        name="mig change announced",
        group="C",
        inflict=_marker("nvidia.com/mig.config.state", "pending", "Maintenance", "MigManagerStuck"),
        touches=_NODE | {"session"},
    ),
    Injury(name="odd labels", group="G", inflict=_labels, touches=_NODE),
    Injury(name="ledger leak", group="E", inflict=_rejections(_LEAK, 2, 1, "LedgerLeak"), touches=_BOTH | _POD | {"gpus"}, is_alone=True),
    Injury(
        name="zombie plugin",
        group="B",
        inflict=_rejections(_PREFERRED, 3, 0, "ZombiePluginNvmlBrokenInside"),
        touches=_BOTH | _POD,
        is_alone=True,
    ),
    Injury(name="pod holds", group="N", inflict=_holding(kube.PodPhase.RUNNING), touches=_KUBELET | _POD, fits=_spare, weight=2),
    Injury(
        name="pod terminating",
        group="E",
        inflict=_holding(kube.PodPhase.RUNNING, "TerminatingPodOnGpu", deletion_at=True),
        touches=_KUBELET | _POD,
        fits=_spare,
    ),
    Injury(
        name="finished pod in list",
        group="E",
        inflict=_holding(kube.PodPhase.SUCCEEDED, is_running=False),
        touches=_KUBELET | _POD,
        fits=_spare,
    ),
    Injury(name="pod waits", group="N", inflict=_waiting, touches=_POD),
    Injury(name="pod without gpu", group="A", inflict=_without_gpu, touches=_KUBELET | _POD),
    Injury(name="device not injected", group="D", inflict=_not_injected, touches=_KUBELET | _POD, fits=_spare),
    Injury(name="4,000 pods", group="X", inflict=_many_pods, touches=_KUBELET | _POD | {"many"}, weight=0.1),
)  # fmt: skip
