"""`make demo ARGS="--hold"`: the demo's fleet without its story, to be broken and asked by hand until Ctrl-C.

In: a Scene of a running fleet, and a person's lines. Out: what each line did, in one sentence, and what to type in a second
terminal: the environment for `muster`, and the agents' sockets.

Invariant: no line ends the fleet but `quit`. One that does not fit says how it is written.

Why lines, and not programs of their own: the fleet knows its pods and what each plugin promises only in this process.
"""

import asyncio
import dataclasses
import os
import pathlib
import secrets
import sys
from collections.abc import Awaitable, Callable, Sequence

from hack import fakenvml
from hack.demo import story
from hack.demo.scene import GANG, NAMESPACE, PODS, UNITS, Scene
from hack.fakenode.fleet import Fleet
from hack.fakenode.node import FakeNode, with_mig
from muster.model.admission import Leased, Started

Say = Callable[[str], None]

ADMITTER = "admitter"
CHECK_SECONDS = 1.0
"""A program that ends by itself is told within this time."""


class Misused(ValueError):
    """A line that does not fit; the text says why."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One thing to do: its arguments, what it does, and how. `run` returns a sentence."""

    arguments: tuple[str, ...] = ()
    does: str
    run: "Callable[[Scene, Sequence[str]], Awaitable[str]]"


def environment(fleet: Fleet) -> dict[str, str]:
    """Return what `muster` needs to ask this fleet, and where the programs are."""
    return {
        "PATH": f"{pathlib.Path(sys.executable).parent}:$PATH",
        "MUSTER_ADMITTER_ADDRESS": fleet.address,
        "MUSTER_ADMITTER_CA": str(fleet.client_files.ca),
        "MUSTER_ADMITTER_CERTIFICATE": str(fleet.client_files.certificate),
        "MUSTER_ADMITTER_KEY": str(fleet.client_files.key),
        "NODES": str(fleet.folder),
    }


def invitation(fleet: Fleet) -> list[str]:
    """Write the environment to a file and return what to type in a second terminal."""
    path = fleet.folder / "environment"
    path.write_text("".join(f'export {name}="{value}"\n' for name, value in environment(fleet).items()))
    return [
        "In a second terminal:",
        f"  . {path}",
        "  muster status",
        f"  muster why gang/{NAMESPACE}/{GANG}             # after `ask`, here",
        "  muster-agent capture --control-socket $NODES/gpu-a/agent.sock --output gpu-a.jsonl",
        "  muster-agent replay gpu-a.jsonl",
        "  muster-agent release --control-socket $NODES/gpu-c/agent.sock --minutes 1",
        f"  curl -s 127.0.0.1:{fleet.metrics['gpu-a']}/metrics           # {ADMITTER}: {fleet.metrics[ADMITTER]}",
    ]


def usage() -> list[str]:
    """Return one line for each command."""
    rows = [(" ".join((name, *command.arguments)), command.does) for name, command in COMMANDS.items()]
    return ["Here:", *(f"  {written:<20}{does}" for written, does in rows), f"  {'quit':<20}end everything"]


async def hold(scene: Scene, say: Say, lines: "asyncio.Queue[str]") -> None:
    """Do what each line says until `quit`; NotStarted if a program ends by itself."""
    for text in (*invitation(scene.fleet), "", *usage()):
        say(text)
    while True:
        try:
            line = await asyncio.wait_for(lines.get(), CHECK_SECONDS)
        except TimeoutError:
            scene.fleet.check()
            continue
        if line.split() == ["quit"]:
            return
        if line.strip():
            say(await answer(scene, line))


async def answer(scene: Scene, line: str) -> str:
    """Do what one line says and return what came of it."""
    name, *arguments = line.split()
    if name == "help":
        return "\n".join(usage())
    command = COMMANDS.get(name)
    if command is None:
        return f"{name}: is none of {', '.join(COMMANDS)}, help, quit"
    if len(arguments) != len(command.arguments):
        return f"is written: {' '.join((name, *command.arguments))}"
    try:
        return await command.run(scene, arguments)
    except Misused as error:
        return f"{name}: {error}"


