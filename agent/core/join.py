"""Join a device id, in whatever form a plugin gives it, to the unit that the driver shows.

Input: an id and the units of the snapshot. Output: a `DeviceId`; without a unit it is "cannot join", kept and reported.

Invariant: an id joins to one unit or to none; one that several could be meant by cannot join. It is never joined by an
enumeration index, which moves (faults.md D7), save in forms that consist of nothing else (GKE's nvidia0, faults.md S17).

Why a list of functions: each form is one small parser that says nothing about the others; a new plugin is a new line.

Not here: what a missing unit means (rules/), since that depends on what else is missing.
"""

import re
from collections.abc import Callable, Iterable, Mapping

from agent.model.snapshot import DeviceId, Unit
from muster.model.reading import Known, Unknown

_REPLICA = re.compile(r"^(?P<base>.+)::(?P<replica>\d+)$")
_COMPOSITE = re.compile(r"^(?:MIG-)?(?P<parent>GPU-[^/]+)/(?P<gi>\d{1,9})/(?P<ci>\d{1,9})$")
_PAIR = re.compile(r"^(?P<parent>GPU-.+?|\d{1,3})-(?P<gi>\d{1,3})$", re.IGNORECASE)
_GKE = re.compile(r"^nvidia(?P<index>\d{1,9})(?:/gi(?P<gi>\d{1,9}))?$")


class Units:
    """The units of a snapshot, looked up in the ways that ids name them."""

    def __init__(self, units: Iterable[Unit], passthrough: Iterable[str] = ()) -> None:
        self.passthrough = frozenset(passthrough)
        self.by_uuid: dict[str, Unit] = {}
        self.by_instance: dict[tuple[str, int, int | None], Unit] = {}
        self.by_gi: dict[tuple[str | int, int | None], Unit | None] = {}
        """(GPU's UUID or index, GPU instance) -> unit; None where compute instances share the GPU instance."""
        for unit in units:
            self.by_uuid[unit.uuid.lower()] = unit
            if unit.gi is not None:
                self.by_instance[unit.parent.lower(), unit.gi, unit.ci] = unit
            self._remember((unit.parent.lower(), unit.gi), unit)
            match unit.gpu.index:
                case Known(index):
                    self._remember((index, unit.gi), unit)
                case Unknown():
                    pass

    def _remember(self, key: tuple[str | int, int | None], unit: Unit) -> None:
        self.by_gi[key] = None if key in self.by_gi else unit


Form = Callable[[str, Units], Unit | None]


def _by_uuid(text: str, units: Units) -> Unit | None:
    return units.by_uuid.get(text.lower())


def _mig_without_prefix(text: str, units: Units) -> Unit | None:
    return units.by_uuid.get("mig-" + text.lower())


def _mig_with_needless_prefix(text: str, units: Units) -> Unit | None:
    lowered = text.lower()
    return units.by_uuid.get(lowered.removeprefix("mig-")) if lowered.startswith("mig-") else None


def _composite(text: str, units: Units) -> Unit | None:
    match = _COMPOSITE.match(text)
    return units.by_instance.get((match["parent"].lower(), int(match["gi"]), int(match["ci"]))) if match else None


def _gke(text: str, units: Units) -> Unit | None:
    match = _GKE.match(text)
    return units.by_gi.get((int(match["index"]), int(match["gi"]) if match["gi"] else None)) if match else None


def _pair(text: str, units: Units) -> Unit | None:
    """Parse GPU and GPU instance (faults.md H5), the GPU by UUID or, as exporters do, by index."""
    match = _PAIR.match(text)
    if match is None:
        return None
    parent = match["parent"]
    return units.by_gi.get((int(parent) if parent.isdigit() else parent.lower(), int(match["gi"])))


FORMS: tuple[Form, ...] = (_by_uuid, _mig_without_prefix, _mig_with_needless_prefix, _composite, _gke, _pair)
"""Tried in this order; the first that finds a unit wins."""


def join(text: str, units: Units) -> DeviceId:
    """Return the id with its unit.

    >>> join("GPU-1::3", Units(())).uuid
    'GPU-1'
    """
    base, is_replica = text, False
    if match := _REPLICA.match(text):
        base, is_replica = match["base"], True
    for form in FORMS:
        if (unit := form(base, units)) is not None:
            return DeviceId(id=text, uuid=unit.uuid, unit=unit, is_replica=is_replica)
    return DeviceId(id=text, uuid=base, unit=None, is_replica=is_replica, is_passthrough=base in units.passthrough)


def parent_of(device: DeviceId, mig_parents: Mapping[str, str]) -> str:
    """Return the GPU that an id without a unit belonged to, as far as its form or the last sample tells."""
    if match := _COMPOSITE.match(device.uuid):
        return match["parent"]
    return mig_parents.get(device.uuid, "")


def looks_like_mig(text: str) -> bool:
    """True if the id's form is that of a MIG instance, whatever became of it."""
    return text.lower().startswith("mig-") or bool(_COMPOSITE.match(text))


def looks_like_gpu(text: str) -> bool:
    """True if the id's form is that of a whole GPU."""
    return text.lower().startswith("gpu-") and not _COMPOSITE.match(text)
