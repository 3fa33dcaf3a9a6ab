"""`make demo`: tell the story; `--json` prints one JSON object as the last line; `--hold` keeps the nodes for a person.

Exit status: 0 every step was as expected, 1 one was not, 2 the demo could not run; with --hold 0 unless a program failed. It ends by itself; Ctrl-C ends it too,
and nothing stays behind.
"""

import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from rich.console import Console
from rich.markup import escape

from hack.demo import clusterdemo, hold, imagestory, story
from hack.demo.scene import Scene, Step
from hack.fakenode.fleet import Fleet, NotStarted
from hack.fakenode.node import FakeNode, with_mig
from muster import client

SCALE = 0.05
"""Fault durations run 20 times as fast: 60 s of the timing table last 3 s."""
LONGEST_SECONDS = 85.0
LONGEST_SOCKET_BYTES = 107
"""Of a unix socket's path: sun_path in unix(7), less its NUL."""
INTERRUPTED = "interrupted"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description="Tell the story of a gang and its GPUs.")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--hold", action="store_true", help="no story: keep the nodes, to be broken and asked by hand")
    parser.add_argument(
        "--cluster", action="store_true", help="the gangs' story on a real control plane, built if missing"
    )
    parser.add_argument(
        "--images", action="store_true", help="an image is warmed while its gang waits; needs containerd and a registry"
    )
    parser.add_argument("--keep", type=pathlib.Path, help="keep the programs' logs in this folder")
    arguments = parser.parse_args()
    if problem := _contradiction(arguments):
        parser.error(problem)
    console = Console(stderr=arguments.json or arguments.images, highlight=False, soft_wrap=True)
    if arguments.images:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        return imagestory.play(lambda text: console.print(escape(text)))
    began = time.monotonic()
    steps: list[Step] = []
    with tempfile.TemporaryDirectory(prefix="muster-", ignore_cleanup_errors=True) as scratch:
        folder = arguments.keep.absolute() if arguments.keep else pathlib.Path(scratch)
        if unusable := _unusable(folder):
            parser.error(f"--keep: {unusable}")
        if arguments.cluster:
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            return clusterdemo.play(folder, console)
        console.print(
            "[bold]Muster[/bold]: one admitter, four agents, each with its own reader, fake driver and fake kubelet."
        )
        console.print(
            f"Hardware is fake, the programs are the real ones. Fault durations run {1 / SCALE:g} times as fast.\n"
        )
        if arguments.hold:
            problem = _problem(_until_a_signal(_hold(folder, console)))
        else:
            problem = _problem(_until_a_signal(_play(folder, console, steps), LONGEST_SECONDS))
    if problem and not (arguments.hold and problem == INTERRUPTED):
        console.print(f"[red]{escape(problem)}[/red]")
    if arguments.hold:
        console.print("Everything that was started has ended.")
        return 2 if problem not in ("", INTERRUPTED) else 0
    _sum_up(console, steps, time.monotonic() - began)
    ok = not problem and all(step.ok for step in steps)
    if arguments.json:
        print(json.dumps(_as_json(steps, ok=ok, problem=problem, seconds=time.monotonic() - began)), flush=True)
    return 0 if ok else 2 if problem else 1


def _contradiction(arguments: argparse.Namespace) -> str:
    """Return what does not go together, empty if all does."""
    if arguments.hold and arguments.json:
        return "--hold has no steps to print with --json"
    if arguments.hold and arguments.cluster:
        return "--hold and --cluster do not go together"
    if arguments.images and (arguments.hold or arguments.cluster or arguments.keep):
        return "--images goes with none of --hold, --cluster and --keep"
    return ""


def _unusable(folder: pathlib.Path) -> str:
    """Make the folder; return why it cannot hold the fleet, empty if it can."""
    longest = folder / "gpu-a" / "kubelet.sock"
    if len(os.fsencode(longest)) > LONGEST_SOCKET_BYTES:
        return f"{folder}: too long a path for the sockets in it"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if next(folder.iterdir(), None) is not None:
            return f"{folder}: is not empty"
    except OSError as error:
        return f"{folder}: {error.strerror or error}"
    return "" if os.access(folder, os.W_OK) else f"{folder}: is not writable"


def _problem(playing: Coroutine[Any, Any, None]) -> str:
    """Run to the end and return what went wrong, empty if nothing did."""
    try:
        asyncio.run(playing)
    except (KeyboardInterrupt, asyncio.CancelledError):
        return INTERRUPTED
    except TimeoutError:
        return f"not done within {LONGEST_SECONDS:g} s"
    except (NotStarted, client.Refused) as error:
        return str(error)
    return ""


async def _until_a_signal(playing: Coroutine[Any, Any, None], seconds: float | None = None) -> None:
    """Play until the end, a signal or the longest time. A signal cancels the task, so that everything is put away."""
    task = asyncio.ensure_future(playing)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    await asyncio.wait_for(task, seconds)


async def _play(folder: pathlib.Path, console: Console, steps: list[Step]) -> None:
    async with _scene(folder) as scene:
        async for step in story.tell(scene, lambda text: console.print(f"[dim]{_stamp()}[/dim] {escape(text)}")):
            steps.append(step)
            mark = "[green]ok  [/green]" if step.ok else "[red]FAIL[/red]"
            console.print(f"         {mark} [bold]{step.name}[/bold]: {escape(step.seen)}\n")


async def _hold(folder: pathlib.Path, console: Console) -> None:
    """Keep the fleet for a person until Ctrl-C or `quit`."""
    lines: asyncio.Queue[str] = asyncio.Queue()
    async with _scene(folder) as scene:
        await story.roll_call(scene, lambda text: console.print(escape(text)))
        console.print(f"It runs until Ctrl-C. Its files and logs are in {folder}.\n")
        hold.follow_stdin(lines)
        await hold.hold(scene, lambda text: console.print(escape(text)), lines)


@contextlib.asynccontextmanager
async def _scene(folder: pathlib.Path) -> AsyncIterator[Scene]:
    """Start the four nodes of the story, and end them."""
    nodes = [FakeNode(folder, name) for name in story.WHOLE]
    sliced = FakeNode(folder, story.SLICED, "dgx-a100")
    sliced.restart_plugin(with_mig(sliced, story.LAYOUT))
    with Fleet(folder, [*nodes, sliced], scale=SCALE) as fleet:
        await asyncio.to_thread(fleet.start)
        async with client.connect(fleet.address, fleet.client_files) as muster, Scene(fleet, muster).running() as scene:
            yield scene


def _stamp() -> str:
    return time.strftime("%H:%M:%S")


def _sum_up(console: Console, steps: list[Step], seconds: float) -> None:
    for step in steps:
        if not step.ok:
            console.print(f"[red]{step.name}[/red]: expected {escape(step.expected)}; seen {escape(step.seen)}")
    good = sum(step.ok for step in steps)
    console.print(f"{good} of {len(steps)} steps as expected, {seconds:.0f} s.")


def _as_json(steps: list[Step], *, ok: bool, problem: str, seconds: float) -> dict[str, Any]:
    return {
        "demo": "muster",
        "hardware": "fake",
        "time_scale": 1 / SCALE,
        "ok": ok,
        "problem": problem,
        "seconds": round(seconds, 1),
        "steps": [{"name": s.name, "expected": s.expected, "seen": s.seen, "ok": s.ok} for s in steps],
    }


if __name__ == "__main__":
    sys.exit(main())
