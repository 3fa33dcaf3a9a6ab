"""One fake machine as the soak breaks it: what was done to it, kept so that the oracle can be told.

In: a node of a fleet, dice. Out: edits of driver, kubelet, host and API object that can be undone in any order, and `facts`
for the oracle.

Invariant: whatever is edited here is both on disk, where the agent reads it, and in `facts`. An edit and its undoing may
have others between them, so each undoes its own part and nothing else.

Not here: which edits make a fault (injuries*.py), and what may be said meanwhile (oracle.py).
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import random
import signal
import time
from collections.abc import Callable

import psutil

from hack import fakenvml
from hack.fakenode import host, kubeletstate, proctable
from hack.fakenode.fleet import Fleet
from hack.fakenode.node import GPU_RESOURCE, FakeNode, with_mig
from hack.soak.oracle import Facts, node_of
from muster.model import jsonform, kube
from muster.model.reading import NOT_COLLECTED, Known

MIG_RESOURCE = "nvidia.com/mig-1g.23gb"
MIG_LAYOUT = (("1g.23gb", 0), ("1g.23gb", 1), ("1g.23gb", 2))
RESTLESS_SECONDS = 8.0
"""The longest pause before a reader is started again, 5 s, and its start."""
SliceEdit = Callable[[kube.NodeSlice], kube.NodeSlice]


@dataclasses.dataclass(slots=True)
class Switches:
    """What cannot be read from the fakes' own states."""

    agent: bool = True
    reader: bool = True
    driver_away: int = 0
    is_spec_stale: bool = False
    ceiling: int | None = None
    marker_at: float | None = None
    unsure: int = 0
    restless_until: float = 0.0


