"""Nodes and Pods from a JSON file, where there is no API server: the demo, the tests, a cluster without Kubernetes.

The file is `{"nodes": {NAME: SLICE}}`, each slice a NodeSlice in the capture's spelling, replaced atomically and re-read
live. In: the path. Out: each node's slice and its age, and a call for every slice that has changed.

Invariant: a file that cannot be read or is not of that form changes nothing; the last good slices stay and grow old, and
the log says what is wrong. A node that is no longer in the file has an empty slice.

Watches on an API server take this module's place behind the same two methods.
"""

import asyncio
import json
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from muster.model import codec, jsonform, kube

_LOG = structlog.get_logger(__name__)

POLL_SECONDS = 0.2
MAX_BYTES = 256 * 1024 * 1024

Send = Callable[[str, kube.NodeSlice], None]


class ClusterFile:
    """The newest good content of one file."""

    def __init__(self, path: pathlib.Path, monotonic: Callable[[], float]) -> None:
        self._path = path
        self._monotonic = monotonic
        self._slices: Mapping[str, kube.NodeSlice] = {}
        self._current_at = monotonic()
        self._stamp: tuple[int, int, int] | None = None
        self.problem = "not read yet"
        """Why the file's present content does not count; empty: it does."""

    def slice_of(self, node: str) -> tuple[kube.NodeSlice, float] | None:
        """Return a node's slice and the age of what we know; None: nothing was ever read."""
        if self.problem and not self._slices:
            return None
        age = self._monotonic() - self._current_at if self.problem else 0.0
        return self._slices.get(node, kube.NodeSlice()), age

    def refresh(self) -> Mapping[str, kube.NodeSlice]:
        """Look at the file again and return the slices to send: those that have changed, and all after a failure.

        Whoever came meanwhile was told an age, and would go on counting from there.
        """
        was_away = bool(self.problem)
        try:
            stamp = _stamp(self._path)
            if stamp == self._stamp:
                # The very file that was read last, back after a failure, counts again.
                self.problem = ""
                return self._slices if was_away else {}
            fresh = parse(self._path.read_bytes())
        except (OSError, ValueError) as error:
            if str(error) != self.problem:
                self.problem = str(error)
                self._current_at = self._monotonic()
                _LOG.warning(
                    "cluster file ignored, the last good one stands", path=str(self._path), problem=self.problem
                )
            return {}
        changed = {
            node: fresh.get(node, kube.NodeSlice())
            for node in {*fresh, *self._slices}
            if was_away or fresh.get(node) != self._slices.get(node)
        }
        self._slices, self._stamp, self.problem = fresh, stamp, ""
        _LOG.info("cluster file read", path=str(self._path), nodes=len(fresh), changed=len(changed))
        return changed

    async def watch(self, send: Send) -> None:
        """Send every change, until cancelled."""
        while True:
            for node, content in (await asyncio.to_thread(self.refresh)).items():
                send(node, content)
            await asyncio.sleep(POLL_SECONDS)


def parse(data: bytes) -> Mapping[str, kube.NodeSlice]:
    """Return the slices by node; ValueError names everything that does not fit."""
    if len(data) > MAX_BYTES:
        raise ValueError(f"$: has more than {MAX_BYTES} bytes")
    content: Any = json.loads(data)
    if not isinstance(content, dict) or not isinstance(content.get("nodes"), dict):
        raise codec.Malformed("$.nodes", "expected an object of node name to slice")
    problems = [f"$.{key}: is not a known field" for key in content if key != "nodes"]
    slices = {}
    for name, entry in content["nodes"].items():
        try:
            slices[name] = jsonform.from_json(kube.NodeSlice, entry, f"$.nodes.{name}")
        except codec.Malformed as error:
            problems.append(str(error))
    if problems:
        raise ValueError("; ".join(problems))
    return codec.freeze(slices)


def _stamp(path: pathlib.Path) -> tuple[int, int, int]:
    status = os.stat(path)
    return status.st_ino, status.st_mtime_ns, status.st_size
