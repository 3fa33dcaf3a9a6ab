"""A small JSON file that outlives its program: read leniently, written whole.

Invariants: a file that is torn, missing or of nonsense is an empty one, and one that cannot be written costs only what it
would have said; neither fails a pull. While the warmer works nobody waits for the disk (Writer): it is slowest just when
containers start.
"""

import concurrent.futures
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


class Writer:
    """Writes one file in a thread of its own, in the order it is told."""

    def __init__(self, path: pathlib.Path | None) -> None:
        """Prepare it; without a path nothing is written."""
        self._path = path
        self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="statefile")

    def write(self, content: Mapping[str, Any]) -> None:
        """Have the file replaced soon; `content` must not change any more."""
        if self._path is not None:
            self._thread.submit(write, self._path, content)

    def close(self) -> None:
        """Wait until all of it is written; it is the end."""
        self._thread.shutdown()
