"""`python -m hack.cluster.record FILE`: what a real kubelet says of its devices, state by state, as a capture.

In: a cluster with a real node, started here. Out: JSON Lines (agent/contracts/capture.schema.json), a line for each
state; `notes` says what was done to get there and how long ago.

Invariant: nothing in a line is supposed. The kubelet is read by the agent's own sources, the API server by a plain get,
and a plane that nobody could fill on a machine without a GPU is absent.

Why: most List, GetAllocatableResources and checkpoint columns of faults.md are read from source, not seen. This is
where they are seen.

Not here: judging (the agent's replay), and the fakes that these lines are compared with.
"""

import argparse
import asyncio
import dataclasses
import datetime
import json
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import lightkube
from lightkube.core import exceptions
from lightkube.models import core_v1, meta_v1
from lightkube.resources import core_v1 as core

from agent.model import planes
from agent.sources import checkpoint, podresources
from hack.cluster import deviceplugin, grants, image, parts, realnode, run, versions
from muster.model import jsonform, kube
from muster.model.reading import Known

WAIT_SECONDS = 60.0
GRACE_SECONDS = 5 * 60 + 15.0
"""After 5 minutes without its plugin a resource is dropped, at the next status pass (faults.md S2)."""


@dataclasses.dataclass(slots=True, kw_only=True)
class Scene:
    """A cluster with a real node, and what was last done to it."""

    cluster: run.Cluster
    client: lightkube.Client
    action: str = "nothing"
    acted: float = dataclasses.field(default_factory=time.monotonic)

    @property
    def node(self) -> realnode.Node:
        assert self.cluster.node is not None
        return self.cluster.node

    def act(self, action: str) -> None:
        self.action, self.acted = action, time.monotonic()

    def numbers(self) -> tuple[str, str]:
        """Return capacity and allocatable as node.status has them, `-` where the key is absent."""
        status: Any = self.client.get(core.Node, realnode.NAME).status
        resource = deviceplugin.RESOURCE
        return (status.capacity or {}).get(resource, "-"), (status.allocatable or {}).get(resource, "-")

    def phase(self, name: str) -> str:
        try:
            status: Any = self.client.get(core.Pod, name, namespace="default").status
        except exceptions.ApiError:
            return "Gone"
        return str(status.phase)

    def wait(self, condition: Callable[[], bool], seconds: float = WAIT_SECONDS) -> None:
        """Wait; a state that does not come is recorded as what came instead."""
        deadline = time.monotonic() + seconds
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.2)


def states(scene: Scene) -> Iterator[str]:
    """Bring about one state after the other; yield its name when it is there."""
    scene.wait(lambda: scene.numbers() == ("8", "8"))
    yield "registered, no pod"
    scene.client.create(_pod("holder", 2))
    scene.client.create(_pod("short", 1, activeDeadlineSeconds=15))
    scene.act("two pods created, 2 and 1 devices")
    scene.wait(lambda: (scene.phase("holder"), scene.phase("short")) == ("Running", "Running"))
    yield "two pods running"
    scene.wait(lambda: scene.phase("short") == "Failed")
    scene.act("the pod with 1 device ended, its deadline exceeded")
    yield "one pod finished, the checkpoint not written since (S8, S11)"
    scene.client.delete(core.Pod, "short", namespace="default")
    scene.act("the finished pod deleted")
    scene.wait(lambda: scene.phase("short") == "Gone")
    yield "one pod gone, the checkpoint not written since (S11)"
    held = _held(scene.node)
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
    scene.cluster = run.restart(scene.cluster, "kubelet")
    scene.act("kubelet restarted, plugin still down")
    yield "kubelet restarted without the plugin, first sight"
    scene.wait(lambda: scene.numbers() == ("0", "0"))
    yield "kubelet restarted without the plugin (A5)"
    scene.cluster = run.restart(scene.cluster, "deviceplugin")
    scene.act("plugin started")
    scene.wait(lambda: scene.numbers() == ("8", "8"))
    yield "registered again, the pod still holds its devices"
    scene.cluster = run.restart(scene.cluster, "kubelet")
    scene.act("kubelet restarted, plugin running")
    yield "kubelet restarted with the plugin, first sight"
    scene.wait(lambda: scene.numbers() == ("8", "8"))
    yield "all as before"


