"""Injuries of what the API server says of a node: the Node object, markers, rejections, pods (faults.md A, C, D, E, G).

Invariant: each edit of the Node and each pod is undone by itself. A pod that holds a device is in the kubelet's List too.
"""

import dataclasses
import datetime
import time
import uuid
from collections.abc import Callable
from typing import Any

from hack.fakenode import host, kubeletstate, proctable
from hack.soak.injuries import Hurt, Injury, shows_of_node, without
from hack.soak.world import World, gone
from muster.model import codec, kube
from muster.model.reading import Known

_KUBELET = frozenset({"kubelet"})
_NODE = frozenset({"node"})
_POD = frozenset({"pod"})
_BOTH = _KUBELET | _NODE
_LEAK = "Allocate failed due to requested number of devices unavailable for {resource}. Requested: 1, Available: {left}, which is unexpected"
_PREFERRED = "Allocate failed: preferred allocation: error initializing NVML"


def now() -> datetime.datetime:
    """Return the wall clock's time, as the API server would write it."""
    return datetime.datetime.fromtimestamp(time.time(), datetime.UTC)


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
    return Hurt(mend=lambda: world.edit_slice("node", None), shows=without(shows_of_node("NodeSliceUnreadable"), "api"))


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
            mend=lambda: world.edit_slice("node", None),
            shows=shows_of_node("NodeStatusStale", "UnhealthyInAllocatableApi"),
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
    return Hurt(
        mend=lambda: world.edit_slice("node", None), shows=shows_of_node("GhostResourcesNonZero", verdict="OVER")
    )


def _marker(label: str, value: str, *causes: str) -> Callable[[World], Hurt]:
    """Somebody announces work (D5, C7): the session is closed, and nothing starts."""

    def inflict(world: World) -> Hurt:
        world.edit_slice("node", _with_node(labels=codec.freeze({label: value})))
        world.switches.marker_at = time.monotonic()

        def mend() -> None:
            world.edit_slice("node", None)
            world.switches.marker_at = None

        return Hurt(mend=mend, shows=dataclasses.replace(shows_of_node(*causes), through=frozenset({"agent"})))

    return inflict


def _labels(world: World) -> Hurt:
    """A count label of an earlier machine (G1), and labels that nobody knows: no number moves."""
    labels = codec.freeze({"nvidia.com/gpu.count": str(world.dice.choice((0, 3, 99))), "example.com/x": "\u2603"})
    world.edit_slice("node", _with_node(labels=labels))
    return Hurt(mend=lambda: world.edit_slice("node", None))


def _kubelet_anew(world: World) -> None:
    host.stop_kubelet(world.root)
    host.start_kubelet(world.root)


def _plugin_anew(world: World) -> None:
    host.stop_plugin(world.root)
    host.start_plugin(world.root)


def _rejections(
    message: str, count: int, ceiling: int, cause: str, answer: Callable[[World], None]
) -> Callable[[World], Hurt]:
    """Pods that are refused and deleted within moments; only a restart of what they accuse ends it (B4, E3)."""

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
        world.switches.ceiling = ceiling

        def mend() -> None:
            world.edit_slice("pods", None)
            answer(world)
            world.switches.ceiling = None

        return Hurt(mend=mend, shows=shows_of_node(cause, verdict="BLOCKED"))

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

        return Hurt(mend=mend, shows=shows_of_node(*causes, verdict=verdict))

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

    return Hurt(mend=mend, shows=shows_of_node("CheckpointLostPodWithoutGpu", verdict="BLOCKED", wait=60))


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

    return Hurt(mend=mend, shows=shows_of_node("CdiSpecEmptyOrStale", verdict="BLOCKED", wait=60))


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


INJURIES = (
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
    Injury(name="ledger leak", group="E", inflict=_rejections(_LEAK, 2, 1, "LedgerLeak", _kubelet_anew), touches=_BOTH | _POD | {"gpus"}, is_alone=True),
    Injury(
        name="zombie plugin",
        group="B",
        inflict=_rejections(_PREFERRED, 3, 0, "ZombiePluginNvmlBrokenInside", _plugin_anew),
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
