"""Injuries of programs, of the driver as a whole, and of files (faults.md B8, D; issue: bad input).

Invariant: `mend` leaves every program running and every file readable; what a real machine would not undo (a pid, a boot id)
stays new.
"""

import contextlib
import datetime
import json
import re
import shutil
import time
from collections.abc import Callable

from hack import fakenvml
from hack.fakenode import host, kubeletstate
from hack.soak.injuries import Hurt, Injury, Shows, shows, shows_of_node, without
from hack.soak.world import World

_SESSION = frozenset({"session"})
_PROC = frozenset({"procfs"})
_GOOD_CHECKPOINT = b'{"Data":{"PodDeviceEntries":[],"RegisteredDevices":{}},"Checksum":1}'
_BAD_CHECKPOINTS = (b"\xff\xfe\x00", _GOOD_CHECKPOINT[:31], b"[1,2]", b'{"Data":7}', b"")
_KUBELET_WRITES_SECONDS = 0.3
"""The fake kubelet takes a new state within this time, and writes its checkpoint then."""
_SILENT = Shows(is_stale=True, through=frozenset())
_TIME = re.compile(r'"(\d{4}-\d\d-\d\dT[0-9:.]+)Z"')


# -- processes


def _reader_killed(world: World) -> Hurt:
    world.kill_reader()
    return Hurt(mend=lambda: None)


def _reader_stopped(world: World) -> Hurt:
    world.stop(world.reader())
    world.switches.reader = False

    def mend() -> None:
        world.go_on()
        world.switches.reader = True
        world.unsettle()

    return Hurt(mend=mend, shows=without(shows_of_node("NvmlHangGsp", "NvmlUnreadable", "GpuUnreadable"), "reader"))


def _agent_killed(world: World) -> Hurt:
    """The agent dies and is away for a while."""
    world.fleet.kill(world.node.name)
    world.switches.agent = False

    def mend() -> None:
        world.fleet.start_agent(world.node.name)
        world.switches.agent = True
        world.unsettle()

    return Hurt(mend=mend, shows=_SILENT)


def _agent_restarted(world: World) -> Hurt:
    """The agent dies and is back at once, with its memory or with one that was spoiled."""
    world.fleet.kill(world.node.name)
    _spoil(world)
    world.fleet.start_agent(world.node.name)
    world.unsettle()
    return Hurt(mend=lambda: None)