def starts(scene: Scene) -> Iterator[str]:
    """What is seen while containers start, and while a kubelet starts without its plugin (S10, S3)."""
    scene.wait(lambda: scene.numbers() == ("8", "8"))
    scene.client.create(_pod("starting", 1, initContainers=[_container("first", 2)]))
    scene.act("a pod created whose init container, with 2 devices, does not end")
    scene.wait(lambda: _has_started_first(scene, "starting"))
    yield "an init container runs (S10)"
    scene.client.create(_pod("accompanied", 1, initContainers=[_container("first", 2, restartPolicy="Always")]))
    scene.act("a pod created whose init container, with 2 devices, is a sidecar")
    scene.wait(lambda: scene.phase("accompanied") == "Running")
    yield "a sidecar runs (S10)"
    before: Any = scene.client.get(core.Node, realnode.NAME).metadata
    parts.stop(scene.cluster.part("kubelet"))
    parts.stop(scene.cluster.part("deviceplugin"))
    scene.cluster = run.restart(scene.cluster, "kubelet")
    scene.act("kubelet stopped, then the plugin; kubelet started")
    scene.wait(lambda: scene.numbers()[1] == "0")
    yield f"kubelet restarted while the plugin died (S3), node.status since then: {_passed(scene, before.resourceVersion)}"


def _has_started_first(scene: Scene, name: str) -> bool:
    status: Any = scene.client.get(core.Pod, name, namespace="default").status
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


WALKS = {"states": states, "starts": starts}


def _held(node: realnode.Node) -> list[str]:
    found = checkpoint.CheckpointFile(node.checkpoint).read()
    assert isinstance(found, Known), found
    return [device for pod in found.value.pods for device in pod.ids]


def _pod(name: str, gpus: int, **options: Any) -> core.Pod:
    spec = core_v1.PodSpec(containers=[_container("main", gpus)], hostNetwork=True, restartPolicy="Never", **options)
    return core.Pod(metadata=meta_v1.ObjectMeta(name=name, namespace="default"), spec=spec)


def _container(name: str, gpus: int, **options: Any) -> core_v1.Container:
    resources = core_v1.ResourceRequirements(limits={deviceplugin.RESOURCE: str(gpus)})
    return core_v1.Container(name=name, image=image.NAME, resources=resources, **options)


async def observe(scene: Scene, name: str) -> planes.Observation:
    """Read every plane that there is, now."""
    reader = podresources.PodResources(scene.node.pod_resources)
    kubelet = planes.Kubelet(
        version=versions.LINES[scene.cluster.line].kubernetes,
        allocatable=await reader.read_allocatable(),
        pods=await reader.read_pods(),
        checkpoint=checkpoint.CheckpointFile(scene.node.checkpoint).read(),
    )
    await reader.close()
    return planes.Observation(
        node=realnode.NAME,
        taken_at=datetime.datetime.now(datetime.UTC),  # noqa: TID251 -- a capture has dates
        kubelet=Known(kubelet),
        node_object=Known(_node_object(scene.client)),
        pods=Known(_pods(scene.client)),
        notes=f"{name}; {time.monotonic() - scene.acted:.1f} s after: {scene.action}",
    )


def _node_object(client: lightkube.Client) -> kube.NodeObject:
    status: Any = client.get(core.Node, realnode.NAME).status
    return kube.NodeObject(capacity=_extended(status.capacity), allocatable=_extended(status.allocatable))


def _extended(quantities: dict[str, str] | None) -> dict[str, int]:
    return {name: int(value) for name, value in (quantities or {}).items() if "/" in name}


def _pods(client: lightkube.Client) -> tuple[kube.Pod, ...]:
    found: Any = client.list(core.Pod, namespace="default")
    return tuple(
        kube.Pod(
            namespace=pod.metadata.namespace,
            name=pod.metadata.name,
            uid=pod.metadata.uid,
            phase=kube.PodPhase(pod.status.phase),
            requests=_extended(pod.spec.containers[0].resources.limits),
        )
        for pod in found
    )


def record(output: pathlib.Path, line: str, walk: str) -> None:
    """Start the cluster, walk through the states, write a line for each, and stop it."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = run.start(pathlib.Path(folder) / "cluster", line, real=True)
        client = grants.client(cluster.kubeconfig)
        scene = Scene(cluster=cluster, client=client)
        try:
            with output.open("w") as lines:
                for name in WALKS[walk](scene):
                    observed = asyncio.run(observe(scene, name))
                    print(f"{scene.numbers()}: {observed.notes}", file=sys.stderr, flush=True)
                    lines.write(json.dumps(jsonform.to_json(observed), separators=(",", ":")) + "\n")
        finally:
            client.close()
            run.stop(scene.cluster)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m hack.cluster.record", description="Record a real kubelet.")
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--walk", choices=WALKS, default="states")
    parser.add_argument("--line", choices=sorted(versions.LINES), default=versions.line_name())
    arguments = parser.parse_args()
    record(arguments.output, arguments.line, arguments.walk)


if __name__ == "__main__":
    main()
