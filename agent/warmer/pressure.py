"""How much the node waits for its disks: the kernel's pressure stall information.

In: /proc/pressure/io. Out: the percent of the last 10 seconds in which something waited (`some avg10`).

A kernel without it, or booted with psi=0, says nothing: Unknown, and whoever asks goes on without (images.md section 6.9).
"""

import pathlib
import re

from muster.model.reading import Known, Reading, Unknown

_SOME = re.compile(r"^some avg10=(\d{1,3}(?:\.\d+)?) ", re.MULTILINE)


def read(path: pathlib.Path) -> Reading[float]:
    """Return the share in percent."""
    try:
        found = _SOME.search(path.read_text())
    except (OSError, ValueError) as error:
        return Unknown("NotReadable", f"{path}: {error}")
    return Known(float(found[1])) if found else Unknown("NoMeaning", str(path))
