"""Where the driver is: its library on disk and the module in the kernel.

Input: roots under which a driver may be installed, and procfs. Output: the library's path, a mark that changes with the
file, and the module's version.

Why at run time: the reader starts before a driver container has installed one, and a driver may be exchanged while it
runs (design.md sections 2 and 8). Looking costs a few stat calls.
"""

import os
import pathlib
import re
from collections.abc import Iterable

from muster.model.reading import Known, Reading, Unknown

_NAME = "libnvidia-ml.so.1"
_PLACES = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib/x86_64-linux-gnu/nvidia/current",
    "usr/lib/wsl/lib",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "lib",
    "",
)
"""Distributions, then vendors' own trees such as /home/kubernetes/bin/nvidia/lib64."""
_VERSION = re.compile(r"Kernel Module\s+(?:for \S+\s+)?(\d+(?:\.\d+)+)")


def find(roots: Iterable[str]) -> pathlib.Path | None:
    """Return the first library found, or None."""
    for root in roots:
        for place in _PLACES:
            path = pathlib.Path(root, place, _NAME)
            if path.is_file():
                return path
    return None


def mark(path: pathlib.Path | None) -> tuple[str, int, int] | None:
    """Return a value that differs once another file is at this path."""
    if path is None:
        return None
    try:
        status = os.stat(path)
    except OSError:
        return None
    return str(path), status.st_ino, status.st_mtime_ns


def read_module_version(proc_root: pathlib.Path, sysfs_root: pathlib.Path) -> Reading[str]:
    """Return the version of the loaded kernel module."""
    try:
        return Known((sysfs_root / "module/nvidia/version").read_text().strip())
    except (OSError, UnicodeDecodeError):
        pass
    try:
        text = (proc_root / "driver/nvidia/version").read_text()
    except (OSError, UnicodeDecodeError) as error:
        return Unknown("DRIVER_NOT_LOADED", str(error))
    found = _VERSION.search(text)
    return Known(found[1]) if found else Unknown("Malformed", "no version in /proc/driver/nvidia/version")


def read_uuids(proc_root: pathlib.Path) -> dict[str, str]:
    """Return the UUIDs that the kernel module knows, by bus address: it keeps them for a GPU that NVML cannot open."""
    known = {}
    try:
        paths = tuple((proc_root / "driver/nvidia/gpus").glob("*/information"))
    except OSError:
        return {}  # The driver was unloaded between two looks at the directory.
    for path in paths:
        try:
            text = path.read_text(errors="replace")
        except OSError:
            continue
        found = re.search(r"^GPU UUID:\s*(GPU-[0-9a-f-]+)\s*$", text, re.MULTILINE)
        if found:
            known[path.parent.name.lower()] = found[1]
    return known
