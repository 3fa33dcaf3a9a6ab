"""The faults of the chaos test: how each comes, how it goes, on one fake node of a fleet.

Invariant: `mend` undoes what `break_` did and nothing else, whatever else is broken meanwhile. What is true while faults
are in force is read from the fakes by the oracle (test_chaos.py), not told here.
"""

import contextlib
import dataclasses
import os
import shutil
import signal
from collections.abc import Callable

import psutil

from hack import fakenvml
from hack.fakenode import host, kubeletstate
from hack.fakenode.node import GPU_RESOURCE

HELD, FOREIGN, LOST, HUNG, SICK, CUT = 0, 1, 2, 3, 4, 5
"""Each GPU suffers one kind of fault only, so that mending one does not mend another."""
GOOD_CHECKPOINT = b'{"Data":{"PodDeviceEntries":[],"RegisteredDevices":{}},"Checksum":1}'
BAD_CHECKPOINTS = (b"\xff\xfe\x00", GOOD_CHECKPOINT[:31], b"[1,2]", b'{"Data":7}', b"")
POD = "0b5e7a10-0000-4000-8000-000000000001"


class World:
    """One fleet with one node, and what a chaos test may do to it."""

    def __init__(self, fleet, node, random):
        self.fleet, self.node, self.random = fleet, node, random
        self.checkpoint = fleet.folder / "checkpoint-of-the-agent"
        self.checkpoint.write_bytes(GOOD_CHECKPOINT)
        self.foreign_pid = 0
        self.stopped = None
        self.is_loaded = True
        self.clock = tuple((node.root / "proc" / name).read_text() for name in ("stat", "uptime"))
        self._state = None

    @property
    def root(self):
        return self.node.root

    def drive(self, change):
        """Change the driver's state; while it is unloaded or malformed, what it will be afterwards."""
        if self._state is not None:
            self._state = change(self._state)
        else:
            self.node.drive(change)

    @property
    def driver(self):
        return self._state if self._state is not None else self.node.driver

    def take_driver(self, how):
        """Keep the state aside and break the driver as a whole."""
        self._state = self.node.driver
        self.is_loaded = False
        how()

    def give_driver_back(self):
        # A file that was lost meanwhile would have the fake believe in GPUs that came back by themselves.
        state, self._state = self._state, None
        self.is_loaded = True
        host.apply(self.root, state)

    def reader(self):
        """Return the agent's child, or None in the moments without one."""
        with contextlib.suppress(KeyError, psutil.NoSuchProcess):
            return next(iter(psutil.Process(self.fleet.pid(self.node.name)).children()), None)
        return None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    name: str
    group: str
    """Faults of one group touch the same thing: one at a time."""
    break_: Callable[[World], None]
    mend: Callable[[World], None] | None = None
    """None: there is nothing to undo."""

    @property
    def blinds(self):
        """True if the agent may rightly say less than the truth for as long as it lasts."""
        return self.group in ("sick", "driver", "reader", "admitter", "kubelet")


# -- the driver


def _lose(world):
    world.drive(lambda state: state.with_gpu(LOST, lost=True))


def _reset(world):
    world.drive(lambda state: state.with_reset(LOST))


def _hang(world):
    world.drive(lambda state: state.with_fault("*", gpu=HUNG, hang=True))


def _unhang(world):
    # The reader's thread is lost in that call; the next reader has its own (test_agent.py, and run_reader below).
    world.drive(lambda state: state.without_faults(HUNG))
    _kill_reader(world)


def _slow(world):
    world.drive(lambda state: state.with_fault("nvmlDeviceGetPowerUsage", gpu=SICK, slow_ms=300))


def _fast(world):
    world.drive(lambda state: state.without_faults(SICK))


def _segfault(world):
    world.drive(lambda state: state.with_fault("nvmlDeviceGetTemperatureV", gpu=SICK, segfault=True))


