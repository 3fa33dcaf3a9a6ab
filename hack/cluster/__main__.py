"""`python -m hack.cluster start|stop|status`: a cluster by hand, one for each checkout.

`status` prints a line for each part, then one summary line. `start` leaves a cluster that works alone, and replaces one
that does not, or whose own start was killed. A running cluster does not change: what it was not started with is refused.

Exit status: 0 all parts work, 1 one does not, 2 bad input, 3 there is no cluster or it could not be started.
"""

import argparse
import contextlib
import fcntl
import pathlib
import sys
import time
from collections.abc import Iterator

from hack.cluster import assets, build, extensions, parts, realnode, run, versions

FOLDER = pathlib.Path(".build") / "cluster"
MOST_NODES = 1000


class Busy(Exception):
    """Another start or stop is at work in the same folder."""


@contextlib.contextmanager
def _alone(folder: pathlib.Path) -> Iterator[None]:
    """Keep others out for as long as this process lives; the lock lies beside the folder, which comes and goes."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(f"another start or stop is at work in {folder}") from None
        yield


def _start(arguments: argparse.Namespace) -> int:
    asked = run.Asked(
        line=arguments.line,
        wanted=tuple(sorted(set(arguments.wanted))),
        nodes=arguments.nodes,
        gpus=arguments.gpus,
        real=arguments.real,
    )
    with _alone(arguments.folder):
        running = run.read(arguments.folder)
        if running is not None and running.is_complete and not run.faults(running):
            return _leave(running, asked)
        run.clear(arguments.folder)
        began = time.monotonic()
        cluster = run.start(
            arguments.folder, asked.line, wanted=asked.wanted, nodes=asked.nodes, gpus=asked.gpus, real=asked.real
        )
    print(f"cluster: started in {time.monotonic() - began:.1f} s. export KUBECONFIG={cluster.kubeconfig}")
    return 0


def _leave(running: run.Cluster, asked: run.Asked) -> int:
    if asked not in (running.asked, run.Asked(line=running.line)):
        there = f"there is one with {running.asked.options}, and not {asked.options}"
        print(f"cluster: {there}: `make cluster-stop` first", file=sys.stderr)
        return 2
    print(f"cluster: already there, {running.asked.options}. export KUBECONFIG={running.kubeconfig}")
    return 0


def _stop(arguments: argparse.Namespace) -> int:
    with _alone(arguments.folder):
        cluster = run.read(arguments.folder)
        if cluster is None:
            run.clear(arguments.folder)
            print(f"cluster: none in {arguments.folder}")
            return 0
        run.stop(cluster, keep=arguments.keep)
    print(f"cluster: stopped, {len(cluster.parts)} parts")
    return 0


def _status(arguments: argparse.Namespace) -> int:
    cluster = run.read(arguments.folder)
    if cluster is None:
        print(f"cluster: none in {arguments.folder}; `make cluster` starts one")
        return 3
    down = run.faults(cluster)
    for part in cluster.parts:
        print(f"{part.name:24} {down.get(part.name) or 'ok':24} pid {part.pid:<8} {parts.pss_mib(part):7.1f} MiB PSS")
    summary = f"{len(down)} of {len(cluster.parts)} parts down: {', '.join(down)}" if down else "all parts work"
    unfinished = "" if cluster.is_complete else "not all there yet, its start runs or was killed; "
    version = versions.LINES[cluster.line].kubernetes
    print(f"cluster: {unfinished}{summary}; Kubernetes {version}, KUBECONFIG={cluster.kubeconfig}")
    return 1 if down or unfinished else 0


def _nodes(text: str) -> int:
    if not text.isdecimal() or int(text) > MOST_NODES:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and {MOST_NODES}")
    return int(text)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m hack.cluster", description="One control plane on loopback.")
    parser.add_argument("--folder", type=pathlib.Path, default=FOLDER)
    commands = parser.add_subparsers(required=True)
    starting = commands.add_parser("start", help=f"build what is missing into {assets.cache()}, and start")
    starting.add_argument("--line", choices=sorted(versions.LINES), default=versions.line_name())
    starting.add_argument(
        "--with", dest="wanted", action="append", default=[], choices=sorted(extensions.EXTENSIONS), help="repeatable"
    )
    starting.add_argument("--nodes", type=_nodes, default=0, help=f"fake nodes, 0 to {MOST_NODES}")
    starting.add_argument("--gpus", type=int, default=run.GPUS, help="GPUs of each fake node")
    starting.add_argument("--real", action="store_true", help="one node with a kubelet and containerd; needs root")
    starting.set_defaults(run=_start)
    stopping = commands.add_parser("stop", help="end what start started")
    stopping.add_argument("--keep", action="store_true", help="keep folder and logs")
    stopping.set_defaults(run=_stop)
    commands.add_parser("status", help="say what works").set_defaults(run=_status)
    arguments = parser.parse_args()
    try:
        status: int = arguments.run(arguments)
    except (Busy, run.NotStarted, build.Failed, realnode.Refused) as failed:
        print(f"cluster: {failed}", file=sys.stderr)
        return 3
    return status


if __name__ == "__main__":
    sys.exit(main())
