"""A small JSON file that outlives its program: read leniently, written whole.

Invariant: a file that is torn, missing or of nonsense is an empty one, and one that cannot be written costs only what it
would have said; neither fails a pull.
"""

import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any


def read(path: pathlib.Path | None) -> Mapping[str, Any]:
    """Return what the file says."""
    try:
        content = json.loads(path.read_text()) if path is not None else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def write(path: pathlib.Path, content: Mapping[str, Any]) -> None:
    """Replace the file, synced: a power loss leaves the old one or the new one."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(".new")
        with beside.open("w") as file:
            file.write(json.dumps(content, sort_keys=True))
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError:
        return
