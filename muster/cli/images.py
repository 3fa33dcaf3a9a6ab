"""Each node's container images, for a person (tables) and for a program (JSON).

Pure: what the admitter told in, rich tables or plain JSON values out. A node without a warmer has no row of images, and
its store says so; nothing here changes the exit status, since a cold image is not a fault.
"""

from collections.abc import Iterable
from typing import Any

from rich.table import Table

from muster.cli import present
from muster.model import jsonform
from muster.model.admission import NodeCapacity
from muster.model.reading import Known, Reading, Unknown
from muster.model.warmth import ImageWarmth, Level, NodeWarmth, PullState

_NO_WARMER = "no warmer has reported"


def stores_table(nodes: Iterable[NodeCapacity]) -> Table:
    """Return one row for each node's image store."""
    table = present.plain_table("NODE", "RUNTIME", "SNAPSHOTTER", "DISK FREE", "IMAGES", "LEAKED", "PROBLEM")
    for node in nodes:
        if node.warmth is None:
            table.add_row(node.node, "", "", "", "", "", _NO_WARMER)
            continue
        store = node.warmth.store
        count = str(len(node.warmth.images) + store.images_more)
        free = _bytes(store.disk_free_bytes)
        leaked = size(store.leaked_bytes)
        table.add_row(node.node, store.runtime_version, store.snapshotter, free, count, leaked, store.problem)
    return table


def images_table(nodes: Iterable[NodeCapacity]) -> Table:
    """Return one row for each image of each node, wanted ones first."""
    table = present.plain_table("NODE", "IMAGE", "LEVEL", "HELD BY", "MISSING", "UNPACKED", "PULL", "WHY")
    for node in nodes:
        for image in sorted(node.warmth.images if node.warmth else (), key=lambda image: not image.is_wanted):
            unpacked = f"{image.layers_total - image.layers_missing}/{image.layers_total}"
            why = ": ".join(filter(None, (image.reason, image.detail)))
            held = image.hold.value + (", pinned" if image.is_pinned else "")
            row = (image.reference or image.digest, level(image), held, size(image.bytes_missing), unpacked)
            table.add_row(node.node, *row, "" if image.pull is PullState.IDLE else image.pull.value, why)
    return table


def level(image: ImageWarmth) -> str:
    """Return an image's level, with the fetched share of a lazy one."""
    mark = ", unverified" if image.unverified else ""
    match image.fetched_fraction:
        case Known(value) if image.level is Level.LAZY:
            return f"{image.level.value} {value:.0%}{mark}"
        case Known() | Unknown():
            return f"{image.level.value}{mark}"


def warmth_json(warmth: NodeWarmth | None) -> dict[str, Any] | None:
    """Return a node's images as JSON values; the prefixes of layers are only counted."""
    if warmth is None:
        return None
    content: dict[str, Any] = jsonform.to_json(warmth)
    content["layers"] = len(warmth.layers)
    return content


def size(count: int) -> str:
    """Return a number of bytes for a person.

    >>> size(0), size(900), size(8 * 1024**2), size(3 * 1024**3)
    ('0', '900 B', '8.0 MiB', '3.0 GiB')
    """
    if count < 1024:
        return f"{count} B" if count else "0"
    for unit, bound in (("KiB", 1024**2), ("MiB", 1024**3)):
        if count < bound:
            return f"{count * 1024 / bound:.1f} {unit}"
    return f"{count / 1024**3:.1f} GiB"


def _bytes(reading: Reading[int]) -> str:
    match reading:
        case Known(value):
            return size(value)
        case Unknown():
            return "?"
