"""Why an advertised id has no unit that the driver can open: one answer for each such id.

Input: a DeviceId without a unit, the snapshot, the history. Output: an `Absence`, and the GPU that does not answer if
that is why.

Invariant: total and exclusive. Every id without a unit gets exactly one answer, so exactly one rule module takes it out
of the usable ids: SILENT, GPU_GONE and UNJOINABLE are devices.py's, MIG_GONE is mig.py's, HIDDEN is observer.py's.
"""

import enum

from agent.core import join
from agent.model import planes
from agent.model.history import History
from agent.model.snapshot import DeviceId, Snapshot
from muster.model.reading import NOT_COLLECTED, Known, Unknown


class Absence(enum.Enum):
    """Why an id has no unit."""

    SILENT = enum.auto()
    """Its GPU is listed and does not answer."""
    HIDDEN = enum.auto()
    """The driver refused the agent something, and this may be it (faults.md H3)."""
    MIG_GONE = enum.auto()
    """A MIG instance that no GPU has."""
    GPU_GONE = enum.auto()
    """A GPU that the driver does not list."""
    UNJOINABLE = enum.auto()
    """An id in a form that nothing on the node answers to (faults.md H5)."""


def absence_of(device: DeviceId, snapshot: Snapshot, history: History) -> tuple[Absence, planes.Gpu | None]:
    """Return why the id has no unit, and the GPU that is silent."""
    parent = join.parent_of(device, history.mig_parents).lower()
    for gpu in snapshot.gpus:
        if gpu.uuid.lower() in (device.uuid.lower(), parent) and gpu.error:
            return (Absence.HIDDEN if is_permission(gpu.error) else Absence.SILENT), gpu
    is_mig = join.looks_like_mig(device.uuid)
    nameless = [gpu for gpu in snapshot.gpus if gpu.error and not join.looks_like_gpu(gpu.uuid)]
    if nameless and not parent and (is_mig or join.looks_like_gpu(device.uuid)):
        # A GPU that failed before it said its name: by elimination it is one of those that nobody else is.
        silent = nameless[_place_of(device, snapshot) % len(nameless)]
        return (Absence.HIDDEN if is_permission(silent.error) else Absence.SILENT), silent
    if not is_mig and not join.looks_like_gpu(device.uuid):
        return Absence.UNJOINABLE, None
    hiding = [gpu for gpu in snapshot.gpus if is_refused(gpu) or (is_mig and _is_mig_unreadable(gpu))]
    if hiding:
        return Absence.HIDDEN, None
    return (Absence.MIG_GONE if is_mig else Absence.GPU_GONE), None


def _place_of(device: DeviceId, snapshot: Snapshot) -> int:
    """Return the id's place among all that lack a unit: dealt out so, the reason of every silent GPU counts."""
    listed = {gpu.uuid for gpu in snapshot.gpus}
    lacking = {item.uuid for view in snapshot.resources for item in view.ids() if item.is_lacking}
    return sum(1 for uuid in lacking - listed if uuid < device.uuid)


def is_permission(reason: str) -> bool:
    """True for every spelling of "you may not".

    >>> is_permission("NO_PERMISSION"), is_permission("InsufficientPermissions"), is_permission("TIMEOUT")
    (True, True, False)
    """
    return "permission" in reason.lower().replace("_", "")


def is_refused(gpu: planes.Gpu) -> bool:
    """True if the driver refused the agent the GPU or its MIG devices."""
    match gpu.mig:
        case Unknown(reason):
            return is_permission(gpu.error) or is_permission(reason)
        case Known():
            return is_permission(gpu.error)


def _is_mig_unreadable(gpu: planes.Gpu) -> bool:
    """True if the GPU may have instances that could not be listed; a driver without MIG has none."""
    match gpu.mig:
        case Unknown(reason) as unread:
            return unread != NOT_COLLECTED and reason not in ("NOT_SUPPORTED", "FUNCTION_NOT_FOUND")
        case Known():
            return False
