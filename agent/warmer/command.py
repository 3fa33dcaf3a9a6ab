"""Run the warmer: check everything, wire its parts, wait for a reason to end.

In: WarmerConfig. Out: an exit status: 0 after a signal, 1 if a part ended by itself. What is wrong with the list, the
snapshotter or the socket is found before anything is pulled (InvalidSettings).
"""

import asyncio
import json
import logging
import os
import pathlib
import platform as machine
import random
import signal
import sys
from collections.abc import Callable

from agent.core import warmlist
from agent.model.warm import Limits, Platform
from agent.warmer import abilities, engine, estate, pull, serve
from agent.warmer.client import CallFailed, Client
from agent.warmer.config import WarmerConfig
from agent.warmer.credentials import CredentialProvider
from agent.warmer.fetch import Throttle
from agent.warmer.history import History
from agent.warmer.journal import Journal
from agent.warmer.lazy import Lazy
from agent.warmer.parking import Parking
from agent.warmer.questions import Questions
from agent.warmer.registry import Registry
from agent.warmer.resolve import Resolver
from agent.warmer.survey import Survey
from muster import settings
from muster.clock import SystemClock

_log = logging.getLogger("muster.warmer")

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_GIB = 1024**3


def run(config: WarmerConfig) -> int:
    """Serve until there is a reason to end, and return the exit status."""
    wanted = load_list(config)
    return asyncio.run(_run(config, wanted))


def load_list(config: WarmerConfig) -> warmlist.WarmList:
    """Return the operator's list, or raise InvalidSettings with everything that is wrong with it."""
    if config.list is None:
        return warmlist.WarmList()
    try:
        return warmlist.parse(json.loads(config.list.read_text()))
    except warmlist.BadList as error:
        raise settings.InvalidSettings(f"--list: {config.list}: {problem}" for problem in error.problems) from error
    except (OSError, ValueError, RecursionError) as error:
        raise settings.InvalidSettings([f"--list: {config.list}: {error}"]) from error


def limits_of(config: WarmerConfig, wanted: warmlist.WarmList) -> Limits:
    """Return what the warmer may take."""
    return Limits(
        budget_bytes=wanted.budget_bytes,
        hint_budget_bytes=round(config.hint_budget_gib * _GIB) if config.hint_registries else 0,
        habit_budget_bytes=round(config.history_budget_gib * _GIB),
        disk_share=config.disk_share,
        lease_seconds=config.lease_hours * 3600,
        pin_seconds=config.pin_hours * 3600,
    )


def platform_of(config: WarmerConfig) -> Platform:
    """Return the node's platform."""
    if not config.platform:
        return Platform(os="linux", architecture=_ARCHITECTURES.get(machine.machine(), machine.machine()))
    system, architecture, *variant = config.platform.split("/")
    return Platform(os=system, architecture=architecture, variant="".join(variant))


def wired(config: WarmerConfig, wanted: warmlist.WarmList, runtime: Client) -> engine.Engine:
    """Return the engine with all its parts."""
    clock, platform = SystemClock(), platform_of(config)
    rate = config.lazy_mib_per_second * 1024 * 1024
    lazy = Lazy(runtime, config.snapshotter, Throttle(rate) if rate else None, clock.monotonic)
    survey = Survey(runtime, platform, config.snapshotter, lazy)
    registry = Registry(config.registry_hosts_dir, timeout_seconds=config.stall_seconds)
    provider = CredentialProvider(config.provider_argv, config.credential_images)
    known = estate.Estate(config, survey, platform, monotonic=clock.monotonic, jitter=random.random)
    known.listed = wanted.wanted
    return engine.Engine(
        config,
        runtime=runtime,
        resolver=Resolver(registry, provider, survey, platform),
        questions=Questions(config.registry_hosts_dir, provider, survey, platform, known, clock),
        ways=pull.Ways(
            runtime=runtime,
            registry=registry,
            survey=survey,
            lazy=lazy,
            throttle=Throttle(config.bytes_per_second),
            parking=Parking(),
            snapshotter=config.snapshotter,
            platform=platform,
            hosts_folder=str(config.registry_hosts_dir) if config.registry_hosts_dir.is_dir() else "",
            stall_seconds=config.stall_seconds,
            is_capped=config.bandwidth_mib_per_second is not None,
        ),
        known=known,
        platform=platform,
        limits=limits_of(config, wanted),
        journal=Journal(config.state_file, _boot_id(config.boot_id_path)),
        history=History(config.history_file),
        clock=clock,
    )


async def _run(config: WarmerConfig, wanted: warmlist.WarmList) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if config.exit_with_parent:
        _end_with_parent(loop, stop.set)
    runtime = Client(config.containerd_socket, config.owner)
    try:
        await _check_snapshotter(config, runtime)
        working = wired(config, wanted, runtime)
        async with serve.serving(serve.WarmerService(config, working), config.socket):
            _log.info("warmer serves %s, %d images listed", config.socket, len(wanted.wanted))
            task, stopping = asyncio.create_task(working.run()), asyncio.create_task(stop.wait())
            done, _ = await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
            for each in (task, stopping):
                each.cancel()
            await asyncio.gather(task, stopping, return_exceptions=True)
            if task in done:
                _log.error("the warmer ends by a fault of its own", exc_info=task.exception())
            return 1 if task in done else 0
    except OSError as error:
        raise settings.InvalidSettings([f"--socket: {config.socket}: {error.strerror or error}"]) from error
    finally:
        await runtime.close()


async def _check_snapshotter(config: WarmerConfig, runtime: Client) -> None:
    """Refuse a snapshotter that this containerd does not have; a containerd that is away is waited for later."""
    try:
        found = await abilities.read(runtime)
    except CallFailed as error:
        _log.warning("containerd does not answer yet: %s", error.detail[:200])
        return
    if config.snapshotter not in found.snapshotters:
        names = ", ".join(sorted(found.snapshotters))
        raise settings.InvalidSettings([f"--snapshotter: containerd has no {config.snapshotter!r}, only {names}"])
    if found.handlers.get("", config.snapshotter) != config.snapshotter:
        _log.warning("pods without a RuntimeClass use %s, not %s", found.handlers[""], config.snapshotter)


def _end_with_parent(loop: asyncio.AbstractEventLoop, end: Callable[[], None]) -> None:
    """End when standard input does: the kernel closes it however the parent dies."""
    descriptor = sys.stdin.fileno()

    def look() -> None:
        if not os.read(descriptor, 1024):
            loop.remove_reader(descriptor)
            end()

    loop.add_reader(descriptor, look)


def _boot_id(path: pathlib.Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