def _xid(world):
    world.drive(lambda state: state.with_gpu(SICK, recovery_action=1).with_xid(SICK, 79))


def _xid_cleared(world):
    world.drive(lambda state: state.with_gpu(SICK, recovery_action=0))


def _unload(world):
    if world.is_loaded:
        world.take_driver(lambda: host.unload_driver(world.root))


def _load(world):
    if not world.is_loaded:
        world.give_driver_back()


def _malform(world):
    if world.is_loaded:
        world.take_driver(lambda: host.state_path(world.root).write_text("no state at all\n"))


def _recut(world):
    def cut(state):
        state = fakenvml.with_mode(state, CUT, current=True)
        return fakenvml.with_instances(state, CUT, (("1g.10gb", 0),), round_=world.random.randrange(9))

    world.drive(cut)


def _uncut(world):
    def whole(state):
        return fakenvml.with_mode(fakenvml.with_instances(state, CUT, ()), CUT, current=False)

    world.drive(whole)


# -- processes


def _kill_reader(world):
    reader = world.reader()
    if reader is not None:
        reader.kill()


def _stop_reader(world):
    world.stopped = world.reader()
    if world.stopped is not None:
        world.stopped.send_signal(signal.SIGSTOP)


def _continue_reader(world):
    if world.stopped is not None:
        with contextlib.suppress(psutil.NoSuchProcess):
            world.stopped.send_signal(signal.SIGCONT)
    world.stopped = None


def _kill_agent(world):
    world.fleet.kill(world.node.name)


def _start_agent(world):
    world.fleet.start_agent(world.node.name)


def _kill_admitter(world):
    world.fleet.kill("admitter")


def _start_admitter(world):
    world.fleet.start_admitter()


# -- the kubelet and what the API server has of it


def _kubelet_fault(kind, **what):
    def fault(world):
        word = kubeletstate.Fault(kind=kind, **what)
        both = world.random.choice(({"list_fault": word}, {"allocatable_fault": word}))
        world.node.kubelet(kubeletstate.with_faults(**both))

    return fault


def _kubelet_well(world):
    world.node.kubelet(kubeletstate.with_faults())


def _kubelet_restart(world):
    world.node.kubelet(kubeletstate.restart)
    world.fleet.publish()


def _plugin_down(world):
    world.node.kubelet(kubeletstate.plugin_down(GPU_RESOURCE))
    world.fleet.publish()


def _plugin_up(world):
    world.node.kubelet(kubeletstate.plugin_up(GPU_RESOURCE))
    world.fleet.publish()


def _kubelet_gone(world):
    world.node.stop()


def _kubelet_back(world):
    world.node.start()


def _bad_checkpoint(world):
    world.checkpoint.write_bytes(world.random.choice(BAD_CHECKPOINTS))


def _good_checkpoint(world):
    world.checkpoint.write_bytes(GOOD_CHECKPOINT)


def _pod(world):
    world.node.kubelet(kubeletstate.allocate("ml", "train", GPU_RESOURCE, [world.driver.gpus[HELD].uuid], uid=POD))


def _pod_gone(world):
    world.node.kubelet(kubeletstate.free("ml", "train"))


def _bad_cluster_file(world):
    """Never while the admitter is away: it refuses to start on a bad file, as it should."""
    world.fleet.cluster_file.write_bytes(b'{"nodes": {"gpu-a1": \xff')


def _good_cluster_file(world):
    world.fleet.publish()


# -- the host


def _foreign(world):
    world.foreign_pid = host.start_process(world.root, ("/usr/bin/python3", "train.py"))
    process = fakenvml.Process(pid=world.foreign_pid, used=9 << 30)
    world.drive(lambda state: state.with_process(FOREIGN, process))


def _foreign_gone(world):
    world.drive(lambda state: state.without_process(world.foreign_pid))
    shutil.rmtree(world.root / "proc" / str(world.foreign_pid), ignore_errors=True)


