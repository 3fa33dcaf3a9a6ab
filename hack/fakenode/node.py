"""One fake machine: driver, host, kubelet and device plugin, and what the API server would say of it.

In: a folder, a node name and a machine of hack/fakenvml. Out: real sockets and files that a real agent reads, the
settings that point an agent at them, and the node's slice.

Invariant: an edit moves only what the real event would move. `lose_gpu` leaves the kubelet's promise as it was, and
that gap is what the agent is there to find.

Not here: agents and admitters; whoever needs them starts the real programs (hack/demo, hack/bench, tests/e2e).
"""

import contextlib
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping

from hack import fakenvml
from hack.fakenode import host, kubeletstate, proctable, sockets
from muster.model import codec, kube
from muster.model.reading import NOT_COLLECTED, Known, Reading

GPU_RESOURCE = "nvidia.com/gpu"

PLUGIN_POD = "gpu-operator/nvidia-device-plugin"


class FakeNode:
    """A node whose parts can be broken one by one."""

    def __init__(self, folder: pathlib.Path, name: str, machine: str = "hgx-h100") -> None:
        self.name = name
        self.folder = folder / name
        self.root = self.folder / "host"
        self.root.mkdir(parents=True)
        self._kubelet: subprocess.Popen[bytes] | None = None
        self._pods: dict[str, kube.Pod] = {}
        self._labels: dict[str, str] = {}
        self._sockets: list[subprocess.Popen[bytes]] = []
        self.rejections: tuple[kube.Rejection, ...] = ()
        self.dra: Reading[kube.Dra] = NOT_COLLECTED
        """What DRA offers here; drivers are seen by the reader."""
        self.has_plugin_pod = True
        self.reader_extra: dict[str, str] = {}
        """Settings of the reader beyond those of the machine, by field name."""
        state = fakenvml.profile(machine, node=name)
        host.make(self.root, state)
        numa = {gpu.uuid: gpu.numa_node for gpu in state.gpus}
        kubeletstate.write_state(self.kubelet_state, kubeletstate.gpus(numa, numa_nodes=numa))

    @property
    def kubelet_state(self) -> pathlib.Path:
        """The fake kubelet's state file."""
        return self.folder / "kubelet.json"

    @property
    def podresources_socket(self) -> pathlib.Path:
        """Where the fake kubelet serves."""
        return self.folder / "kubelet.sock"

    @property
    def checkpoint(self) -> pathlib.Path:
        """The fake kubelet's device-manager checkpoint."""
        return self.folder / "checkpoint"

    def start(self) -> None:
        """Start the kubelet as a process; it serves within a second."""
        command = [
            sys.executable, "-m", "hack.fakenode.kubelet", "--state", str(self.kubelet_state),
            "--socket", str(self.podresources_socket), "--checkpoint", str(self.checkpoint),
        ]  # fmt: skip
        self._kubelet = subprocess.Popen(command, start_new_session=True)

    def stop(self) -> None:
        """End what `start` and `serve` started."""
        for process in self._sockets:
            self.unserve(process)
        if self._kubelet is None:
            return
        self._kubelet.terminate()
        try:
            self._kubelet.wait(5)
        except subprocess.TimeoutExpired:
            self._kubelet.kill()
            self._kubelet.wait()
        self._kubelet = None

    @property
    def is_up(self) -> bool:
        """True while the kubelet runs."""
        return self._kubelet is not None

    def kill(self) -> None:
        """The kubelet dies without a word: its socket stays and nobody answers."""
        if self._kubelet is not None:
            self._kubelet.kill()
            self._kubelet.wait()
            self._kubelet = None

    def agent_flags(self) -> dict[str, str]:
        """Return the agent's flags that point it, and the reader that it spawns, at this machine."""
        reader = " ".join(
            f"--{name.replace('_', '-')} {value}"
            for name, value in {**host.reader_settings(self.root), **self.reader_extra}.items()
        )
        return {
            "--node": self.name,
            "--spawn-reader": "true",
            "--reader-socket": str(self.folder / "reader.sock"),
            "--reader-arguments": reader,
            "--podresources-socket": str(self.podresources_socket),
            "--checkpoint": str(self.checkpoint),
            "--evidence-dir": str(self.folder / "evidence"),
            "--boot-id-path": str(self.root / "proc/sys/kernel/random/boot_id"),
            "--control-socket": str(self.folder / "agent.sock"),
        }

    def environment(self) -> dict[str, str]:
        """Return what an agent's process needs to load the fake driver."""
        return {**os.environ, **host.environment(self.root)}

    # -- driver

    @property
    def driver(self) -> fakenvml.State:
        """The driver's state of now."""
        return host.read_state(self.root)

    def drive(self, change: Callable[[fakenvml.State], fakenvml.State]) -> None:
        """Give the driver a new state."""
        host.apply(self.root, change(self.driver))

    def uuid(self, gpu: int) -> str:
        """Return the UUID of the GPU at an index."""
        return self.driver.gpus[gpu].uuid

    def lose_gpu(self, gpu: int) -> None:
        """The GPU falls off the bus without an event; everybody goes on promising it (faults.md B2)."""
        self.drive(lambda state: state.with_gpu(gpu, lost=True))

    def raise_xid(self, gpu: int, code: int, *, recovery_action: int = 0) -> None:
        """The driver reports an Xid, as an event and in the kernel log, and says what it wants done (field 230)."""
        self.drive(lambda state: state.with_gpu(gpu, recovery_action=recovery_action).with_xid(gpu, code))
        host.log_xid(self.root, gpu, code)

    def reset_gpu(self, gpu: int) -> None:
        """Reset the GPU; fakenvml.InUse while anybody has the driver open."""
        fakenvml.reset(host.state_path(self.root), self.uuid(gpu))

    # -- kubelet and plugin

    def kubelet(self, *edits: kubeletstate.Edit) -> None:
        """Edit what the kubelet answers."""
        kubeletstate.edit(self.kubelet_state, *edits)

    def restart_plugin(self, resources: Mapping[str, Iterable[str]] | None = None) -> None:
        """The plugin comes up anew and promises what it finds: by default every whole GPU."""
        host.stop_plugin(self.root)
        host.start_plugin(self.root)
        wanted = resources if resources is not None else {GPU_RESOURCE: [gpu.uuid for gpu in self.driver.gpus]}
        state = kubeletstate.read_state(self.kubelet_state)
        gone = [kubeletstate.forget(name) for name in state.resources if name not in wanted]
        named = [
            kubeletstate.register(name, tuple(kubeletstate.Device(id=id_) for id_ in ids))
            for name, ids in wanted.items()
        ]
        self.kubelet(*gone, *named)

    def serve(self, role: str, path: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start one of hack/fakenode/sockets.py at a path below the machine's root, and show it to the kubelet."""
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        process = sockets.start(role, str(place), *arguments)
        self._sockets.append(process)
        host.show_sockets(self.root)
        return process

    def unserve(self, process: subprocess.Popen[bytes]) -> None:
        """Kill what `serve` started; its socket's file stays, as it would."""
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
        self._sockets = [other for other in self._sockets if other is not process]
        host.show_sockets(self.root)

    def free_ids(self, resource: str) -> tuple[str, ...]:
        """Return the ids that this kubelet would hand out, in its order."""
        state = kubeletstate.read_state(self.kubelet_state)
        held = {
            id_ for pod in state.pods for container in pod.containers for id_ in container.devices.get(resource, ())
        }
        return tuple(
            device.id for device in state.resources.get(resource, ()) if device.healthy and device.id not in held
        )

    def start_pod(self, namespace: str, name: str, uid: str, resource: str, units: int) -> tuple[str, ...]:
        """A bound pod gets its devices from the kubelet and runs on them; return their ids."""
        ids = self.free_ids(resource)[:units]
        self.kubelet(kubeletstate.allocate(namespace, name, resource, ids, uid=uid))
        gpus = {gpu.uuid: index for index, gpu in enumerate(self.driver.gpus)}
        for id_ in ids:
            if id_ in gpus:
                host.start_gpu_process(self.root, gpus[id_], proctable.pod_cgroup(uid))
        self._pods[uid] = kube.Pod(
            namespace=namespace,
            name=name,
            uid=uid,
            phase=kube.PodPhase.RUNNING,
            requests=codec.freeze({resource: units}),
            containers=(
                kube.Container(
                    name="main",
                    kind=kube.ContainerKind.APP,
                    state=kube.ContainerState.RUNNING,
                    requests=codec.freeze({resource: units}),
                ),
            ),
        )
        return ids

    def pod_uids(self) -> tuple[str, ...]:
        """Return the UIDs of the pods that run here."""
        return tuple(self._pods)

    def end_pod(self, uid: str) -> None:
        """A pod finishes: its processes end, its devices are free and the API server forgets it."""
        pod = self._pods.pop(uid)
        cgroup = proctable.pod_cgroup(uid)
        for path in (self.root / "proc").glob("[0-9]*/cgroup"):
            with contextlib.suppress(FileNotFoundError):
                if path.read_text() == cgroup:
                    host.end_process(self.root, int(path.parent.name))
        self.kubelet(kubeletstate.free(pod.namespace, pod.name))

    # -- the API server's view

    def label(self, **labels: str | None) -> None:
        """Set or remove (None) labels; `/` in a name is written `__`."""
        for name, value in labels.items():
            key = name.replace("__", "/")
            if value is None:
                self._labels.pop(key, None)
            else:
                self._labels[key] = value

    def slice(self) -> kube.NodeSlice:
        """Return the node as the API server has it: counts, and pods by their requests."""
        state = kubeletstate.read_state(self.kubelet_state)
        counts = {name: len(devices) for name, devices in state.resources.items()}
        healthy = {name: sum(device.healthy for device in devices) for name, devices in state.resources.items()}
        plugin = kube.Plugin(
            resource_prefix="nvidia.com",
            pod=f"{PLUGIN_POD}-{self.name}",
            pod_phase="Running",
            restarts=Known(0),
            config=codec.freeze({"migStrategy": "mixed", "sharing": "none"}),
        )
        return kube.NodeSlice(
            node_object=Known(
                kube.NodeObject(
                    ready=Known(value=True),
                    capacity=codec.freeze(counts),
                    allocatable=codec.freeze(healthy),
                    labels=codec.freeze(self._labels),
                )
            ),
            pods=Known(tuple(self._pods.values())),
            rejections=self.rejections,
            plugins=Known((plugin,) if self.has_plugin_pod else ()),
            dra=self.dra,
        )

    def counted_free(self, resource: str = GPU_RESOURCE) -> int:
        """Return what a scheduler that counts believes: allocatable less requests."""
        promised = self.slice().node_object
        assert isinstance(promised, Known)
        requested = sum(pod.requests.get(resource, 0) for pod in self._pods.values())
        return promised.value.allocatable.get(resource, 0) - requested


def with_mig(node: FakeNode, layout: Iterable[tuple[str, int]], *, round_: int = 0) -> dict[str, list[str]]:
    """Cut every GPU of a node alike and return resource name -> instance UUIDs, as the plugin's mixed strategy names them."""
    cuts = tuple(layout)

    def cut(state: fakenvml.State) -> fakenvml.State:
        for index in range(len(state.gpus)):
            state = fakenvml.with_mode(state, index, current=True)
            state = fakenvml.with_instances(state, index, cuts, round_=round_)
        return state

    node.drive(cut)
    resources: dict[str, list[str]] = {}
    for gpu in node.driver.gpus:
        for instance in gpu.mig:
            resources.setdefault(f"nvidia.com/mig-{instance.name.replace('+', '.')}", []).append(instance.uuid)
    return resources
