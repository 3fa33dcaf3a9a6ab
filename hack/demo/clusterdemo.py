"""Bring up the cluster and the machines of clusterstory.py, tell it, and put everything away.

In: a console, a folder. Out: steps, printed as they come; the waits with and without Muster; one JSON object as the last line.

Invariant: it ends by itself, within LONGEST_SECONDS after the control plane is built, and nothing stays behind. Where the
control plane can be neither found nor built it says so in one line.
"""

import asyncio
import contextlib
import json
import pathlib
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx2
from rich.console import Console
from rich.markup import escape

from hack.cluster import assets, build, run, versions
from hack.demo import clusterstory, town
from hack.demo.clusterstory import Waits
from hack.demo.scene import Scene, Step
from hack.fakenode.fleet import NotStarted
from muster import client

SCALE = 0.05
LONGEST_SECONDS = 240.0
LEADER_TRIES = 60
_ANSWERED = (0, 1)
"""Exit statuses of `muster status` that say something."""


def play(folder: pathlib.Path, console: Console) -> int:
    """Tell the story; return the exit status: 0 as expected, 1 a step was not, 2 it could not run."""
    began, steps, waits = time.monotonic(), list[Step](), Waits()
    problem = _reason_missing() or _problem(folder, console, steps, waits)
    if problem:
        console.print(f"[red]{escape(problem)}[/red]")
    else:
        _sum_up(console, waits)
    seconds = time.monotonic() - began
    ok = not problem and bool(steps) and all(step.ok for step in steps)
    good = sum(step.ok for step in steps)
    console.print(f"{good} of {len(steps)} steps as expected, {seconds:.0f} s.")
    print(json.dumps(_as_json(steps, waits, ok=ok, problem=problem, seconds=seconds)), flush=True)
    return 0 if ok else 2 if problem else 1


def _reason_missing() -> str:
    known = versions.programs(versions.line_name())
    reason = assets.reason_missing([known[name] for name in versions.CONTROL_PLANE])
    return f"no control plane: {reason}" if reason else ""


def _problem(folder: pathlib.Path, console: Console, steps: list[Step], waits: Waits) -> str:
    """Run to the end and return what went wrong, empty if nothing did."""
    try:
        cluster = run.start(folder / "cluster", versions.line_name(), nodes=len(clusterstory.NODES))
    except (run.NotStarted, build.Failed) as error:
        return str(error)
    except KeyboardInterrupt:
        return "interrupted"
    try:
        kubernetes = versions.LINES[cluster.line].kubernetes
        console.print(
            f"Kubernetes {kubernetes}: etcd, API server, controller manager and scheduler run; the nodes are fake.\n"
        )
        with town.machines(folder / "m", clusterstory.NODES, cluster.kubeconfig, scale=SCALE) as machines:
            asyncio.run(asyncio.wait_for(_tell(cluster, machines, console, steps, waits), LONGEST_SECONDS))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return "interrupted"
    except TimeoutError:
        return f"not done within {LONGEST_SECONDS:g} s"
    except (NotStarted, client.Refused, httpx2.HTTPError) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        run.stop(cluster, keep=True)
    return ""


async def _tell(
    cluster: run.Cluster, machines: town.Machines, console: Console, steps: list[Step], waits: Waits
) -> None:
    def say(text: str) -> None:
        console.print(f"[dim]{time.strftime('%H:%M:%S')}[/dim] {escape(text)}")

    async with (
        town.Town(cluster.kubeconfig, machines).running() as there,
        _led(machines),
        client.connect(machines.address, machines.client_files) as muster,
        Scene(machines, muster).running() as scene,
    ):
        async for step in clusterstory.tell(there, scene, say, waits):
            steps.append(step)
            mark = "[green]ok  [/green]" if step.ok else "[red]FAIL[/red]"
            console.print(f"         {mark} [bold]{step.name}[/bold]: {escape(step.seen)}")
            if not step.ok:
                console.print(f"              expected: {escape(step.expected)}")
            console.print()


@contextlib.asynccontextmanager
async def _led(machines: town.Machines) -> AsyncIterator[None]:
    """Begin the block once an admitter leads: before that it refuses questions."""
    for _ in range(LEADER_TRIES):
        machines.check()
        asked = await asyncio.to_thread(machines.muster, "status")
        if asked.returncode in _ANSWERED:
            yield
            return
        await asyncio.sleep(1)
    raise NotStarted(f"nobody leads: {asked.stderr.strip()}")


def _sum_up(console: Console, waits: Waits) -> None:
    def said(found: dict[str, float | None]) -> str:
        return ", ".join(f"{gang} {'never' if wait is None else f'{wait:.1f} s'}" for gang, wait in found.items())

    watched = clusterstory.WATCHED_SECONDS
    console.print(f"Wait until a gang ran, kube-scheduler alone (watched for {watched:g} s): {said(waits.plain)}")
    console.print(f"Wait until a gang ran, with Muster: {said(waits.muster)}")


def _as_json(steps: list[Step], waits: Waits, *, ok: bool, problem: str, seconds: float) -> dict[str, Any]:
    return {
        "demo": "cluster",
        "hardware": "fake",
        "time_scale": 1 / SCALE,
        "ok": ok,
        "problem": problem,
        "seconds": round(seconds, 1),
        "wait_s": {"kube-scheduler": _rounded(waits.plain), "muster": _rounded(waits.muster)},
        "rejections": waits.rejections,
        "steps": [{"name": s.name, "expected": s.expected, "seen": s.seen, "ok": s.ok} for s in steps],
    }


def _rounded(waits: dict[str, float | None]) -> dict[str, float | None]:
    return {gang: None if wait is None else round(wait, 1) for gang, wait in waits.items()}
