"""Optional planes and checks that could not be read, as `name: reason` (design.md section 3).

Input: snapshot. Output: sorted texts for the report's `unverified`.

Invariant: listing something here changes neither verdict nor admit. What a board says it does not have (NOT_SUPPORTED) has
been read, and is not listed. Required planes are BLIND instead (rules/observer.py).
"""

from collections.abc import Iterator
from typing import Any

from agent.model.snapshot import Snapshot
from muster.model.reading import Known, Reading, Unknown

MAX_TEXTS, MAX_CHARS = 64, 120
"""Reasons come from outside: a handful of planes and checks times a few reasons each."""

_PLANES = ("boot", "pci", "device_nodes", "kernel_log", "plugins", "dra", "cdi", "mps", "desired_mig")
_CHECKS = ("mig", "recovery_action", "remap", "retired_pages_pending", "ecc", "fabric", "xids", "processes")
_ABSENT_BY_NATURE = ("NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "NotSupported")


def texts(snapshot: Snapshot) -> tuple[str, ...]:
    """Return what could not be verified, sorted."""
    found = {*_planes(snapshot), *_checks(snapshot), *_cgroups(snapshot)}
    return tuple(sorted({f"{name}: {reason}"[:MAX_CHARS] for name, reason in found})[:MAX_TEXTS])


def _planes(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    for name in _PLANES:
        yield from _unread(name, getattr(snapshot.observation, name))
    yield from _unread("kubelet.started_at", snapshot.kubelet_started_at)
    yield from _unread("kubelet.checkpoint", snapshot.checkpoint)


def _checks(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    for gpu in snapshot.gpus:
        if gpu.error:
            continue
        for name in _CHECKS:
            yield from _unread(name, getattr(gpu, name))


def _cgroups(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """Processes that nobody can be named for: needs the host PID view (faults.md E5)."""
    for process in snapshot.processes:
        match process.owner:
            case Unknown(reason):
                yield "processes", f"{reason} (cgroup)"
            case Known():
                pass


def _unread(name: str, reading: Reading[Any]) -> Iterator[tuple[str, str]]:
    match reading:
        case Unknown(reason) if reason not in _ABSENT_BY_NATURE:
            yield name, reason
        case _:
            pass