def follow_stdin(lines: "asyncio.Queue[str]") -> bool:
    """Put every line of standard input into the queue; False if nothing can be typed there."""
    loop = asyncio.get_running_loop()
    number = sys.stdin.fileno()
    partial = bytearray()

    def read() -> None:
        chunk = os.read(number, 4096)
        if not chunk:
            loop.remove_reader(number)
        *whole, rest = (partial + chunk).split(b"\n")
        partial[:] = rest
        for line in whole:
            lines.put_nowait(line.decode(errors="replace"))

    try:
        loop.add_reader(number, read)
    except PermissionError:
        # epoll does not take files, /dev/null among them.
        return False
    return True


def _runs(scene: Scene, name: str) -> bool:
    try:
        scene.fleet.pid(name)
    except KeyError:
        return False
    return True


def _node(scene: Scene, name: str) -> FakeNode:
    if name not in scene.fleet.nodes:
        raise Misused(f"{name!r} is none of {', '.join(scene.fleet.nodes)}")
    return scene.fleet.nodes[name]


def _gpu(scene: Scene, name: str, gpu: str) -> tuple[FakeNode, int]:
    node = _node(scene, name)
    count = len(node.driver.gpus)
    if not (gpu.isascii() and gpu.isdigit() and int(gpu) < count):
        raise Misused(f"{gpu!r} is no GPU of {name}, 0 to {count - 1}")
    return node, int(gpu)


async def _lose(scene: Scene, arguments: Sequence[str]) -> str:
    node, gpu = _gpu(scene, *arguments)
    await asyncio.to_thread(node.lose_gpu, gpu)
    return f"GPU {gpu} of {node.name} ({node.uuid(gpu)}) is gone; kubelet and plugin go on promising it"


async def _xid(scene: Scene, arguments: Sequence[str]) -> str:
    name, gpu_text, code = arguments
    node, gpu = _gpu(scene, name, gpu_text)
    if not (code.isascii() and code.isdigit() and 0 < int(code) < 1000):
        raise Misused(f"{code!r} is no Xid, 1 to 999")
    await asyncio.to_thread(node.raise_xid, gpu, int(code), recovery_action=story.RESET)
    return f"Xid {code} on GPU {gpu} of {node.name}, and the driver asks for a reset"


async def _hang(scene: Scene, arguments: Sequence[str]) -> str:
    node, gpu = _gpu(scene, *arguments)
    await asyncio.to_thread(node.drive, lambda state: state.with_fault(gpu=gpu, hang=True))
    return f"no call for GPU {gpu} of {node.name} returns any more"


async def _heal(scene: Scene, arguments: Sequence[str]) -> str:
    node, gpu = _gpu(scene, *arguments)
    await asyncio.to_thread(node.drive, lambda state: state.without_faults(gpu=gpu))
    if _runs(scene, node.name):
        await asyncio.to_thread(scene.fleet.kill_reader, node.name)
    return f"{node.name} answers again; the reader that hangs was killed, and its agent starts another"


async def _reset(scene: Scene, arguments: Sequence[str]) -> str:
    node, gpu = _gpu(scene, *arguments)
    try:
        await asyncio.to_thread(node.reset_gpu, gpu)
    except fakenvml.InUse:
        return f"refused: the driver of {node.name} is in use; `muster-agent release` first, or `end` the gang"
    return f"GPU {gpu} of {node.name} was reset"


async def _cut(scene: Scene, arguments: Sequence[str]) -> str:
    (name,) = arguments
    node = _node(scene, name)
    if name != story.SLICED:
        raise Misused(f"only {story.SLICED} is cut into instances")
    await asyncio.to_thread(with_mig, node, story.LAYOUT, round_=secrets.randbits(32))
    return f"{name} is cut anew: as many instances, and every UUID another; `plugin {name}` promises them"


