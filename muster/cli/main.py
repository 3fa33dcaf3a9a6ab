"""muster: what an operator asks the admitter. Also `kubectl muster`, by the name kubectl-muster.

`status` shows nodes, GPUs and gangs; `why` says why a gang waits or a pod does not run; `bypass` lets go what Muster holds.
Exit status as in connection.py.
"""

import functools
import json
import sys

import click
from rich.console import Console

from muster.cli import away, bypass, connection, images, present
from muster.cli.connection import Exit
from muster.client import Client
from muster.model.admission import NodeCapacity

json_option = click.option("--json", "as_json", is_flag=True, help="print one JSON object")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Ask the admitter which GPUs can really serve, and why a gang waits."""


main.add_command(bypass.command, "bypass")


@main.command()
@json_option
@click.option("--gpus", is_flag=True, help="list healthy GPUs too")
@click.option("--images", "with_images", is_flag=True, help="list each node's container images and how warm they are")
@functools.partial(connection.command, instead=away.status)
async def status(
    admitter: Client,
    timeout: float,  # noqa: ASYNC109 -- a setting
    *,
    as_json: bool,
    gpus: bool,
    with_images: bool,
) -> Exit:
    """Show every node and GPU with its verdict, age and what is free, and every gang."""
    nodes: dict[str, NodeCapacity] = {}
    for change in await admitter.list_capacity(timeout):
        nodes |= change.nodes
    answer = await admitter.status(timeout)
    listed = [nodes[name] for name in sorted(nodes)]
    is_fine = all(map(present.is_node_fine, listed)) and all(map(present.is_gang_fine, answer.gangs))
    if as_json:
        content = {
            "admitter": answer.admitter,
            "term": answer.term,
            "version": answer.version,
            "nodes": present.nodes_json(listed),
            "gangs": [present.gang_json(gang) for gang in answer.gangs],
        }
        if answer.HasField("observation"):
            content["observed"] = present.observed_json(answer.observation)
        if with_images:
            content["images"] = {node.node: images.warmth_json(node.warmth) for node in listed}
        click.echo(json.dumps(content, sort_keys=True))
    else:
        console = _console()
        console.print(f"admitter {answer.admitter}, term {answer.term}, view {answer.version}, {len(listed)} nodes")
        for table in (
            present.nodes_table(listed),
            present.gpus_table(listed, everything=gpus),
            present.pods_table(listed),
            present.gangs_table(answer.gangs),
            *((present.observed_table(answer.observation),) if answer.HasField("observation") else ()),
            *((images.stores_table(listed), images.images_table(listed)) if with_images else ()),
        ):
            if table.row_count:
                console.print()
                console.print(table)
    return Exit.FINE if is_fine else Exit.SOMETHING


@main.command()
@click.argument("target", metavar="gang/NAMESPACE/NAME|pod/NAMESPACE/NAME")
@json_option
@functools.partial(connection.command, instead=away.why)
async def why(admitter: Client, timeout: float, *, target: str, as_json: bool) -> Exit:  # noqa: ASYNC109 -- a setting
    """Say why a gang waits or where it is, or why a pod does not run, Muster's or not."""
    match = away.TARGET.fullmatch(target)
    if match is None:
        click.echo(f"muster: TARGET: {target!r} is neither gang/NAMESPACE/NAME nor pod/NAMESPACE/NAME", err=True)
        return Exit.BAD_INPUT
    if match["kind"] == "pod":
        pod = await admitter.why_pod(match["namespace"], match["name"], timeout)
        form, lines, is_fine = present.pod_json(pod), present.pod_lines(pod), not pod.causes
    else:
        gang = await admitter.why(match["namespace"], match["name"], timeout)
        form, lines, is_fine = present.gang_json(gang), present.gang_lines(gang), present.is_gang_fine(gang)
    if as_json:
        click.echo(json.dumps(form, sort_keys=True))
    else:
        for line in lines:
            click.echo(line)
    return Exit.FINE if is_fine else Exit.SOMETHING


def _console() -> Console:
    # Not a terminal: a log or a pipe, where a wrapped table is no use to anybody.
    return Console() if sys.stdout.isatty() else Console(width=240, highlight=False)
