"""`python -m hack.bench.fleet`: 1,000 fake nodes until all are ready, then a Job of 1,000 pods until it is complete.

The control plane is as it comes: its controllers allow themselves 20 requests a second, its scheduler 50, and they set
the pace of the Job. Everything shares this machine's cores. The last line is JSON; memory is PSS, at rest and at the end.
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import lightkube
from lightkube.models import batch_v1, core_v1, meta_v1
from lightkube.resources import batch_v1 as batch

from hack.cluster import fakekubelet, fakenodes, grants, parts, pki, run, versions

NAMESPACE = "default"
READY_SECONDS = 600.0
JOB_SECONDS = 900.0


def unready(nodes: list[dict[str, Any]]) -> int:
    """Return how many nodes take no pods yet: not ready, or tainted still.

    >>> ready = {"type": "Ready", "status": "True"}
    >>> unready([{"spec": {}, "status": {"conditions": [ready]}}, {"spec": {"taints": [{}]}, "status": {"conditions": [ready]}}])
    1
    """
    return sum(
        bool(node["spec"].get("taints"))
        or not any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"]["conditions"])
        for node in nodes
    )


def measure(nodes: int, pods: int) -> dict[str, Any]:
    """Run the benchmark once, on a cluster of its own."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        cluster = run.start(pathlib.Path(folder) / "cluster", versions.line_name(), nodes=nodes)
        try:
            registered_s = time.monotonic() - began
            left = _until(lambda: unready(_nodes(cluster)), READY_SECONDS)
            ready_s = time.monotonic() - began
            print(f"registered in {registered_s:.0f} s, {nodes - left} ready in {ready_s:.0f} s", file=sys.stderr)
            at_rest = {part.name: parts.pss_mib(part) for part in cluster.parts}
            job = _run_job(cluster, pods)
            left_at_end = unready(_nodes(cluster))
            at_end = {part.name: parts.pss_mib(part) for part in cluster.parts}
        finally:
            run.stop(cluster)
    return {
        "bench": "fleet",
        "hardware": "fake",
        "kubernetes": versions.LINES[cluster.line].kubernetes,
        "cpus": len(os.sched_getaffinity(0)),
        "load_1m": round(os.getloadavg()[0], 1),
        "nodes": nodes,
        "registered_s": round(registered_s, 1),
        "ready": nodes - left,
        "all_ready_s": round(ready_s, 1),
        **job,
        "ready_at_end": nodes - left_at_end,
        "pss_mib_at_rest": at_rest,
        "pss_mib_at_end": at_end,
    }


def _until(missing: Callable[[], int], seconds: float) -> int:
    """Wait until nothing is missing, or the time is up; return what is."""
    deadline = time.monotonic() + seconds
    while (left := missing()) and time.monotonic() < deadline:
        time.sleep(1)
    return left


def _nodes(cluster: run.Cluster) -> list[dict[str, Any]]:
    keys = cluster.folder / "pki"
    admin = pki.Pair(certificate=keys / "user-admin.pem", key=keys / "user-admin.key")
    url = cluster.part("kube-apiserver").probe.replace("/readyz", "/api/v1/nodes?resourceVersion=0")
    with parts.opener(parts.client_context(keys / "ca.pem", admin)).open(url, timeout=60) as answer:
        found: list[dict[str, Any]] = json.load(answer)["items"]
    return found


def _run_job(cluster: run.Cluster, pods: int) -> dict[str, Any]:
    client = grants.client(cluster.kubeconfig)
    client.create(_job(pods))
    began = time.monotonic()
    left = _until(lambda: pods - _succeeded(client), JOB_SECONDS)
    seconds = time.monotonic() - began
    client.close()
    return {
        "job_pods": pods,
        "job_succeeded": pods - left,
        "job_s": round(seconds, 1),
        "pods_per_s": round((pods - left) / seconds, 1),
    }


def _succeeded(client: lightkube.Client) -> int:
    status: Any = client.get(batch.Job, "fleet", namespace=NAMESPACE).status
    return status.succeeded or 0


def _job(pods: int) -> batch.Job:
    resources = core_v1.ResourceRequirements(limits={fakenodes.RESOURCE: "1"})
    container = core_v1.Container(name="main", image="none", resources=resources)
    template = core_v1.PodTemplateSpec(
        metadata=meta_v1.ObjectMeta(annotations={fakekubelet.RUN_SECONDS: "1"}),
        spec=core_v1.PodSpec(containers=[container], restartPolicy="Never"),
    )
    spec = batch_v1.JobSpec(template=template, completions=pods, parallelism=pods, completionMode="Indexed")
    return batch.Job(metadata=meta_v1.ObjectMeta(name="fleet", namespace=NAMESPACE), spec=spec)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m hack.bench.fleet", description="A fleet of fake nodes and a Job.")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=1000)
    arguments = parser.parse_args()
    measured = measure(arguments.nodes, arguments.pods)
    print(json.dumps(measured))
    return 0 if (measured["ready_at_end"], measured["job_succeeded"]) == (arguments.nodes, arguments.pods) else 1


if __name__ == "__main__":
    sys.exit(main())
