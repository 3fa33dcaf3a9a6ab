"""The walks of a recording: bring a real kubelet into one state after the other.

In: a Scene. Out: the name of each state, yielded while the state is there; record.py writes down what is said then.

Invariant: every state is brought about by what an operator, a crash or time would do: pods, health, SIGKILL, restarts,
a patch of node.status. Nothing reaches into the kubelet.

Not here: waiting and asking (scene.py), and what the answers mean (docs/cluster.md, faults.md).
"""

from collections.abc import Iterator
from typing import Any

from lightkube.resources import core_v1 as core

from hack.cluster import deviceplugin, parts, realnode
from hack.cluster.scene import NAMESPACE, Scene, container, pod

GRACE_SECONDS = 5 * 60 + 15.0
"""After 5 minutes without its plugin a resource is dropped, at the next status pass (faults.md S2)."""
PASSES_SECONDS = 35.0
"""Three status periods (faults.md section 2) and a margin: what has not come back by then does not."""


def states(scene: Scene) -> Iterator[str]:
    """Bring about one state after the other; yield its name when it is there."""
    scene.wait(lambda: scene.numbers() == ("8", "8"))
    yield "registered, no pod"
    scene.create(pod("holder", 2))
    scene.create(pod("short", 1, activeDeadlineSeconds=15))
    scene.act("two pods created, 2 and 1 devices")
    scene.wait(lambda: (scene.phase("holder"), scene.phase("short")) == ("Running", "Running"))
    yield "two pods running"
    scene.wait(lambda: scene.phase("short") == "Failed")
    scene.act("the pod with 1 device ended, its deadline exceeded")
    yield "one pod finished, the checkpoint not written since (S8, S11)"
    scene.client.delete(core.Pod, "short", namespace=NAMESPACE)
    scene.act("the finished pod deleted")
    scene.wait(lambda: scene.phase("short") == "Gone")
    yield "one pod gone, the checkpoint not written since (S11)"
    held = scene.held()
    scene.node.unhealthy.write_text(held[0])
    scene.act("one of the running pod's devices unhealthy")
    scene.wait(lambda: scene.numbers() == ("8", "7"))
    yield "a held device unhealthy"
    scene.node.unhealthy.write_text("")
    scene.act("healthy again")
    scene.wait(lambda: scene.numbers() == ("8", "8"))
    yield "healthy again"
    parts.stop(scene.cluster.part("deviceplugin"))
    scene.act("plugin killed")
    yield "plugin just killed, node.status not passed yet"
    scene.wait(lambda: scene.numbers() == ("8", "0"))
    yield "plugin down in grace (A1)"
    scene.wait(lambda: scene.numbers() == ("0", "0"), GRACE_SECONDS)
    yield "plugin down after grace (A2)"
    scene.restart("kubelet")
    scene.act("kubelet restarted, plugin still down")
    yield "kubelet restarted without the plugin, first sight"
    scene.wait(lambda: scene.numbers() == ("0", "0"))
    yield "kubelet restarted without the plugin (A5)"
    scene.restart("deviceplugin")
    scene.act("plugin started")
    scene.wait(lambda: scene.numbers() == ("8", "8"))
    yield "registered again, the pod still holds its devices"
    scene.restart("kubelet")
    scene.act("kubelet restarted, plugin running")
    yield "kubelet restarted with the plugin, first sight"
    scene.wait(lambda: scene.numbers() == ("8", "8"))
    yield "all as before"


def starts(scene: Scene) -> Iterator[str]:
    """What is seen while containers start, and while a kubelet starts without its plugin (S10, S3)."""
    scene.wait(lambda: scene.numbers() == ("8", "8"))
    scene.create(pod("starting", 1, initContainers=[container("first", 2)]))
    scene.act("a pod created whose init container, with 2 devices, does not end")
    scene.wait(lambda: _has_started_first(scene, "starting"))
    yield "an init container runs (S10)"
    scene.create(pod("accompanied", 1, initContainers=[container("first", 2, restartPolicy="Always")]))
    scene.act("a pod created whose init container, with 2 devices, is a sidecar")
    scene.wait(lambda: scene.phase("accompanied") == "Running")
    yield "a sidecar runs (S10)"
    before: Any = scene.client.get(core.Node, realnode.NAME).metadata
    parts.stop(scene.cluster.part("kubelet"))
    parts.stop(scene.cluster.part("deviceplugin"))
    scene.restart("kubelet")
    scene.act("kubelet stopped, then the plugin; kubelet started")
    scene.wait(lambda: scene.numbers()[1] == "0")
    yield f"kubelet restarted while the plugin died (S3), node.status since then: {_passed(scene, before.resourceVersion)}"


def _has_started_first(scene: Scene, name: str) -> bool:
    status: Any = scene.client.get(core.Pod, name, namespace=NAMESPACE).status
    return any(each.state.running for each in status.initContainerStatuses or ())