def _spoil(world: World) -> None:
    """Leave the agent's memory as it is, cut it in half, fill it with nonsense, or set the clock back by an hour."""
    with contextlib.suppress(FileNotFoundError):
        content = world.evidence.read_bytes()
        match world.dice.randrange(6):
            case 0:
                world.overwrite(world.evidence, content[: len(content) // 2])
            case 1:
                world.overwrite(world.evidence, b"\xff\xfe{]")
            case 2:
                world.overwrite(world.evidence, _TIME.sub(_an_hour_later, content.decode()).encode())
            case _:
                pass


def _an_hour_later(match: re.Match[str]) -> str:
    moment = datetime.datetime.fromisoformat(f"{match[1]}+00:00") + datetime.timedelta(hours=1)
    return json.dumps(f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z")


def _agent_stopped(world: World) -> Hurt:
    world.stop(world.agent())
    world.switches.agent = False

    def mend() -> None:
        world.go_on()
        world.switches.agent = True

    return Hurt(mend=mend, shows=_SILENT)


def _rebooted(world: World) -> Hurt:
    """A new boot: everything is new, and the plugin has not registered yet (A7, A13)."""
    name = world.node.name
    world.fleet.kill(name)
    world.node.stop()
    host.reboot(world.root)
    world.driver = world.node.driver
    world.owners.clear()
    world.booted_at = time.monotonic()
    world.clock = tuple((world.root / "proc" / file).read_text() for file in ("stat", "uptime"))
    host.start_kubelet(world.root)
    world.edit_kubelet(kubeletstate.restart)
    world.node.start()
    world.fleet.start_agent(name)
    world.unsettle()

    def mend() -> None:
        host.start_plugin(world.root)
        world.edit_kubelet(kubeletstate.plugin_up(world.resource))

    return Hurt(
        mend=mend,
        shows=without(
            shows_of_node(
                "KubeletRestartZeroWindow", "NodeReadyBeforeGpu", "RebootAdmissionRace", "KubeletRestartAllocFlash"
            )
        ),
    )


# -- the driver as a whole


def _away(how: Callable[[World], None], back: Callable[[World], None], *causes: str) -> Callable[[World], Hurt]:
    def inflict(world: World) -> Hurt:
        world.switches.driver_away += 1
        how(world)

        def mend() -> None:
            world.switches.driver_away -= 1
            back(world)
            world.unsettle()

        return Hurt(mend=mend, shows=without(shows_of_node(*causes), "driver"))

    return inflict


def _load(world: World) -> None:
    world.drive(lambda state: state, host_too=True)


def _malform(world: World) -> None:
    host.state_path(world.root).write_text("no state at all\n")


def _mismatch(world: World) -> None:
    """Packages were upgraded and the module was not (D1)."""
    state = world.driver.with_init_error("LIB_RM_VERSION_MISMATCH")
    fakenvml.write(state, host.state_path(world.root))
    host.set_module_version(world.root, "535.999.01")


def _crashing(world: World) -> Hurt:
    """A call that kills whoever makes it: the reader dies again and again."""
    end = world.add_fault(fakenvml.Fault(fn="nvmlDeviceGetTemperatureV", gpu=0, segfault=True))
    world.switches.unsure += 1

    def mend() -> None:
        end()
        world.switches.unsure -= 1
        world.unsettle()

    return Hurt(mend=mend)


def _library(world: World) -> Hurt:
    host.install_library(world.root)
    world.unsettle()
    return Hurt(mend=lambda: None)


# -- files


def _device_file(*names: str) -> Callable[[World], Hurt]:
    def inflict(world: World) -> Hurt:
        name = world.dice.choice(names)
        world.missing.add(name)
        host.remove_device_file(world.root, name)

        def mend() -> None:
            world.missing.discard(name)
            host.add_device_file(world.root, name)

        return Hurt(mend=mend, shows=shows_of_node("DeviceFilesMissing"))

    return inflict


def _checkpoint(world: World) -> Hurt:
    bad = world.dice.choice(_BAD_CHECKPOINTS)
    world.overwrite(world.node.checkpoint, bad)
    time.sleep(_KUBELET_WRITES_SECONDS)
    if world.node.checkpoint.read_bytes() != bad:
        # The kubelet was about to write it for what came before.
        world.overwrite(world.node.checkpoint, bad)

    def mend() -> None:
        world.overwrite(world.node.checkpoint, _GOOD_CHECKPOINT)

    return Hurt(mend=mend, shows=without(Shows(unverified="kubelet.checkpoint"), "promise"))


def _kernel_log(world: World) -> Hurt:
    """Not UTF-8, half a record, nonsense, a line without an end."""
    texts = (
        b"\xff\xfe garbage\n3,x,y;NVRM: Xid\n",
        b"3,9,99999999999999999999999,-;NVRM: Xid (PCI:0000:zz): -1\n\n",
        b"3,10,5,-;NVRM: Xid (PCI:0000:1b:00): 4294967296, \x00\xc3\x28\n",
        b"x" * 70_000 + b"\n",
        b"3,11,5,-;NVRM: Xid (PCI:00",
        b"\n",
    )
    with (world.root / "kmsg").open("ab") as log:
        log.write(world.dice.choice(texts) + b"\n")
    return Hurt(mend=lambda: None)


def _vanishing(world: World) -> Hurt:
    """A process that is gone between two looks at it."""
    pid = host.start_process(world.root, ("/usr/bin/python3", "short.py"))
    folder = world.root / "proc" / str(pid)
    (folder / world.dice.choice(("stat", "cgroup", "comm", "cmdline"))).unlink()
    return Hurt(mend=lambda: shutil.rmtree(folder, ignore_errors=True))


def _odd_clock(world: World) -> Hurt:
    """The boot's time is nonsense, or the clock was set: forward, or back."""
    boot = int(re.search(r"btime (\d+)", world.clock[0])[1])  # type: ignore[index]
    texts = (
        "",
        "btime x\n",
        "btime 99999999999999999999\n",
        f"btime {boot + 7200}\n",
        f"btime {boot - 7200}\n",
        "cpu\xff\n",
    )
    (world.root / "proc/stat").write_text(world.dice.choice(texts), encoding="latin-1")
    (world.root / "proc/uptime").write_text(world.dice.choice(("", "nan nan\n", "-5 0\n", "1e400 0\n")))

    def mend() -> None:
        for name, text in zip(("stat", "uptime"), world.clock, strict=True):
            (world.root / "proc" / name).write_text(text)

    return Hurt(mend=mend)


def _is_mortal(world: World) -> bool:
    return not world.is_elder


def _is_mortal_and_whole(world: World) -> bool:
    return not world.is_elder and not world.is_mig


def _gpu_files(world: World) -> Hurt:
    gpu = world.take_gpu()
    hurt = _device_file(f"nvidia{world.driver.gpus[gpu].minor}")(world)

    def mend() -> None:
        hurt.mend()
        world.busy.discard(gpu)

    # Where nothing is promised, nobody can be given the GPU.
    return Hurt(mend=mend, shows=shows("DeviceFilesMissing"))


INJURIES = (
    Injury(name="reader killed", group="X", inflict=_reader_killed, touches=_SESSION, fits=_is_mortal),
    Injury(name="reader stopped", group="X", inflict=_reader_stopped, touches=_SESSION, fits=_is_mortal),
    Injury(name="agent killed", group="X", inflict=_agent_killed, touches=_SESSION, fits=_is_mortal),
    Injury(name="agent restarted", group="X", inflict=_agent_restarted, touches=_SESSION, fits=_is_mortal, weight=2),
    Injury(name="agent stopped", group="X", inflict=_agent_stopped, touches=_SESSION, fits=_is_mortal),
    Injury(name="node rebooted", group="X", inflict=_rebooted, fits=_is_mortal_and_whole, is_alone=True),
    Injury(
        name="driver unloaded",
        group="D",
        inflict=_away(lambda world: host.unload_driver(world.root), _load, "DriverNotLoaded", "NodeReadyBeforeGpu"),
        touches=_SESSION | {"files"},
    ),
    Injury(
        name="driver answers nonsense",
        group="D",
        inflict=_away(_malform, _load, "NvmlUnreadable", "GpuUnreadable"),
        touches=_SESSION | {"files"},
        fits=_is_mortal,
    ),
    Injury(
        name="library and module differ",
        group="D",
        inflict=_away(_mismatch, _load, "LibraryDriverMismatch"),
        touches=_SESSION | {"files"},
        fits=_is_mortal,
    ),
    Injury(name="driver kills its callers", group="X", inflict=_crashing, touches=_SESSION, fits=_is_mortal, weight=0.5),
    Injury(name="library exchanged", group="X", inflict=_library, touches=_SESSION, fits=_is_mortal, weight=0.5),
    Injury(
        name="control file missing",
        group="D",
        inflict=_device_file("nvidiactl", "nvidia-uvm"),
        touches=frozenset({"files"}),
    ),
    Injury(
        name="gpu file missing",
        group="D",
        inflict=_gpu_files,
        touches=frozenset({"files"}),
        fits=lambda world: bool(world.spare()),
    ),
    Injury(name="checkpoint spoiled", group="X", inflict=_checkpoint, touches=frozenset({"kubelet"})),
    Injury(name="kernel log spoiled", group="X", inflict=_kernel_log),
    Injury(name="process vanishes", group="X", inflict=_vanishing, touches=_PROC),
    Injury(name="clock set", group="X", inflict=_odd_clock, touches=_PROC, weight=2),
)  # fmt: skip
