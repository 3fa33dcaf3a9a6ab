"""How far a twin is from its capture: one field, so that it is that field that changes the answer.

Lines are paired by their instant; a twin may stop before its capture does. Inside a line lists are paired by what names
their items, and a thing that cannot be read is one change however much it hides. A change of the same field on many lines
or devices is one field. That the answers differ is tests/agent/core/test_captures.py's.
"""

import itertools
import json
import pathlib

import pytest

HERE = pathlib.Path(__file__).parent
TWINS = sorted(HERE.glob("*-twin.jsonl"))
NAMES = ("uuid", "address", "path", "resource", "uid", "pid", "name", "kind", "link", "code", "text", "pod")
"""What an item of a list is known by, the first that it has."""

FACTS = {
    "b10-one-mig-fault-unreported": (
        ("nvml.devices[].xids[].ci", "nvml.devices[].xids[].gi"),
        "an instance is named by both of its numbers: without either the event is the whole GPU's",
    ),
    "c7-mig-manager-stuck": (
        ("node_object.labels.nvidia.com/gpu.deploy.device-plugin", "node_object.labels.nvidia.com/mig.config.state"),
        "mig-manager pauses its clients and sets its state together; one of the two alone is the marker still",
    ),
    "d5-driver-upgrade-window": (
        (
            "node_object.labels.nvidia.com/gpu-driver-upgrade-state",
            "node_object.labels.nvidia.com/gpu.deploy.device-plugin",
        ),
        "the operator pauses its clients and sets its state together; one of the two alone is the marker still",
    ),
    "f3-mps-daemon-not-ready": (("mps.daemon_alive", "mps.ready"), "a daemon that is ready is alive"),
    "g1-labels-out-of-step": (
        (
            "node_object.labels.nvidia.com/gpu.count",
            "node_object.labels.nvidia.com/gpu.product",
            "node_object.labels.nvidia.com/mig-1g.10gb.count",
        ),
        "feature discovery writes all of its labels in one pass; any one that is wrong keeps the warning",
    ),
    "g3-dra-slice-outlives-driver": (
        ("dra.drivers[].answering", "dra.drivers[].registration_socket_present"),
        "a driver answers on the socket that it has",
    ),
    "h4-podresources-missing": (
        ("kubelet.allocatable", "kubelet.pods"),
        "one socket serves both: GetAllocatableResources and List come and go together",
    ),
}
"""Twins in which one thing shows in several fields: which, and why they cannot change one by one."""


def changes(one, other, path=()):
    """Yield the path of every field that differs, lists without their places."""
    if isinstance(one, dict) and isinstance(other, dict) and "error" not in {*one, *other}:
        for key in sorted(one.keys() | other.keys() - {"notes"}):
            yield from _of_key(one, other, key, (*path, key))
    elif isinstance(one, list) and isinstance(other, list) and all(isinstance(item, dict) for item in (*one, *other)):
        mine, theirs = _named(one), _named(other)
        for key in sorted(mine.keys() | theirs.keys()):
            yield from _of_key(mine, theirs, key, (*path[:-1], f"{path[-1]}[]"))
    elif one != other:
        yield ".".join(path)


def _of_key(one, other, key, path):
    if key in one and key in other:
        yield from changes(one[key], other[key], path)
    else:
        yield ".".join(path)


def _named(items):
    """Return the items by name; those of one name by their place among them."""
    named = {}
    for item in items:
        name = next((str(item[key]) for key in NAMES if key in item), "")
        place = next(place for place in itertools.count() if (name, place) not in named)
        named[name, place] = item
    return named


def lines_of(path):
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return {line["taken_at"]: line for line in lines}


def base_of(twin):
    return lines_of(twin.with_name(twin.name.replace("-twin.", ".")))


@pytest.mark.parametrize("twin", TWINS, ids=lambda path: path.stem)
def test_a_twin_differs_in_one_field(twin):
    base, lines = base_of(twin), lines_of(twin)
    assert list(lines) == list(base)[: len(lines)]
    fields = {field for at, line in lines.items() for field in changes(base[at], line)}
    allowed = FACTS.get(twin.stem.removesuffix("-twin"), ((), ""))[0]
    assert len(fields) == 1 or fields == set(allowed)


def test_every_exception_is_of_a_twin_and_says_why():
    assert FACTS.keys() <= {path.stem.removesuffix("-twin") for path in TWINS}
    assert all(len(fields) > 1 and why for fields, why in FACTS.values())
