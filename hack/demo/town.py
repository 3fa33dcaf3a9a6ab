"""A real control plane with fake machines under it: what the cluster's story works with.

In: a running hack/cluster, a folder. Out: `Machines`, the admitter and an agent for each node, on fake drivers; `Town`,
which carries what the API server says of pods over to the fake machines, and asks the API server.

Invariant: a pod gets devices on a fake machine exactly while its fake kubelet runs it. Nothing is told to the admitter that a
real cluster would not tell it.

Not here: what happens in it (clusterstory.py), who makes the pods (launcher.py).
"""

import asyncio
import contextlib
import os
import pathlib
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

import lightkube
from lightkube.config import kubeconfig
from lightkube.core import exceptions
from lightkube.models import core_v1, meta_v1, rbac_v1
from lightkube.resources import core_v1 as core
from lightkube.resources import rbac_authorization_v1 as rbac
from lightkube.types import PatchType

from hack.cluster import fakekubelet
from hack.fakenode import fleet
from hack.fakenode.node import GPU_RESOURCE, FakeNode

SYSTEM, NAMESPACE = "muster-system", "team-a"
PLUGINS = "/var/lib/kubelet/device-plugins"
LOOK_SECONDS = 0.2
LEASE_SECONDS = 5
FOR_EVER = "100000"
HALF = {"cpu": "48", "memory": "512Gi"}
"""Of what a fake kubelet says that it has."""
OPERATOR = "muster:client:operator"
ACCOUNT_SECONDS = 30
_FORBIDDEN = 403


class Machines(fleet.Fleet):
    """Real agents and readers on fake drivers, and an admitter that works with an API server."""

    def __init__(self, folder: pathlib.Path, nodes: Iterable[FakeNode], path: pathlib.Path, *, scale: float) -> None:
        super().__init__(folder, nodes, scale=scale)
        self._kubeconfig = path

    def publish(self) -> None:
        """Nodes and Pods come from the API server, and from no file."""

    def start_admitter(self) -> None:
        """Start the admitter with the gate adapter."""
        flags = {
            "--name": "admitter",
            "--listen": self.address,
            "--kubeconfig": str(self._kubeconfig),
            "--gates": "true",
            "--lease-namespace": SYSTEM,
            "--lease-seconds": str(LEASE_SECONDS),
            "--new-term-grace-seconds": "0",
            "--replan-patience-seconds": "1",
            "--decision-log": str(self.folder / "decisions.jsonl"),
            "--metrics-address": f"127.0.0.1:{self.metrics['admitter']}",
        }
        command = [str(fleet._BINARIES / "muster-admitter"), "run", *fleet._tls_flags(self._admitter_files)]
        self._start("admitter", [*command, *(word for flag in flags.items() for word in flag)], dict(os.environ))