async def _plugin(scene: Scene, arguments: Sequence[str]) -> str:
    (name,) = arguments
    node = _node(scene, name)
    await asyncio.to_thread(node.restart_plugin, _whatever_is_there(node))
    await asyncio.to_thread(scene.fleet.publish)
    return f"the device plugin of {name} has restarted and promises what it found"


async def _kill(scene: Scene, arguments: Sequence[str]) -> str:
    (name,) = arguments
    running = [known for known in (ADMITTER, *scene.fleet.nodes) if _runs(scene, known)]
    if name not in running:
        raise Misused(f"{name!r} is none of the running: {', '.join(running)}")
    await asyncio.to_thread(scene.fleet.kill, name)
    return f"{name} was killed with SIGKILL"


async def _start(scene: Scene, arguments: Sequence[str]) -> str:
    (name,) = arguments
    stopped = [known for known in (ADMITTER, *scene.fleet.nodes) if not _runs(scene, known)]
    if name not in stopped:
        raise Misused(f"{name!r} is none of the stopped: {', '.join(stopped) or 'all run'}")
    if name == ADMITTER:
        scene.fleet.start_admitter()
    else:
        scene.fleet.start_agent(name)
    return f"{name} starts"


async def _ask(scene: Scene, _: Sequence[str]) -> str:
    if scene.stream is not None and not scene.is_over():
        raise Misused(f"{NAMESPACE}/{GANG} is asked for already: {scene.last_state()}")
    await scene.ask()
    await scene.until(lambda: bool(scene.states), story.WAIT)
    return f"{NAMESPACE}/{GANG}: {scene.last_state()}"


async def _run(scene: Scene, _: Sequence[str]) -> str:
    if not scene.states or not isinstance(lease := scene.states[-1], Leased):
        raise Misused(f"there is no lease to run on: {scene.last_state()}")
    await scene.start_pods(lease)
    await scene.until(lambda: isinstance(scene.states[-1], Started), story.WAIT)
    return f"{NAMESPACE}/{GANG}: {scene.last_state()}"


async def _end(scene: Scene, _: Sequence[str]) -> str:
    if scene.stream is None or scene.is_over():
        raise Misused("nothing is asked for")
    return f"{NAMESPACE}/{GANG} ended: {(await scene.end()).reason}"


def _whatever_is_there(node: FakeNode) -> dict[str, list[str]] | None:
    """Return what a node's plugin finds: its instances, or None for every whole GPU."""
    found: dict[str, list[str]] = {}
    for gpu in node.driver.gpus:
        for instance in gpu.mig:
            found.setdefault(f"nvidia.com/mig-{instance.name.replace('+', '.')}", []).append(instance.uuid)
    return found or None


_GPU = ("NODE", "GPU")
COMMANDS: dict[str, Command] = {
    "lose": Command(arguments=_GPU, does="a GPU falls off the bus, and goes on being promised", run=_lose),
    "xid": Command(arguments=(*_GPU, "CODE"), does="the driver reports an Xid, for example 95", run=_xid),
    "hang": Command(arguments=_GPU, does="the driver stops answering for a GPU", run=_hang),
    "heal": Command(arguments=_GPU, does="it answers again, to a new reader", run=_heal),
    "reset": Command(arguments=_GPU, does="reset a GPU; refused while anybody has the driver open", run=_reset),
    "cut": Command(arguments=("NODE",), does=f"cut {story.SLICED} into other instances of the same shape", run=_cut),
    "plugin": Command(arguments=("NODE",), does="restart the device plugin: it promises what is there", run=_plugin),
    "kill": Command(arguments=("NAME",), does=f"SIGKILL the agent of a node, or the {ADMITTER}", run=_kill),
    "start": Command(arguments=("NAME",), does="start what was killed", run=_start),
    "ask": Command(does=f"ask for {NAMESPACE}/{GANG}, {PODS} pods of {UNITS} GPUs", run=_ask),
    "run": Command(does="start its pods where the lease says", run=_run),
    "end": Command(does="end it and its pods", run=_end),
}
