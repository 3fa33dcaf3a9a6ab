"""`python -m hack.cluster start|stop|status`: a cluster by hand, one for each checkout.

`status` prints a line for each part, then one summary line. `start` leaves a cluster that works alone, and replaces one
that does not.

Exit status: 0 all parts work, 1 one does not, 2 bad input, 3 there is no cluster or it could not be started.
"""

import argparse
import pathlib
import sys
import time

from hack.cluster import assets, build, extensions, parts, realnode, run, versions

FOLDER = pathlib.Path(".build") / "cluster"


def _start(arguments: argparse.Namespace) -> int:
    running = run.read(arguments.folder)
    if running is not None and not run.faults(running):
        print(f"cluster: already there, Kubernetes {running.line}. export KUBECONFIG={running.kubeconfig}")
        return 0
    if running is not None:
        run.stop(running)
    began = time.monotonic()
    try:
        cluster = run.start(
            arguments.folder,
            arguments.line,
            wanted=arguments.wanted,
            nodes=arguments.nodes,
            gpus=arguments.gpus,
            real=arguments.real,
        )
    except (run.NotStarted, build.Failed, realnode.Refused) as failed:
        print(f"cluster: {failed}", file=sys.stderr)
        return 3
    print(f"cluster: started in {time.monotonic() - began:.1f} s. export KUBECONFIG={cluster.kubeconfig}")
    return 0


def _stop(arguments: argparse.Namespace) -> int:
    cluster = run.read(arguments.folder)
    if cluster is None:
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
    version = versions.LINES[cluster.line].kubernetes
    print(f"cluster: {summary}; Kubernetes {version}, KUBECONFIG={cluster.kubeconfig}")
    return 1 if down else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m hack.cluster", description="One control plane on loopback.")
    parser.add_argument("--folder", type=pathlib.Path, default=FOLDER)
    commands = parser.add_subparsers(required=True)
    starting = commands.add_parser("start", help=f"build what is missing into {assets.cache()}, and start")
    starting.add_argument("--line", choices=sorted(versions.LINES), default=versions.line_name())
    starting.add_argument(
        "--with", dest="wanted", action="append", default=[], choices=sorted(extensions.EXTENSIONS), help="repeatable"
    )
    starting.add_argument("--nodes", type=int, default=0, help="fake nodes, 0 to 1000")
    starting.add_argument("--gpus", type=int, default=8, help="GPUs of each fake node")
    starting.add_argument("--real", action="store_true", help="one node with a kubelet and containerd; needs root")
    starting.set_defaults(run=_start)
    stopping = commands.add_parser("stop", help="end what start started")
    stopping.add_argument("--keep", action="store_true", help="keep folder and logs")
    stopping.set_defaults(run=_stop)
    commands.add_parser("status", help="say what works").set_defaults(run=_status)
    arguments = parser.parse_args()
    status: int = arguments.run(arguments)
    return status


if __name__ == "__main__":
    sys.exit(main())
