"""`make demo`: tell the story; `--json` prints one JSON object as the last line.

Exit status: 0 every step was as expected, 1 one was not, 2 the demo could not run. It ends by itself; Ctrl-C ends it too,
and nothing stays behind.
"""

import argparse
import asyncio
import json
import pathlib
import signal
import sys
import tempfile
import time
from collections.abc import Coroutine
from typing import Any

from rich.console import Console
from rich.markup import escape

from hack.demo import story
from hack.demo.scene import Scene, Step
from hack.fakenode.fleet import Fleet, NotStarted
from hack.fakenode.node import FakeNode, with_mig
from muster import client

SCALE = 0.05
"""Fault durations run 20 times as fast: 60 s of the timing table last 3 s."""
LONGEST_SECONDS = 85.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description="Tell the story of a gang and its GPUs.")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--keep", type=pathlib.Path, help="keep the programs' logs in this folder")
    arguments = parser.parse_args()
    console = Console(stderr=arguments.json, highlight=False, soft_wrap=True)
    began = time.monotonic()
    steps: list[Step] = []
    problem = ""
    try:
        with tempfile.TemporaryDirectory(prefix="muster-", ignore_cleanup_errors=True) as scratch:
            folder = arguments.keep or pathlib.Path(scratch)
            folder.mkdir(parents=True, exist_ok=True)
            asyncio.run(_bounded(_play(folder, console, steps)))
    except (KeyboardInterrupt, asyncio.CancelledError):
        problem = "interrupted"
    except TimeoutError:
        problem = f"not done within {LONGEST_SECONDS:g} s"
    except (NotStarted, client.Refused) as error:
        problem = str(error)
    if problem:
        console.print(f"[red]{escape(problem)}[/red]")
    _sum_up(console, steps, time.monotonic() - began)
    ok = not problem and all(step.ok for step in steps)
    if arguments.json:
        print(json.dumps(_as_json(steps, ok=ok, problem=problem, seconds=time.monotonic() - began)), flush=True)
    return 0 if ok else 2 if problem else 1


async def _bounded(playing: Coroutine[Any, Any, None]) -> None:
    """Play until the end, a signal or the longest time. A signal cancels the task, so that everything is put away."""
    task = asyncio.ensure_future(playing)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    await asyncio.wait_for(task, LONGEST_SECONDS)


async def _play(folder: pathlib.Path, console: Console, steps: list[Step]) -> None:
    console.print(
        "[bold]Muster[/bold]: one admitter, four agents, each with its own reader, fake driver and fake kubelet."
    )
    console.print(
        f"Hardware is fake, the programs are the real ones. Fault durations run {1 / SCALE:g} times as fast.\n"
    )
    nodes = [FakeNode(folder, name) for name in story.WHOLE]
    sliced = FakeNode(folder, story.SLICED, "dgx-a100")
    sliced.restart_plugin(with_mig(sliced, (("3g.40gb", 0), ("3g.40gb", 4))))
    with Fleet(folder, [*nodes, sliced], scale=SCALE) as fleet:
        await asyncio.to_thread(fleet.start)
        async with client.connect(fleet.address, fleet.client_files) as muster, Scene(fleet, muster).running() as scene:
            async for step in story.tell(scene, lambda text: console.print(f"[dim]{_stamp()}[/dim] {escape(text)}")):
                steps.append(step)
                mark = "[green]ok  [/green]" if step.ok else "[red]FAIL[/red]"
                console.print(f"         {mark} [bold]{step.name}[/bold]: {escape(step.seen)}\n")


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
