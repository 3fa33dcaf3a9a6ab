"""Run the reader: wire its parts, wait for a reason to end, leave the driver closed.

Exit codes: 0 asked to end (signal, Exit call, or parent gone); 10 the driver changed; 11 a call hung in the driver when
the session had to be closed; 12 its socket was taken away. After 10, 11 and 12 whoever supervises the reader starts a new one.

Why `os._exit` is not needed: worker threads are daemons, so one that hangs in the driver does not keep the process.
"""

import asyncio
import datetime
import functools
import logging
import os
import pathlib
import signal
import sys
import time
from collections.abc import Callable

from agent import unixserver
from agent.reader import config, jsonlog, kernel_follow, kernel_log, observer, processes, serve, session, watchers
from muster import clock
from muster.model.reading import Known, Unknown

_log = logging.getLogger("muster.reader")

EXIT_LOST = 12
_LOST_SECONDS = 5.0
"""Between two looks at its own socket."""


def run(settings: config.ReaderConfig) -> int:
    """Serve until there is a reason to end, and return the exit code."""
    jsonlog.configure(logging.INFO)
    code, reason = asyncio.run(_serve(settings))
    _log.info("reader ends: %s (exit code %d)", reason, code)
    return code


async def _serve(settings: config.ReaderConfig) -> tuple[int, str]:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[int, str]] = loop.create_future()

    def end(code: int, reason: str) -> None:
        if not ended.done():
            ended.set_result((code, reason))

    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, end, 0, f"signal {name.name}")
    if settings.exit_with_parent:
        _end_with_parent(loop, lambda: end(0, "the parent is gone"))

    now = clock.SystemClock()
    streams = watchers.Watchers()
    happened = observer.Observer(now, streams)
    nvml_session = session.Session(
        settings,
        generation=time.monotonic_ns() // 1_000_000,  # Rises from one reader to the next within a boot.
        on_event=happened.on_nvml_event,
        on_state=happened.on_session,
        end=end,
    )
    happened.identities = nvml_session.identities
    log = kernel_log.KernelLog(_booted_at(settings, now), happened.on_kernel_record)
    follower = kernel_follow.Follower(settings.kmsg_path, log)
    service = serve.ReaderService(
        settings,
        nvml_session=nvml_session,
        log=log,
        follower=follower,
        happened=happened,
        streams=streams,
        end=end,
    )
    following = [loop.create_task(follower.run()), loop.create_task(service.sockets.run())]
    async with serve.serving(service, settings.socket) as own:
        following.append(loop.create_task(_end_when_lost(settings.socket, own, functools.partial(end, EXIT_LOST))))
        _log.info("reader serves %s", settings.socket)
        outcome = await ended
        streams.end()
        for task in following:
            task.cancel()
        left = await nvml_session.retire(outcome[1])
        if left:
            _log.warning("reader leaves open: %s", ", ".join(left))
        return outcome


async def _end_when_lost(path: pathlib.Path, own: unixserver.File, end: Callable[[str], None]) -> None:
    """End when nobody can reach this reader any more: whoever starts readers starts one that can be reached."""
    while True:
        await asyncio.sleep(_LOST_SECONDS)
        if await asyncio.to_thread(unixserver.is_lost, path, own):
            break
    end(f"nobody is to be reached at {path} any more")


def _end_with_parent(loop: asyncio.AbstractEventLoop, end: Callable[[], None]) -> None:
    """End when standard input does: the parent holds its other end, and the kernel closes it however the parent dies."""
    descriptor = sys.stdin.fileno()

    def look() -> None:
        if not os.read(descriptor, 1024):
            loop.remove_reader(descriptor)
            end()

    loop.add_reader(descriptor, look)


def _booted_at(settings: config.ReaderConfig, now: clock.Clock) -> datetime.datetime:
    """Return when the kernel log's clock was zero."""
    match processes.read_boot(settings.proc_root):
        case Known(boot):
            return boot.at
        case Unknown():
            return now.utc() - datetime.timedelta(seconds=now.monotonic())
