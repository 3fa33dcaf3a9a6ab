"""Find promtool: on the PATH, or where hack/promtool.sh puts it."""

import pathlib
import shutil

UNPACKED = pathlib.Path(__file__).resolve().parent.parent / ".build" / "promtool" / "promtool"


def find() -> pathlib.Path | None:
    """Return the program, or None where there is none."""
    found = shutil.which("promtool")
    if found is not None:
        return pathlib.Path(found)
    return UNPACKED if UNPACKED.exists() else None
