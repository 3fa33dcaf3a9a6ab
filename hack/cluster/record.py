"""`python -m hack.cluster.record FILE`: what a real kubelet says of its devices, state by state, as a capture.

In: a cluster with a real node, started here. Out: JSON Lines (agent/contracts/capture.schema.json), a line for each
state; `notes` says what was done to get there and how long ago.

Invariant: nothing in a line is supposed. The kubelet is read by the agent's own sources, the API server by a plain get,
and a plane that nobody could fill on a machine without a GPU is absent.

Why: most List, GetAllocatableResources and checkpoint columns of faults.md are read from source, not seen. This is
where they are seen.

Not here: how a state is brought about (walks.py), judging (the agent's replay), and the fakes that these lines are
compared with.
"""

import argparse
import datetime
import json
import pathlib
import sys
import tempfile
import time
from typing import Any

import lightkube
from lightkube.resources import core_v1 as core

from agent.model import planes
from hack.cluster import grants, realnode, run, scene, versions, walks
from muster.model import jsonform, kube
from muster.model.reading import Known


def observe(seen: scene.Scene, name: str) -> planes.Observation:
    """Read every plane that there is, now."""
    return planes.Observation(
        node=realnode.NAME,
        taken_at=datetime.datetime.now(datetime.UTC),  # noqa: TID251 -- a capture has dates
        kubelet=Known(seen.kubelet()),
        node_object=Known(_node_object(seen.client)),
        pods=Known(_pods(seen.client)),
        notes=f"{name}; {time.monotonic() - seen.acted:.1f} s after: {seen.action}",
    )


def _node_object(client: lightkube.Client) -> kube.NodeObject:
    status: Any = client.get(core.Node, realnode.NAME).status
    conditions = {each.type: each for each in status.conditions}
    ready = conditions["Ready"]
    return kube.NodeObject(
        ready=Known(ready.status == "True"),
        capacity=_extended(status.capacity),
        allocatable=_extended(status.allocatable),
        conditions=(kube.NodeCondition(type="Ready", status=ready.status, reason=ready.reason),),
    )


def _extended(quantities: dict[str, str] | None) -> dict[str, int]:
    return {name: int(value) for name, value in (quantities or {}).items() if "/" in name}


def _pods(client: lightkube.Client) -> tuple[kube.Pod, ...]:
    found: Any = client.list(core.Pod, namespace=scene.NAMESPACE)
    return tuple(
        kube.Pod(
            namespace=pod.metadata.namespace,
            name=pod.metadata.name,
            uid=pod.metadata.uid,
            phase=kube.PodPhase(pod.status.phase),
            reason=pod.status.reason or "",
            requests=_extended(pod.spec.containers[0].resources.limits),
            containers=tuple(map(_container, pod.status.containerStatuses or ())),
        )
        for pod in found
    )


def _container(status: Any) -> kube.Container:
    """Return a container with the start of its run: the same start means that it was not started again."""
    if status.state.running is None:
        return kube.Container(name=status.name)
    return kube.Container(name=status.name, state=kube.ContainerState.RUNNING, since=status.state.running.startedAt)


def record(output: pathlib.Path, line: str, walk: str) -> None:
    """Start the cluster, walk through the states, write a line for each, and stop it."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = run.start(pathlib.Path(folder) / "cluster", line, real=True)
        client = grants.client(cluster.kubeconfig)
        seen = scene.Scene(cluster=cluster, client=client)
        try:
            with output.open("w") as lines:
                for name in walks.WALKS[walk](seen):
                    observed = observe(seen, name)
                    print(f"{seen.numbers()}: {observed.notes}", file=sys.stderr, flush=True)
                    text = json.dumps(jsonform.to_json(observed), separators=(",", ":"))
                    # Paths as the node itself has them: where this recording ran is nobody's business.
                    lines.write(text.replace(str(seen.node.folder), "") + "\n")
                    lines.flush()
        finally:
            client.close()
            run.stop(seen.cluster)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m hack.cluster.record", description="Record a real kubelet.")
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--walk", choices=walks.WALKS, default="states")
    parser.add_argument("--line", choices=sorted(versions.LINES), default=versions.line_name())
    arguments = parser.parse_args()
    record(arguments.output, arguments.line, arguments.walk)


if __name__ == "__main__":
    main()