class Publisher:
    """The cluster file of all nodes, written when something in it has changed."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._texts: dict[str, str] = {}
        self._is_dirty = False
        self.is_held = False
        """The file is broken on purpose: what is said meanwhile, nobody hears."""
        self.heard: dict[str, kube.NodeSlice] = {}
        self._said: dict[str, kube.NodeSlice] = {}

    def say(self, name: str, content: kube.NodeSlice) -> None:
        """Have the API server say this of a node."""
        if self._said.get(name) != content:
            self._said[name] = content
            self._texts[name] = json.dumps(jsonform.to_json(content))
            self._is_dirty = True

    def write(self, *, anew: bool = False) -> None:
        """Replace the file if there is news."""
        if self.is_held or not (self._is_dirty or anew):
            return
        self._is_dirty = False
        body = ", ".join(f"{json.dumps(name)}: {text}" for name, text in self._texts.items())
        fresh = self._path.with_suffix(".soak")
        fresh.write_text('{"nodes": {' + body + "}}")
        fresh.replace(self._path)
        self.heard = dict(self._said)


class World:
    """One machine."""

    def __init__(
        self, fleet: Fleet, node: FakeNode, dice: random.Random, publisher: Publisher, *, is_elder: bool
    ) -> None:
        self.fleet, self.node, self.dice, self.publisher = fleet, node, dice, publisher
        self.is_elder = is_elder
        """Its agent and reader are never killed, so that what they weigh can be followed for hours."""
        self.switches = Switches()
        self.is_mig = any(gpu.mig for gpu in node.driver.gpus)
        self.resource = MIG_RESOURCE if self.is_mig else GPU_RESOURCE
        self.round = 0
        """Of the MIG instances' UUIDs."""
        self.missing: set[str] = set()
        self.busy: set[int] = set()
        """GPUs that an injury has to itself."""
        self.owners: dict[int, str] = {}
        self.remembered: set[int] = set()
        self.leased: dict[str, int] = {}
        """Gang -> units that it holds here without a pod (leases.py)."""
        self.edits: dict[str, SliceEdit] = {}
        """What the API server says differently, by injury."""
        self.driver = node.driver
        self.kubelet = kubeletstate.read_state(node.kubelet_state)
        self._stopped: psutil.Process | None = None
        self.clock = tuple((self.root / "proc" / name).read_text() for name in ("stat", "uptime"))
        self.booted_at = time.monotonic() - 3600.0

    @property
    def root(self) -> pathlib.Path:
        return self.node.root

    # -- driver

    def drive(self, change: Callable[[fakenvml.State], fakenvml.State], *, host_too: bool = False) -> None:
        """Change the driver's state; while it is away, what it will be afterwards."""
        self.driver = change(self.driver)
        if self.switches.driver_away:
            return
        if not host_too:
            fakenvml.write(self.driver, host.state_path(self.root))
            return
        host.apply(self.root, self.driver)
        for name in self.missing:
            host.remove_device_file(self.root, name)

    def set_gpu(self, gpu: int, **changes: object) -> None:
        """Change facts of one GPU."""
        self.drive(lambda state: state.with_gpu(gpu, **changes))

    def add_fault(self, fault: fakenvml.Fault) -> Callable[[], None]:
        """Make calls fail; return what ends it."""
        self.drive(lambda state: dataclasses.replace(state, faults=(*state.faults, fault)))

        def end() -> None:
            kept = list(self.driver.faults)
            if fault in kept:
                kept.remove(fault)
            self.drive(lambda state: dataclasses.replace(state, faults=tuple(kept)))

        return end

    def log_xid(self, gpu: int, code: int) -> None:
        """Log an Xid; the driver's own state may be away, and the kernel's log never is."""
        address = self.driver.gpus[gpu].pci.rpartition(".")[0]
        host.log(self.root, f"NVRM: Xid (PCI:{address}): {code}, pid='<unknown>', name=<unknown>")

    def reset(self, gpu: int) -> None:
        """Reset a GPU; its instances are made again as they were, its processes are gone."""
        faults, instances = self.driver.faults, self.driver.gpus[gpu].mig
        self.drive(lambda state: dataclasses.replace(state.with_reset(gpu), faults=faults).with_gpu(gpu, mig=instances))

    def take_gpu(self) -> int:
        """Return a GPU that nobody else works on, for an injury to have to itself."""
        gpu = self.dice.choice(self.spare())
        self.busy.add(gpu)
        return gpu

    def spare(self) -> list[int]:
        """Return the GPUs to hurt next; one is always left in peace."""
        return self.spare_all()[:-1]

    def spare_all(self) -> list[int]:
        """Return the GPUs that no injury and no pod uses."""
        pods = self.kubelet.pods
        held = {id_ for pod in pods for item in pod.containers for ids in item.devices.values() for id_ in ids}
        return [
            index
            for index, gpu in enumerate(self.driver.gpus)
            if index not in self.busy and not gpu.processes and not held & {gpu.uuid, *(item.uuid for item in gpu.mig)}
        ]

    def ids_of(self, gpu: int) -> tuple[str, ...]:
        """Return the ids under which a pod can be given the GPU or a part of it."""
        found = self.driver.gpus[gpu]
        return tuple(item.uuid for item in found.mig) if self.is_mig else (found.uuid,)

    # -- kubelet and API server

    def edit_kubelet(self, *edits: kubeletstate.Edit) -> None:
        """Change what the kubelet says, and the Node follows."""
        self.kubelet = kubeletstate.edit(self.node.kubelet_state, *edits)
        self.publish()

    def publish(self) -> None:
        """Say of the node what the API server has now."""
        content = self.node.slice()
        for edit in self.edits.values():
            content = edit(content)
        self.publisher.say(self.node.name, content)

    def edit_slice(self, name: str, edit: SliceEdit | None) -> None:
        """Have the API server say something else; None ends it."""
        if edit is None:
            self.edits.pop(name, None)
        else:
            self.edits[name] = edit
        self.publish()

    # -- processes of the host

    def start_gpu_process(self, gpu: int, cgroup: str, owner: str) -> int:
        """Start a process on a GPU; `owner` is the pod in its cgroup."""
        pid = host.start_process(self.root, ("/usr/bin/python3", "train.py"), cgroup)
        self.owners[pid] = owner
        self.drive(lambda state: state.with_process(gpu, fakenvml.Process(pid=pid, used=9 << 30)))
        return pid

    def end_gpu_process(self, pid: int) -> None:
        """End a process."""
        self.drive(lambda state: state.without_process(pid))
        self.owners.pop(pid, None)
        with contextlib.suppress(FileNotFoundError):
            proctable.remove(self.root, pid)

    # -- programs

    def agent(self) -> psutil.Process | None:
        """Return the agent's process."""
        with contextlib.suppress(KeyError, psutil.NoSuchProcess):
            return psutil.Process(self.fleet.pid(self.node.name))
        return None

    def reader(self) -> psutil.Process | None:
        """Return the agent's child; None in the moments without one."""
        with contextlib.suppress(psutil.NoSuchProcess):
            agent = self.agent()
            return next(iter(agent.children()), None) if agent is not None else None
        return None

    def kill_reader(self) -> None:
        """End the reader without a word."""
        self.unsettle()
        reader = self.reader()
        if reader is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                reader.kill()

    def unsettle(self) -> None:
        """Note that the reader ends or hands over now."""
        self.switches.restless_until = time.monotonic() + RESTLESS_SECONDS

    def stop(self, process: psutil.Process | None) -> None:
        """Let a process stand still."""
        self._stopped = process
        if process is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let a process that stands still go on."""
        process, self._stopped = self._stopped, None
        if process is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)

    def _is_replaced(self) -> bool:
        """True if the process that was to stand still is gone: an agent replaces a reader that hangs, once in a boot."""
        if self._stopped is None:
            return False
        with contextlib.suppress(psutil.NoSuchProcess):
            return self._stopped.status() == psutil.STATUS_ZOMBIE
        return True

    @property
    def evidence(self) -> pathlib.Path:
        """The agent's memory."""
        return self.node.folder / "evidence" / "evidence.json"

    def overwrite(self, path: pathlib.Path, content: bytes) -> None:
        """Replace a file as a whole."""
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        fresh.write_bytes(content)
        fresh.replace(path)

    # -- for the oracle

    def facts(self) -> Facts:
        """Return what was done to the machine, as of now."""
        heard = self.publisher.heard.get(self.node.name, kube.NodeSlice())
        switches = self.switches
        return Facts(
            resource=self.resource,
            driver=self.driver,
            driver_away=bool(switches.driver_away),
            kubelet=self.kubelet,
            is_kubelet_up=self.node.is_up,
            node=node_of(heard),
            pods=heard.pods.value if isinstance(heard.pods, Known) else (),
            is_speaking=switches.agent,
            is_reader_up=switches.reader or self._is_replaced(),
            is_restless=time.monotonic() < switches.restless_until,
            owners=dict(self.owners),
            missing_files=frozenset(self.missing),
            is_spec_stale=switches.is_spec_stale,
            ceiling=switches.ceiling,
            marker_at=switches.marker_at,
            remembered=frozenset(self.remembered),
            unsure=bool(switches.unsure),
            leased=sum(self.leased.values()),
        )


def cut_for_mig(node: FakeNode) -> None:
    """Cut the machine into instances and have its plugin promise them."""
    resources = with_mig(node, MIG_LAYOUT)
    node.restart_plugin(resources)


def gone(content: kube.NodeSlice) -> kube.NodeSlice:
    """The API server has no such Node."""
    return dataclasses.replace(content, node_object=NOT_COLLECTED, pods=NOT_COLLECTED)