def _passed(scene: Scene, version: str) -> str:
    """Return every pair of numbers that node.status has had since `version`, in order."""
    field = {"metadata.name": realnode.NAME}
    pairs: list[str] = []
    options: dict[str, Any] = {"fields": field, "resource_version": version}
    for _, node in scene.client.watch(core.Node, **options):
        status: Any = node.status
        pair = "/".join(
            str((each or {}).get(deviceplugin.RESOURCE, "-")) for each in (status.capacity, status.allocatable)
        )
        pairs += [pair] if pairs[-1:] != [pair] else []
        if pair.endswith("/0"):
            break
    return " ".join(pairs)


def zero(scene: Scene) -> Iterator[str]:
    """A resource that lost its plugin, and whose key somebody removes from node.status (S2)."""
    scene.wait(lambda: scene.numbers() == ("8", "8"))
    parts.stop(scene.cluster.part("deviceplugin"))
    scene.wait(lambda: scene.numbers() == ("8", "0"))
    scene.remove_key()
    scene.act("the key removed from node.status within the grace")
    scene.wait(lambda: scene.numbers() == ("8", "0"), PASSES_SECONDS)
    yield "key removed within the grace (S2)"
    scene.wait(lambda: scene.numbers() == ("0", "0"), GRACE_SECONDS)
    scene.create(pod("refused", 1, nodeName=realnode.NAME))
    scene.act("a pod bound to the node directly, its key at zero")
    scene.wait(lambda: scene.phase("refused") == "Failed")
    yield "key at zero, a pod bound directly (S2)"
    scene.remove_key()
    scene.act("the key removed from node.status after the grace")
    scene.wait(lambda: scene.numbers() != ("-", "-"), PASSES_SECONDS)
    yield "key removed after the grace (S2)"
    scene.create(pod("waiting", 1))
    scene.create(pod("deviceless", 1, nodeName=realnode.NAME))
    scene.act("two pods created, one for the scheduler and one bound to the node directly, no key there")
    scene.wait(lambda: scene.phase("deviceless") in {"Running", "Failed"})
    yield "no key, a pod bound directly (S2)"
    scene.restart("kubelet")
    scene.act("kubelet restarted, no plugin and no key")
    scene.wait(lambda: scene.numbers() != ("-", "-"), PASSES_SECONDS)
    yield "kubelet restarted without plugin and key (S2)"
    scene.restart("deviceplugin")
    scene.act("plugin started")
    scene.wait(lambda: scene.phase("waiting") == "Running")
    yield "registered again, a pod without its device still runs (S2)"
    parts.stop(scene.cluster.part("deviceplugin"))
    scene.wait(lambda: scene.numbers() == ("0", "0"), GRACE_SECONDS)
    scene.remove_key()
    scene.create(pod("unserved", 1, nodeName=realnode.NAME))
    scene.act("the key removed after the grace while a pod holds a device, and a pod bound to the node directly")
    scene.wait(lambda: scene.phase("unserved") in {"Running", "Failed"})
    yield "no key, a device held, a pod bound directly (S2)"


def kills(scene: Scene) -> Iterator[str]:
    """SIGKILL for the kubelet, for containerd, and for both, under a running pod."""
    scene.wait(lambda: scene.numbers() == ("8", "8"))
    scene.create(pod("holder", 2))
    scene.wait(lambda: scene.phase("holder") == "Running")
    _kill(scene, "kubelet")
    yield "kubelet killed"
    scene.restart("kubelet")
    scene.act("kubelet started after SIGKILL")
    yield "kubelet killed and started, first sight"
    scene.wait(lambda: _is_as_before(scene))
    yield "kubelet killed and started"
    _kill(scene, "containerd")
    yield "containerd killed, first sight"
    scene.wait(lambda: not scene.is_ready())
    yield "containerd killed"
    scene.restart("containerd")
    scene.act("containerd started after SIGKILL")
    scene.wait(lambda: _is_as_before(scene))
    yield "containerd killed and started"
    _kill(scene, "containerd", "kubelet")
    scene.restart("containerd", "kubelet")
    scene.act("containerd and kubelet started after SIGKILL")
    scene.wait(lambda: _is_as_before(scene))
    yield "both killed and started"
    scene.create(pod("next", 6))
    scene.act("a pod created for the other six devices")
    scene.wait(lambda: scene.phase("next") in {"Running", "Failed"})
    yield "the rest is given to the next pod, and nothing twice"


def _kill(scene: Scene, *names: str) -> None:
    for name in names:
        parts.kill(scene.cluster.part(name))
    scene.act(f"SIGKILL to {' and '.join(names)}")


def _is_as_before(scene: Scene) -> bool:
    return scene.is_ready() and scene.numbers() == ("8", "8") and scene.listed("holder") == 2


WALKS = {"states": states, "starts": starts, "zero": zero, "kills": kills}