def _kmsg(world):
    with (world.root / "kmsg").open("ab") as log:
        log.write(b"\xff\xfe garbage\n3,x,y;NVRM: Xid\n3,9,99999999999999999999999,-;NVRM: Xid (PCI:0000:zz): -1\n\n")
        log.write(b"3,10,5,-;NVRM: Xid (PCI:0000:1b:00): 4294967296, \x00\xc3\x28\n" + b"x" * 70_000 + b"\n")


def _vanishing(world):
    pid = host.start_process(world.root, ("/usr/bin/python3", "short.py"))
    folder = world.root / "proc" / str(pid)
    for name in world.random.sample(sorted(os.listdir(folder)), 1):
        (folder / name).unlink()
    if world.random.random() < 0.5:
        shutil.rmtree(folder)


def _odd_clock(world):
    texts = ("", "btime x\n", "btime 99999999999999999999\n", "btime 0\n", "cpu\xff\n")
    (world.root / "proc/stat").write_text(world.random.choice(texts), encoding="latin-1")
    (world.root / "proc/uptime").write_text(world.random.choice(("", "nan nan\n", "-5 0\n", "1e400 0\n")))


def _sane_clock(world):
    text, uptime = world.clock
    (world.root / "proc/stat").write_text(text)
    (world.root / "proc/uptime").write_text(uptime)


def _exchange_library(world):
    host.install_library(world.root)


KINDS = kubeletstate.FaultKind
_ROWS = (
    ("gpu lost", "lost", _lose, _reset),
    ("gpu hangs", "hung", _hang, _unhang),
    ("gpu slow", "sick", _slow, _fast),
    ("segfault in the driver", "sick", _segfault, _fast),
    ("xid", "sick", _xid, _xid_cleared),
    ("mig re-cut", "cut", _recut, _uncut),
    ("driver unloaded", "driver", _unload, _load),
    ("driver answers UNKNOWN", "driver", _malform, _load),
    ("library exchanged", "driver", _exchange_library, None),
    ("reader killed", "reader", _kill_reader, None),
    ("reader stopped", "reader", _stop_reader, _continue_reader),
    ("agent killed", "reader", _kill_agent, _start_agent),
    ("admitter killed", "admitter", _kill_admitter, _start_admitter),
    ("kubelet answers garbage", "kubelet", _kubelet_fault(KINDS.GARBAGE), _kubelet_well),
    ("kubelet answers too much", "kubelet", _kubelet_fault(KINDS.TOO_LARGE, size=17 << 20), _kubelet_well),
    ("kubelet has no such method", "kubelet", _kubelet_fault(KINDS.UNIMPLEMENTED), _kubelet_well),
    ("kubelet hangs", "kubelet", _kubelet_fault(KINDS.HANG), _kubelet_well),
    ("kubelet flickers", "kubelet", _kubelet_fault(KINDS.FLICKER), _kubelet_well),
    ("kubelet restarted", "kubelet", _kubelet_restart, _plugin_up),
    ("kubelet gone", "kubelet", _kubelet_gone, _kubelet_back),
    ("plugin down", "kubelet", _plugin_down, _plugin_up),
    ("pod holds a gpu", "pod", _pod, _pod_gone),
    ("checkpoint bad", "checkpoint", _bad_checkpoint, _good_checkpoint),
    ("cluster file bad", "admitter", _bad_cluster_file, _good_cluster_file),
    ("process outside kubernetes", "procfs", _foreign, _foreign_gone),
    ("proc entries vanish", "procfs", _vanishing, None),
    ("clock odd", "procfs", _odd_clock, _sane_clock),
    ("kernel log garbage", "kernel log", _kmsg, None),
)
FAULTS = tuple(Fault(name=name, group=group, break_=break_, mend=mend) for name, group, break_, mend in _ROWS)


def release(world):
    """Let a stopped reader go on, so that it can end with its agent."""
    _continue_reader(world)
