"""The measured half of the feed benchmark: a hub alone in its process.

`python -m hack.bench.feedhub FOLDER`: prints its port, then one JSON line of figures for every line on stdin, until that
closes.
"""

import asyncio
import json
import logging
import pathlib
import resource
import sys
import time

import grpc
import structlog

from admitter import collector
from admitter.sources import feeds
from muster import tls


class MonotonicClock:
    """The machine's."""

    def monotonic(self) -> float:
        """Return seconds since some fixed moment."""
        return time.monotonic()


def allow_files() -> None:
    """Raise this process's limit of open files as far as it may."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def pss_mib() -> float:
    """Return this process's proportional set size."""
    rollup = pathlib.Path("/proc/self/smaps_rollup").read_text()
    return next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")) / 1024


def figures(hub: feeds.FeedHub) -> dict[str, object]:
    """Return what the parent asks for."""
    view = hub.view()
    return {
        "at": time.monotonic(),
        "cpu_s": time.process_time(),
        "pss_mib": round(pss_mib(), 1),
        "accepted": dict(hub.accepted),
        "refused": {reason.value: count for reason, count in hub.refused.items()},
        "nodes": len(view.nodes),
        "stale": sum(view.is_stale(node) for node in view.nodes),
        "connected": len(hub.connected),
        "stalled_s": round(hub.stalled_seconds, 3),
    }


async def serve(folder: pathlib.Path) -> None:
    hub = feeds.FeedHub(clock=MonotonicClock(), admitter="bench", term=1)
    server = grpc.aio.server(options=feeds.server_options(3600.0))
    hub.add_to(server)
    files = tls.Files(ca=folder / "ca.pem", certificate=folder / "admitter.pem", key=folder / "admitter.key")
    port = server.add_secure_port("127.0.0.1:0", tls.server_credentials(files))
    await server.start()
    collector.relax()
    ticker = asyncio.create_task(hub.run())
    print(json.dumps({"port": port}), flush=True)
    stdin = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
    while await stdin.readline():
        print(json.dumps(figures(hub)), flush=True)
    ticker.cancel()
    await server.stop(None)


if __name__ == "__main__":
    # Stdout is the parent's.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    allow_files()
    asyncio.run(serve(pathlib.Path(sys.argv[1])))
