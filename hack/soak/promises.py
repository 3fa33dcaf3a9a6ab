"""Injuries of what is promised and recorded: plugin, kubelet, Node, pods, markers (faults.md A, C, D, E, G, H).

Invariant: one of them at a time touches the kubelet's word, and one the Node's, so that each can be undone by itself.
"""

from collections.abc import Callable

from hack.fakenode import host, kubeletstate
from hack.fakenode.kubeletstate import Fault, FaultKind
from hack.soak.injuries import NOTHING, PLUGIN_LIST, Hurt, Injury, shows_of_node, without
from hack.soak.world import World

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


# -- plugin and kubelet


def _plugin_down(world: World) -> Hurt:
    host.stop_plugin(world.root)
    world.edit_kubelet(kubeletstate.plugin_down(world.resource))

    def mend() -> None:
        host.start_plugin(world.root)
        world.edit_kubelet(kubeletstate.plugin_up(world.resource))

    return Hurt(mend=mend, shows=shows_of_node(*_DOWN, "XidStickyUnhealthy", verdict="UNDER", wait=60))


def _plugin_forgotten(world: World) -> Hurt:
    """The grace is over: 0/0, the key kept (A2)."""
    devices = world.kubelet.resources[world.resource]
    host.stop_plugin(world.root)
    world.edit_kubelet(kubeletstate.register(world.resource, ()))

    def mend() -> None:
        host.start_plugin(world.root)
        world.edit_kubelet(kubeletstate.register(world.resource, devices))

    return Hurt(mend=mend, shows=shows_of_node(*_DOWN, "NoDevicesWaitingForever", "NodeReadyBeforeGpu"))


def _kubelet_restarted(world: World) -> Hurt:
    host.stop_kubelet(world.root)
    host.start_kubelet(world.root)
    world.edit_kubelet(kubeletstate.restart)
    return Hurt(
        mend=lambda: world.edit_kubelet(kubeletstate.plugin_up(world.resource)), shows=shows_of_node(*_RESTARTED)
    )


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

    return Hurt(mend=mend, shows=shows_of_node(*_RESTARTED))


def _counted_out(world: World) -> Hurt:
    """The plugin calls a good device unhealthy (B1)."""
    gpu = world.take_gpu()
    id_ = world.dice.choice(world.ids_of(gpu))
    world.edit_kubelet(kubeletstate.device_unhealthy(world.resource, id_))

    def mend() -> None:
        world.edit_kubelet(kubeletstate.plugin_up(world.resource))
        world.busy.discard(gpu)

    return Hurt(mend=mend, shows=shows_of_node("XidStickyUnhealthy", verdict="UNDER"))


def _late(world: World) -> Hurt:
    """The plugin started before a GPU was ready (A11)."""
    gpu = world.take_gpu()
    before = world.kubelet.resources[world.resource]
    left = tuple(item for item in before if item.id not in world.ids_of(gpu))
    world.edit_kubelet(kubeletstate.register(world.resource, left))

    def mend() -> None:
        world.edit_kubelet(kubeletstate.register(world.resource, before))
        world.busy.discard(gpu)

    return Hurt(mend=mend, shows=shows_of_node("LateGpusMissed", verdict="UNDER"))


def _answers(kind: FaultKind, *causes: str, seconds: float = 0.0, size: int = 0) -> Callable[[World], Hurt]:
    def inflict(world: World) -> Hurt:
        word = Fault(kind=kind, seconds=seconds, size=size)
        if world.dice.random() < 0.5:
            world.edit_kubelet(kubeletstate.with_faults(list_fault=word))
        else:
            world.edit_kubelet(kubeletstate.with_faults(allocatable_fault=word))
        said = without(shows_of_node(*causes), "kubelet") if causes else NOTHING
        return Hurt(mend=lambda: world.edit_kubelet(kubeletstate.with_faults()), shows=said)

    return inflict


def _refusing(socket: kubeletstate.SocketState) -> Callable[[World], Hurt]:
    def inflict(world: World) -> Hurt:
        world.edit_kubelet(kubeletstate.with_socket(socket))

        def mend() -> None:
            world.edit_kubelet(kubeletstate.with_socket(kubeletstate.SocketState.SERVING))

        return Hurt(mend=mend, shows=without(shows_of_node("PodresourcesMissing"), "kubelet"))

    return inflict


def _kubelet_killed(world: World) -> Hurt:
    world.node.kill()
    return Hurt(mend=world.node.start, shows=without(shows_of_node("PodresourcesMissing"), "kubelet"))


def _spare(world: World) -> bool:
    return bool(world.spare())


INJURIES = (
    Injury(name="plugin down", group="A", inflict=_plugin_down, touches=_BOTH, weight=2),
    Injury(name="plugin forgotten", group="A", inflict=_plugin_forgotten, touches=_BOTH),
    Injury(name="kubelet restarted", group="A", inflict=_kubelet_restarted, touches=_BOTH, weight=2),
    Injury(name="kubelet socket missed", group="A", inflict=_socket_missed, touches=_BOTH),
    Injury(name="counted out", group="B", inflict=_counted_out, touches=_BOTH, fits=_spare),
    Injury(name="late gpu", group="A", inflict=_late, touches=_BOTH | PLUGIN_LIST, fits=_spare),
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
)  # fmt: skip
