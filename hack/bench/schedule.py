"""`python -m hack.bench.schedule`: how many pods a second plain kube-scheduler places on fake nodes.

The scheduler is halted while the pods are created, so that the figure is the scheduler's and not that of whoever
creates them. By default it allows itself 50 requests a second and a pod takes one, so that is the figure of an untouched
scheduler; `--qps 5000` shows what it could do. Everything, the API server and the fake nodes included, shares this machine's cores. The last line is
JSON; the figure has no budget, it is the mark that gangs are compared with (design.md section 7, bench-release).
"""

import argparse
import asyncio
import json
import os
import pathlib
import re
import sys
import tempfile
import time
from typing import Any

import lightkube
from lightkube.config import kubeconfig
from lightkube.models import core_v1, meta_v1
from lightkube.resources import core_v1 as core

from hack.cluster import fakenodes, parts, pki, run, versions

NAMESPACE = "bench"
AT_ONCE = 24
GIVE_UP_SECONDS = 300.0
_SCHEDULED = re.compile(r'^scheduler_schedule_attempts_total\{[^}]*result="scheduled"[^}]*\} (\S+)$', re.MULTILINE)


def scheduled(metrics: str) -> int:
    """Return how many pods the scheduler says it has placed.

    >>> scheduled('scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"} 12')
    12
    """
    return sum(int(float(value)) for value in _SCHEDULED.findall(metrics))


def measure(nodes: int, gpus: int, pods: int, qps: int) -> dict[str, Any]:
    """Run the benchmark once, on a cluster of its own."""
    extra = {"kube-scheduler": [f"--kube-api-qps={qps}", f"--kube-api-burst={2 * qps}"]}
    with tempfile.TemporaryDirectory() as folder:
        cluster = run.start(pathlib.Path(folder) / "cluster", versions.line_name(), nodes=nodes, gpus=gpus, extra=extra)
        try:
            scheduler = cluster.part("kube-scheduler")
            process = scheduler.process()
            assert process is not None
            before = scheduled(_metrics(cluster, scheduler))
            process.suspend()
            print(f"creating {pods} pods", file=sys.stderr)
            began = time.monotonic()
            asyncio.run(_create(cluster.kubeconfig, pods))
            created_s = time.monotonic() - began
            process.resume()
            placed, placed_s = _watch(cluster, scheduler, before + pods)
            memory = {part.name: parts.pss_mib(part) for part in cluster.parts}
        finally:
            run.stop(cluster)
    return {
        "bench": "schedule",
        "hardware": "fake",
        "kubernetes": versions.LINES[cluster.line].kubernetes,
        "cpus": len(os.sched_getaffinity(0)),
        "nodes": nodes,
        "pods": pods,
        "kube_api_qps": qps,
        "placed": placed - before,
        "placed_s": round(placed_s, 2),
        "pods_per_s": round((placed - before) / placed_s),
        "created_per_s": round(pods / created_s),
        "pss_mib": memory,
    }


async def _create(path: pathlib.Path, pods: int) -> None:
    client = lightkube.AsyncClient(config=kubeconfig.KubeConfig.from_file(path), trust_env=False)
    await client.create(core.Namespace(metadata=meta_v1.ObjectMeta(name=NAMESPACE)))
    # A pod without an account of its own is refused until the controller manager has made the namespace's.
    account = core.ServiceAccount(metadata=meta_v1.ObjectMeta(name="bench", namespace=NAMESPACE))
    await client.create(account)
    resources = core_v1.ResourceRequirements(limits={fakenodes.RESOURCE: "1"})
    container = core_v1.Container(name="main", image="none", resources=resources)
    spec = core_v1.PodSpec(containers=[container], serviceAccountName="bench")
    slots = asyncio.Semaphore(AT_ONCE)

    async def create(index: int) -> None:
        async with slots:
            metadata = meta_v1.ObjectMeta(name=f"pod-{index}", namespace=NAMESPACE)
            await client.create(core.Pod(metadata=metadata, spec=spec))

    await asyncio.gather(*(create(index) for index in range(pods)))
    await client.close()


def _watch(cluster: run.Cluster, scheduler: parts.Part, wanted: int) -> tuple[int, float]:
    """Return how many were placed, and after how many seconds nothing was left to place."""
    began = time.monotonic()
    while True:
        placed, seconds = scheduled(_metrics(cluster, scheduler)), time.monotonic() - began
        if placed >= wanted or seconds > GIVE_UP_SECONDS:
            return placed, seconds
        time.sleep(0.2)


def _metrics(cluster: run.Cluster, part: parts.Part) -> str:
    keys = cluster.folder / "pki"
    admin = pki.Pair(certificate=keys / "user-admin.pem", key=keys / "user-admin.key")
    opener = parts.opener(parts.client_context(keys / "ca.pem", admin))
    with opener.open(part.probe.replace("/readyz", "/metrics"), timeout=30) as answer:
        text: str = answer.read().decode()
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument(
        "--qps", type=int, default=50, help="requests a second the scheduler allows itself; its default"
    )
    arguments = parser.parse_args()
    print(json.dumps(measure(arguments.nodes, arguments.gpus, arguments.pods, arguments.qps)))


if __name__ == "__main__":
    main()