class Town:
    """The cluster as it is now, with its pods on the fake machines."""

    def __init__(self, path: pathlib.Path, machines: Machines) -> None:
        self._config = kubeconfig.KubeConfig.from_file(path)
        self.machines = machines
        self.kube: lightkube.AsyncClient = lightkube.AsyncClient(config=self._config, trust_env=False)
        self.pods: dict[str, core.Pod] = {}
        """All pods of the story's namespace by UID, as they were a moment ago."""
        self._carried: dict[str, str] = {}
        """UID -> the machine where its devices are."""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Town"]:
        """Furnish the cluster, and follow its pods for as long as the block runs."""
        for name in (SYSTEM, NAMESPACE):
            await self.kube.create(core.Namespace(metadata=meta_v1.ObjectMeta(name=name)))
        await self._let_the_operator_ask()
        for node in self.machines.nodes:
            await self.create(plugin_pod(node))
        following = asyncio.create_task(self._follow())
        try:
            yield self
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await self.kube.close()

    async def _let_the_operator_ask(self) -> None:
        """Grant the user of the operator's certificate all questions."""
        name = meta_v1.ObjectMeta(name=OPERATOR)
        rule = rbac_v1.PolicyRule(apiGroups=["muster.dev"], resources=["*"], verbs=["*"])
        await self.kube.create(rbac.ClusterRole(metadata=name, rules=[rule]))
        reference = rbac_v1.RoleRef(apiGroup="rbac.authorization.k8s.io", kind="ClusterRole", name=OPERATOR)
        subject = rbac_v1.Subject(apiGroup="rbac.authorization.k8s.io", kind="User", name=OPERATOR)
        await self.kube.create(rbac.ClusterRoleBinding(metadata=name, roleRef=reference, subjects=[subject]))

    async def create(self, pod: core.Pod) -> None:
        """Make a pod; a new namespace takes none before the controller manager has made its account."""
        for last in range(ACCOUNT_SECONDS, -1, -1):
            try:
                await self.kube.create(pod)
            except exceptions.ApiError as error:
                if not last or error.status.code != _FORBIDDEN:
                    raise
                await asyncio.sleep(1)
            else:
                return

    async def lose_gpu(self, node: str, gpu: int) -> None:
        """A GPU falls off the bus of a node, whose plugin and kubelet go on promising it."""
        await asyncio.to_thread(self.machines.nodes[node].lose_gpu, gpu)
        lost = {fakekubelet.LOST: "1", fakekubelet.UNNOTICED: "true"}
        body = {"metadata": {"annotations": lost}}
        await self.kube.patch(core.Node, node, body, patch_type=PatchType.MERGE)

    async def burden(self, node: str) -> None:
        """Half of a node's processors and memory have work that wants no GPU: kube-scheduler prefers other nodes."""
        wanted = core_v1.ResourceRequirements(requests=dict(HALF))
        container = core_v1.Container(name="main", image="none", resources=wanted)
        metadata = meta_v1.ObjectMeta(
            name="preprocessing", namespace=SYSTEM, annotations={fakekubelet.RUN_SECONDS: FOR_EVER}
        )
        await self.create(core.Pod(metadata=metadata, spec=core_v1.PodSpec(nodeName=node, containers=[container])))

    async def promised(self) -> dict[str, int]:
        """Return what each node's status promises."""
        found = {}
        async for node in self.kube.list(core.Node):
            amounts = (node.status.allocatable if node.status is not None else None) or {}
            assert node.metadata is not None
            found[str(node.metadata.name)] = int(amounts.get(GPU_RESOURCE, "0"))
        return found

    async def _follow(self) -> None:
        while True:
            self.pods = {
                pod.metadata.uid: pod
                async for pod in self.kube.list(core.Pod, namespace=NAMESPACE)
                if pod.metadata is not None and pod.metadata.uid
            }
            await asyncio.to_thread(self._carry)
            await asyncio.sleep(LOOK_SECONDS)

    def _carry(self) -> None:
        """Start and end pods on the fake machines as the kubelets have them."""
        running = {uid: pod for uid, pod in self.pods.items() if phase(pod) == "Running"}
        for uid in self._carried.keys() - running.keys():
            self.machines.nodes[self._carried.pop(uid)].end_pod(uid)
        for uid, pod in running.items():
            node = node_of(pod)
            if uid not in self._carried and node in self.machines.nodes:
                self._carried[uid] = node
                machine = self.machines.nodes[node]
                machine.start_pod(NAMESPACE, name_of(pod), uid, GPU_RESOURCE, units(pod))


@contextlib.contextmanager
def machines(folder: pathlib.Path, names: Iterable[str], path: pathlib.Path, *, scale: float) -> Iterator[Machines]:
    """Start an agent for each node and the admitter, and end them."""
    made = Machines(folder, [FakeNode(folder, name) for name in names], path, scale=scale)
    with made:
        made.start()
        yield made


def plugin_pod(node: str) -> core.Pod:
    """Return the pod of a device plugin, as the API server has it."""
    mount = core_v1.VolumeMount(name="plugins", mountPath=PLUGINS)
    container = core_v1.Container(name="main", image="none", volumeMounts=[mount])
    volume = core_v1.Volume(name="plugins", hostPath=core_v1.HostPathVolumeSource(path=PLUGINS))
    spec = core_v1.PodSpec(nodeName=node, containers=[container], volumes=[volume])
    metadata = meta_v1.ObjectMeta(name=f"nvidia-device-plugin-{node}", namespace=SYSTEM)
    return core.Pod(metadata=metadata, spec=spec)


def phase(pod: core.Pod) -> str:
    """Return a pod's phase."""
    return (pod.status.phase if pod.status is not None else None) or ""


def node_of(pod: core.Pod) -> str:
    """Return the node that a pod is bound to; empty: none."""
    return (pod.spec.nodeName if pod.spec is not None else None) or ""


def name_of(pod: core.Pod) -> str:
    """Return a pod's name."""
    assert pod.metadata is not None
    return str(pod.metadata.name)


def units(pod: core.Pod) -> int:
    """Return how many GPUs a pod asks for."""
    containers: list[Any] = list(pod.spec.containers) if pod.spec is not None else []
    return sum(int((each.resources.limits or {}).get(GPU_RESOURCE, "0")) for each in containers if each.resources)
