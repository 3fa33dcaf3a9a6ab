"""The MIG state of one GPU, read through its parent handle.

Invariant: the list of instances is whole or it is not there. A board without MIG has an empty one; a lookup that was
refused for lack of permission, or failed, makes the reading Unknown: an empty list would say that nothing is cut.

Why every cycle anew: handles of MIG devices die when the layout changes and are then reused for other instances.
"""

import math
import re

from agent.core import nvml_codes
from agent.model import planes
from agent.reader import nvml
from muster.model.reading import Known, Reading, Unknown

_NAMED = re.compile(r"\bMIG (?P<profile>(?:\d+c\.)?\d+g\.\d+gb(?P<attributes>[+\-.\w]*))")
_GIB = 1 << 30
_EIGHTHS = 8
"""Memory of a profile is a number of eighths of the board's, rounded up (faults.md S18: computed, not read)."""


def read(device: nvml.Handle, board_bytes: Reading[int]) -> Reading[planes.Mig]:
    """Return mode and instances."""
    try:
        current, pending = nvml.mig_mode(device)
    except nvml.NvmlError as error:
        if error.reason == nvml_codes.NOT_SUPPORTED:
            return Known(planes.Mig(current=False, pending=False, instances=()))
        return Unknown(error.reason, error.call)
    if not current:
        return Known(planes.Mig(current=False, pending=pending, instances=()))
    instances = nvml.reading(lambda: _instances(device, board_bytes))
    match instances:
        case Known(found):
            return Known(planes.Mig(current=True, pending=pending, instances=found))
        case Unknown():
            return instances


def handles(device: nvml.Handle) -> tuple[nvml.Handle, ...]:
    """Return the handles of this very moment, stepping over holes in the index."""
    found = []
    for place in range(nvml.mig_count(device)):
        try:
            found.append(nvml.mig_handle(device, place))
        except nvml.NvmlError as error:
            if error.reason != nvml_codes.NOT_FOUND:
                raise
    return tuple(found)


def _instances(device: nvml.Handle, board_bytes: Reading[int]) -> tuple[planes.MigInstance, ...]:
    return tuple(_instance(device, handle, board_bytes) for handle in handles(device))


def _instance(device: nvml.Handle, mig: nvml.Handle, board_bytes: Reading[int]) -> planes.MigInstance:
    uuid = nvml.uuid(mig)
    gi, ci = nvml.mig_ids(mig)
    shape = nvml.reading(lambda: nvml.mig_attributes(mig))
    placement = nvml.reading(lambda: nvml.gpu_instance_placement(device, gi))
    profile, attributes = _profile(nvml.reading(lambda: nvml.name(mig)), shape, board_bytes)
    return planes.MigInstance(
        uuid=uuid,
        gi=gi,
        ci=ci,
        profile=profile,
        gpu_slices=_part(shape, 0),
        compute_slices=_part(shape, 1),
        memory_bytes=_part(shape, 2),
        attributes=attributes,
        start=_part(placement, 0),
        size=_part(placement, 1),
    )


def _part(values: Reading[tuple[int, int, int]] | Reading[tuple[int, int]], place: int) -> Reading[int]:
    match values:
        case Known(known):
            return Known(known[place])
        case Unknown():
            return values


def _profile(
    name: Reading[str], shape: Reading[tuple[int, int, int]], board_bytes: Reading[int]
) -> tuple[str, tuple[str, ...]]:
    """Return (profile, attributes): as the driver names the device, else computed as the plugin does."""
    match name:
        case Known(text) if (found := _NAMED.search(text)) is not None:
            return found["profile"], _attributes(found["attributes"])
        case _:
            pass
    match shape, board_bytes:
        case Known((gpu_slices, compute_slices, memory)), Known(board):
            return computed_profile(gpu_slices, compute_slices, memory, board), ()
        case _:
            return "", ()


def computed_profile(gpu_slices: int, compute_slices: int, memory_bytes: int, board_bytes: int) -> str:
    """Return the profile name that follows from an instance's shape on a board of this size.

    >>> computed_profile(1, 1, 9984 << 20, 81559 << 20), computed_profile(3, 1, 40448 << 20, 81559 << 20)
    ('1g.10gb', '1c.3g.40gb')
    """
    eighths = math.ceil(memory_bytes / board_bytes * _EIGHTHS) if board_bytes else 0
    # Half a gigabyte rounds up, as the plugin's language does it; round() would make 3g.70gb of an H200's 3g.71gb.
    gigabytes = math.floor(eighths / _EIGHTHS * math.ceil(board_bytes / _GIB) + 0.5)
    prefix = f"{compute_slices}c." if compute_slices < gpu_slices else ""
    return f"{prefix}{gpu_slices}g.{gigabytes}gb"


def _attributes(text: str) -> tuple[str, ...]:
    r"""Split what follows a profile's memory.

    >>> _attributes("+me.all"), _attributes("-me"), _attributes("")
    (('me.all',), ('-me',), ())
    """
    return tuple(part.removeprefix("+") for part in re.findall(r"[+\-][\w.]+", text))
