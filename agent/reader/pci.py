"""NVIDIA functions on the PCI bus, as the kernel lists them: what is there whatever the driver says (faults.md B7).

Invariant: a function on the bus is listed even if nothing else about it can be read.

Not here: the drain state, which only the driver knows (session.py).
"""

import pathlib

from agent.model import planes
from muster.model.reading import Known, Reading, Unknown

_VENDOR = "0x10de"
_CLASSES = {"0x0300": planes.PciClass.DISPLAY, "0x0302": planes.PciClass.THREE_D}
"""By base class and subclass."""


def read(sysfs_root: pathlib.Path) -> Reading[tuple[planes.PciFunction, ...]]:
    """Return the functions, sorted by address."""
    bus = sysfs_root / "bus/pci/devices"
    try:
        entries = sorted(bus.iterdir())
    except OSError as error:
        return Unknown("Unreadable", str(error))
    return Known(tuple(_function(entry) for entry in entries if _text(entry / "vendor") == _VENDOR))


def _function(entry: pathlib.Path) -> planes.PciFunction:
    code = _text(entry / "class")
    return planes.PciFunction(
        address=entry.name.lower(),
        driver=_target(entry / "driver"),
        numa_node=_number(_text(entry / "numa_node")),
        iommu_group=_number(_target(entry / "iommu_group")),
        class_=Known(_CLASSES.get(code[:6], planes.PciClass.OTHER)) if code else Unknown("Unreadable"),
    )


def _text(path: pathlib.Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _target(link: pathlib.Path) -> str | None:
    try:
        return link.readlink().name
    except OSError:
        return None


def _number(text: str | None) -> Reading[int]:
    try:
        return Known(int(text or ""))
    except ValueError:
        return Unknown("Unreadable")
