"""The admitter's answers for a person (tables) and for a program (JSON).

Pure: answers in, rich tables or plain JSON values out. JSON keys are those of the protocol's fields; the verdicts in them
are contracts/verdict.schema.json.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from google.protobuf import json_format
from rich.table import Table
from rich.text import Text

from muster.model import jsonform
from muster.model.admission import NodeCapacity
from muster.model.reading import Known, Reading, Unknown
from muster.model.report import DeviceState, Finding, MigShape, Verdict
from muster.pb.muster.v1 import inspect_pb2

_COLOURS = {Verdict.OK: "green", Verdict.TRANSIENT: "yellow"}
"""Every other verdict is red."""
_FINE = frozenset({Verdict.OK, Verdict.TRANSIENT})
_FINISHED = "Finished"
_NO_SUCH_RESOURCE = "NoSuchResource"


def is_node_fine(node: NodeCapacity) -> bool:
    """Return whether nothing is wrong with a node; TRANSIENT ends by itself (design.md section 4)."""
    return not node.stale and node.report.verdict in _FINE


def is_gang_fine(gang: inspect_pb2.GangStatus) -> bool:
    """Return whether a gang neither waits nor ended badly."""
    return gang.state != "waiting" and (gang.state != "ended" or gang.ended_reason == _FINISHED)


def nodes_table(nodes: Iterable[NodeCapacity]) -> Table:
    """Return one row for each resource of each node."""
    table = plain_table(
        "NODE", "VERDICT", "AGE", "RESOURCE", "ADVERTISED", "PRESENT", "FREE", "ADMISSIBLE", "LEASED", "WHY"
    )
    for node in nodes:
        head: tuple[str | Text, ...] = (node.node, _verdict(node), age(node.age_seconds))
        if not node.report.resources:
            table.add_row(*head, "none is reported")
        for name, report in sorted(node.report.resources.items()):
            counts = (_count(report.advertised), _count(report.present), _count(report.free))
            leases = (str(node.admissible.get(name, 0)), str(node.leased.get(name, 0)))
            why = ", ".join(sorted({_cause(finding) for finding in report.findings}))
            table.add_row(*head, name, *counts, *leases, why)
            head = ("", "", "")
    return table


def _cause(finding: Finding) -> str:
    return f"{finding.cause} ({finding.reason}{', observed' if finding.observed else ''})"


def gpus_table(nodes: Iterable[NodeCapacity], *, everything: bool) -> Table:
    """Return one row for each GPU or instance, or only for those that are not healthy."""
    table = plain_table("NODE", "GPU", "CUT AS", "STATE", "REASON", "HOLDER", "PODS", "DETAIL")
    for node in nodes:
        for device in node.report.devices:
            if everything or device.state is not DeviceState.HEALTHY:
                colour = "green" if device.state is DeviceState.HEALTHY else "red"
                pods = ", ".join(device.pods)
                state = Text(device.state.value, colour)
                cut = cut_as(device.shape) if device.shape is not None else ""
                table.add_row(
                    node.node, device.uuid, cut, state, device.reason, device.holder.value, pods, device.detail
                )
    return table


def cut_as(shape: MigShape) -> str:
    """Return how an instance is cut: its profile, and the memory that it really has.

    >>> cut_as(MigShape(profile="1g.10gb", memory_bytes=Known(10_468_982_784)))
    '1g.10gb, 9.8 GiB'
    """
    match shape.memory_bytes:
        case Known(size):
            return f"{shape.profile}, {size / 2**30:.1f} GiB"
        case Unknown():
            return shape.profile


def pods_table(nodes: Iterable[NodeCapacity]) -> Table:
    """Return one row for each pod that something is wrong with, with what the kubelet said of a refused one."""
    table = plain_table("NODE", "POD", "STATE", "REASON", "DEVICES", "THE KUBELET SAID")
    for node in nodes:
        for pod in node.report.pods:
            devices = ", ".join(pod.devices[:4]) + (f" and {len(pod.devices) - 4} more" if len(pod.devices) > 4 else "")
            table.add_row(node.node, pod.pod, Text(pod.state.value, "red"), pod.reason, devices, pod.message)
    return table


def gangs_table(gangs: Iterable[inspect_pb2.GangStatus]) -> Table:
    """Return one row for each gang."""
    table = plain_table("GANG", "STATE", "AGE", "WHERE OR WHY")
    for gang in gangs:
        said = gang.ended_reason
        if gang.HasField("why"):
            said = gang.why.summary
        elif gang.HasField("lease"):
            said = places(gang.lease.placements)
        colour = "green" if is_gang_fine(gang) else "yellow"
        seconds = gang.age.ToMilliseconds() / 1000
        table.add_row(f"{gang.namespace}/{gang.name}", Text(gang.state, colour), age(seconds), said)
    return table


_OBSERVED = {
    ("let-go", "ran"): "would have been let go, and ran",
    ("held", "ran"): "would have been held, and ran: held wrongly",
    ("held", "failed"): "would have been held, and failed",
    ("elsewhere", "failed"): "failed on a node that they would not have been let go to",
    ("let-go", "failed"): "would have been let go, and failed",
}
"""Verdict and outcome -> what is said of such gangs."""


def observed_table(found: inspect_pb2.Observation) -> Table:
    """Return what would have been done about gangs that another scheduler starts, and what became of them."""
    table = plain_table("OBSERVED", "GANGS")
    for reason, count in sorted(found.held.items()):
        table.add_row(f"would be held now: {reason}", str(count))
    ends = {(end.verdict, end.outcome): end.gangs for end in found.ends}
    for key, words in _OBSERVED.items():
        table.add_row(words, str(ends.get(key, 0)))
    return table


def observed_json(found: inspect_pb2.Observation) -> dict[str, Any]:
    """Return the same for a program."""
    ends = [{"verdict": end.verdict, "outcome": end.outcome, "gangs": end.gangs} for end in found.ends]
    return {"held": dict(found.held), "ends": ends}


def gang_lines(gang: inspect_pb2.GangStatus) -> list[str]:
    """Return everything about one gang, as lines."""
    lines = [f"{gang.namespace}/{gang.name} is {gang.state}"]
    if gang.HasField("why"):
        lines.append(f"  {gang.why.reason}: {gang.why.summary}")
        # Nodes without the resource are no news to a person; --json has them.
        telling = [excluded for excluded in gang.why.excluded if excluded.reason != _NO_SUCH_RESOURCE]
        lines += [
            f"  {excluded.node}: {excluded.resource}: {excluded.reason}, {excluded.detail}" for excluded in telling
        ]
        if without := len(gang.why.excluded) - len(telling):
            lines.append(f"  nodes without the resource: {without}")
        if gang.why.excluded_more:
            lines.append(f"  further nodes refused: {gang.why.excluded_more}")
        if gang.why.HasField("next_change"):
            lines.append(f"  can change by itself in {age(gang.why.next_change.ToMilliseconds() / 1000)}")
    if gang.autoscaler:
        lines.append(f"  {gang.autoscaler}")
    if gang.HasField("lease"):
        lines.append(f"  lease {gang.lease.lease_id} from view {gang.lease.snapshot_version}")
        lines += [f"  {place.podset}: {place.node}: {place.units} {place.resource}" for place in gang.lease.placements]
    if gang.ended_reason:
        lines.append(f"  {gang.ended_reason}")
    lines += [
        f"  pod {member.uid} of {member.podset} on {member.node}: {'has its devices' if member.seen else 'not seen yet'}"
        for member in gang.members
    ]
    if not gang.delays:
        return lines
    waits = (f"{'+'.join(span.delays)} {age(span.length.ToMilliseconds() / 1000)}" for span in gang.delays)
    lines.append(f"  time so far: {', '.join(waits)}")
    return lines


def pod_lines(pod: inspect_pb2.PodStatus) -> list[str]:
    """Return why a pod does not run, line by line."""
    place = f" on {pod.node}" if pod.node else ""
    gang = f", gang {pod.gang}" if pod.gang else ""
    lines = [f"pod {pod.namespace}/{pod.name}: {pod.phase}{place}{gang}"]
    for cause in pod.causes:
        lines += [f"  {cause.reason}: {cause.summary}", f"    {cause.remedy}"]
    if not pod.causes:
        lines.append("  nothing that Muster knows keeps it from running")
    return lines


def pod_json(pod: inspect_pb2.PodStatus) -> Mapping[str, Any]:
    """Return a pod as a JSON value."""
    return json_format.MessageToDict(pod, preserving_proto_field_name=True)


def nodes_json(nodes: Iterable[NodeCapacity]) -> list[dict[str, Any]]:
    """Return nodes as JSON values."""
    return [
        {
            "node": node.node,
            "stale": node.stale,
            "age_seconds": node.age_seconds,
            "admissible": dict(node.admissible),
            "leased": dict(node.leased),
            "report": jsonform.to_json(node.report),
            # What the feed carries and the verdict's schema does not.
            "shapes": {
                item.uuid: jsonform.to_json(item.shape) for item in node.report.devices if item.shape is not None
            },
            "rejections": {item.uid or item.pod: item.message for item in node.report.pods if item.message},
        }
        for node in nodes
    ]


def gang_json(gang: inspect_pb2.GangStatus) -> Mapping[str, Any]:
    """Return a gang as a JSON value."""
    return json_format.MessageToDict(gang, preserving_proto_field_name=True)


def places(placements: Sequence[Any]) -> str:
    """Return where a lease is, in one line."""
    shown = ", ".join(f"{place.node} {place.units}" for place in placements[:8])
    return shown + (f" and {len(placements) - 8} more" if len(placements) > 8 else "")


def age(seconds: float) -> str:
    """Return a span of time for a person.

    >>> age(0.26), age(75), age(7300)
    ('0.3s', '1m15s', '2h1m')
    """
    if seconds < 60:
        return f"{seconds:.1f}s"
    whole = int(seconds)
    return f"{whole // 60}m{whole % 60}s" if whole < 3600 else f"{whole // 3600}h{whole % 3600 // 60}m"


def _verdict(node: NodeCapacity) -> Text:
    if node.stale:
        return Text(f"STALE ({node.report.verdict.value})", "red")
    return Text(node.report.verdict.value, _COLOURS.get(node.report.verdict, "red"))


def _count(reading: Reading[int]) -> str:
    match reading:
        case Known(value):
            return str(value)
        case Unknown():
            return "?"


def plain_table(*columns: str) -> Table:
    """Return a table without lines, in which long texts go on below."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
