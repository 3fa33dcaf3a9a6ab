"""The driver's device files, as a container would need them (faults.md B4).

Input: the host's /dev and the majors the kernel gave to the driver (/proc/devices). Output: one DeviceNode for each file
that should be there: control, unified memory, one per GPU the kernel module lists, one per MIG capability.

Invariant: present means a character device with the driver's own major number; a plain file, or a node left from an
earlier driver, is not one and says so in `detail`.
"""

import os
import pathlib
import re
import stat
from collections.abc import Mapping

from agent.model import planes
from muster.model.reading import Known, Reading, Unknown

_MAJORS = {
    "nvidia": ("nvidia", "nvidia-frontend"),
    "nvidia-uvm": ("nvidia-uvm",),
    "nvidia-caps": ("nvidia-caps",),
}
"""Kind of file -> names of its major, newest driver first."""
_GPU_NODE = re.compile(r"nvidia\d+\Z")


def read(dev_root: pathlib.Path, proc_root: pathlib.Path) -> Reading[tuple[planes.DeviceNode, ...]]:
    """Return the expected files and what is at their place."""
    try:
        return Known(_read(dev_root, proc_root))
    except (OSError, UnicodeDecodeError) as error:
        # Of the driver's own directories too: those of MIG instances go while somebody cuts the GPU anew.
        return Unknown("Unreadable", str(error))


def _read(dev_root: pathlib.Path, proc_root: pathlib.Path) -> tuple[planes.DeviceNode, ...]:
    majors = _majors((proc_root / "devices").read_text())
    there = os.listdir(dev_root)
    expected = {"nvidiactl": "nvidia", "nvidia-uvm": "nvidia-uvm", "nvidia-uvm-tools": "nvidia-uvm"}
    expected |= {f"nvidia{minor}": "nvidia" for minor in _minors(proc_root)}
    expected |= {name: "nvidia" for name in there if _GPU_NODE.match(name)}
    expected |= {f"nvidia-caps/nvidia-cap{minor}": "nvidia-caps" for minor in _mig_capabilities(proc_root)}
    return tuple(_node(dev_root, name, majors.get(kind)) for name, kind in sorted(expected.items()))


def _node(dev_root: pathlib.Path, name: str, major: int | None) -> planes.DeviceNode:
    detail = ""
    try:
        status = os.stat(dev_root / name)
    except FileNotFoundError:
        detail = "missing"
    except OSError as error:
        detail = str(error)
    else:
        if not stat.S_ISCHR(status.st_mode):
            detail = "not a character device"
        elif major is None:
            detail = "the driver has no major number"
        elif os.major(status.st_rdev) != major:
            detail = f"major {os.major(status.st_rdev)}, the driver's is {major}"
    return planes.DeviceNode(path=f"/dev/{name}", present=not detail, detail="" if detail == "missing" else detail)


def _majors(text: str) -> Mapping[str, int]:
    """Return the driver's major numbers by kind of file.

    >>> dict(_majors("Character devices:\\n195 nvidia-frontend\\n508 nvidia-uvm\\n"))
    {'nvidia': 195, 'nvidia-uvm': 508}
    """
    numbers: dict[str, int] = {}
    for line in text.splitlines():
        number, _, name = line.strip().partition(" ")
        if number.isdecimal():
            numbers.setdefault(name.strip(), int(number))
    return {
        kind: next(numbers[name] for name in names if name in numbers)
        for kind, names in _MAJORS.items()
        if any(name in numbers for name in names)
    }


def _minors(proc_root: pathlib.Path) -> tuple[int, ...]:
    return tuple(
        int(value)
        for information in (proc_root / "driver/nvidia/gpus").glob("*/information")
        if (value := _value(information, "Device Minor")).isdecimal()
    )


def _mig_capabilities(proc_root: pathlib.Path) -> tuple[int, ...]:
    root = proc_root / "driver/nvidia/capabilities"
    files = (*root.glob("gpu*/mig/gi*/access"), *root.glob("gpu*/mig/gi*/ci*/access"))
    return tuple(int(value) for file in files if (value := _value(file, "DeviceFileMinor")).isdecimal())


def _value(path: pathlib.Path, key: str) -> str:
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == key), "")
