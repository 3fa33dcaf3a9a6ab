"""Which snapshotter a pod's runtime handler leads to, from what the runtime tells of its configuration.

In: CRI's configuration as JSON, where its images are, the snapshotters that loaded. Out: handler -> snapshotter.

Invariants: a handler that is not told, or leads to a snapshotter that did not load, is left out: its images count as
cold. The empty handler is what a pod without a RuntimeClass gets.
"""

import json
import pathlib
from collections.abc import Mapping
from typing import Any

from muster.model.warmth import MAX_HANDLERS

_FOLDER = "io.containerd.snapshotter.v1."
_MOST = 100
"""Characters of a name."""


def default_of(configuration: str, place: str, folders: Mapping[str, str]) -> str:
    """Return the default snapshotter; empty: nobody says. `folders`: snapshotter -> where it keeps its images.

    >>> default_of("{}", "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs", {"overlayfs": ""})
    'overlayfs'
    """
    told = _containerd(configuration).get("snapshotter")
    if isinstance(told, str) and told:
        return told
    for name, folder in sorted(folders.items()):
        if folder and folder == place:
            return name
    name = pathlib.PurePath(place).name
    return name.removeprefix(_FOLDER) if name.startswith(_FOLDER) else ""


def handlers_of(configuration: str, default: str, snapshotters: frozenset[str]) -> dict[str, str]:
    """Return every handler whose snapshotter is known and there."""
    content = _containerd(configuration)
    runtimes = content.get("runtimes")
    found = {}
    for name, runtime in sorted(runtimes.items()) if isinstance(runtimes, dict) else ():
        own = runtime.get("snapshotter") if isinstance(runtime, dict) else None
        found[name] = own if isinstance(own, str) and own else default
    usual = content.get("defaultRuntimeName")
    if isinstance(usual, str) and usual in found:
        found[""] = found[usual]
    kept = {name: where for name, where in sorted(found.items()) if where in snapshotters and len(name) <= _MOST}
    return dict(list(kept.items())[:MAX_HANDLERS])


def _containerd(configuration: str) -> dict[str, Any]:
    try:
        content = json.loads(configuration)
    except (ValueError, RecursionError):
        return {}
    found = content.get("containerd") if isinstance(content, dict) else None
    return found if isinstance(found, dict) else {}
