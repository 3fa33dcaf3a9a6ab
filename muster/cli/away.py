"""What can be said while the admitter is away: what it last wrote on Nodes and pods, read through the user's own kubectl.

In: `kubectl get -o json`, run with the user's rights and kubeconfig. Out: rows and lines, with the sentence that they are
old. Exit status 1, since an admitter that is away is something wrong; 3 if kubectl has no answer either.

Invariant: nothing here is taken for the admitter's word: an Unknown is not fine, and no number of free units is made up.

Why kubectl and no client: this package knows no Kubernetes client, and whoever has a cluster at hand has kubectl; it is the
one that starts `kubectl muster`.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from muster.cli.connection import Exit
from muster.cli.noanswer import NoAnswer
from muster.model import gangnames, labels
from muster.model.nodeconditions import ConditionType

KUBECTL_SECONDS = 20.0
TARGET = re.compile(r"(?P<kind>gang|pod)/(?P<namespace>[^/]+)/(?P<name>[^/]+)")
"""What `why` is asked about."""
_AWAY = "the admitter is away; this is what it last wrote"

Form = Mapping[str, Any]


def status(arguments: Mapping[str, Any]) -> Exit:
    """Show the conditions and the taint of every Node that has them."""
    nodes = [row for item in _get("nodes") if (row := node_row(item)) is not None]
    if arguments.get("as_json"):
        click.echo(json.dumps({"source": "nodes", "note": _AWAY, "nodes": nodes}, sort_keys=True))
    else:
        click.echo(f"{_AWAY} on {len(nodes)} nodes")
        if nodes:
            Console(width=240, highlight=False).print(nodes_table(nodes))
    return Exit.SOMETHING


def why(arguments: Mapping[str, Any]) -> Exit:
    """Say how a pod, or the pods of a gang, stand: held by their gates, let go, bound, running."""
    match = TARGET.fullmatch(str(arguments.get("target", "")))
    if match is None:
        click.echo(
            f"muster: TARGET: {arguments.get('target')!r} is neither gang/NAMESPACE/NAME nor pod/NAMESPACE/NAME",
            err=True,
        )
        return Exit.BAD_INPUT
    found = _get("pods", "--namespace", match["namespace"])
    if match["kind"] == "pod":
        pods = [pod_row(item) for item in found if item["metadata"]["name"] == match["name"]]
    else:
        pods = [pod_row(item) for item in found if match["name"] in gangnames.of_pod(item)]
    if not pods:
        raise NoAnswer(f"no pod is, or belongs to, {match[0]}")
    if arguments.get("as_json"):
        click.echo(json.dumps({"source": "pods", "note": _AWAY, "pods": pods}, sort_keys=True))
    else:
        click.echo(f"{_AWAY} on {len(pods)} pods")
        for pod in pods:
            lease = f", lease {pod['lease']}" if pod["lease"] else ""
            place = f" on {pod['node']}" if pod["node"] else ""
            gates = f" by {', '.join(pod['gates'])}" if pod["gates"] else ""
            said = f", {pod['said']}" if pod["said"] else ""
            click.echo(f"  {pod['pod']}: {pod['state']}{gates}{place}{lease}{said}")
        if any(labels.GANG.full in pod["gates"] for pod in pods):
            click.echo(
                f"pods held by {labels.GANG.full} start when the admitter is back, or by `muster bypass {match[0]}`"
            )
    return Exit.SOMETHING


def node_row(item: Form) -> dict[str, Any] | None:
    """Return what Muster wrote on a Node; None if it wrote nothing."""
    conditions = {
        each["type"]: {key: str(each.get(key, "")) for key in ("status", "reason", "message", "lastTransitionTime")}
        for each in item.get("status", {}).get("conditions", ())
        if each.get("type") in set(ConditionType)
    }
    taints = [taint for taint in item.get("spec", {}).get("taints", ()) if taint.get("key") == labels.UNTRUSTED.full]
    if not conditions and not taints:
        return None
    untrusted = taints[0].get("value", "") if taints else ""
    return {"node": item["metadata"]["name"], "conditions": conditions, "untrusted": untrusted}


def pod_row(item: Form) -> dict[str, Any]:
    """Return how a pod stands."""
    metadata, spec, status = item["metadata"], item.get("spec", {}), item.get("status", {})
    gates = [gate.get("name", "") for gate in spec.get("schedulingGates", ())]
    conditions = status.get("conditions") or ()
    said = [each.get("message", "") for each in conditions if each.get("type") == labels.PLACED.full]
    return {
        "pod": f"{metadata['namespace']}/{metadata['name']}",
        "state": "held" if gates else status.get("phase", "Unknown"),
        "gates": gates,
        "node": spec.get("nodeName", ""),
        "lease": (metadata.get("annotations") or {}).get(labels.LEASE.full, ""),
        "said": said[0] if said else "",
    }


def nodes_table(nodes: Sequence[Form]) -> Table:
    """Return one row for each condition of each Node."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("NODE", "TAINT", "CONDITION", "STATUS", "REASON", "SINCE", "MESSAGE"):
        table.add_column(column, overflow="fold")
    for row in nodes:
        head = (row["node"], row["untrusted"])
        for name, each in sorted(row["conditions"].items()):
            said = (each["status"], each["reason"], each["lastTransitionTime"], each["message"])
            table.add_row(*head, name, *said)
            head = ("", "")
        if head[0]:
            table.add_row(*head, "", "", "", "", "")
    return table


def _get(*words: str) -> Iterator[Form]:
    """Yield the items of `kubectl get`; NoAnswer if there is none."""
    program = shutil.which("kubectl")
    if program is None:
        raise NoAnswer("kubectl is not in the PATH")
    command = [program, "get", *words, "--output", "json", f"--request-timeout={KUBECTL_SECONDS:g}s"]
    try:
        done = subprocess.run(  # noqa: S603 -- the user's own kubectl, with words of ours
            command, check=False, text=True, capture_output=True, timeout=2 * KUBECTL_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoAnswer(f"kubectl: {error}") from error
    if done.returncode != 0:
        raise NoAnswer((done.stderr.strip().splitlines() or ["kubectl failed"])[-1])
    try:
        yield from json.loads(done.stdout)["items"]
    except (ValueError, KeyError, TypeError) as error:
        raise NoAnswer(f"kubectl answered with something else: {error}") from error
