"""What the agent's side of the reader hands on besides planes: the host's processes, and what the reader costs.

Values only.
"""

import dataclasses
from typing import Any

from agent.model import planes
from muster.model import kube
from muster.model.reading import NOT_COLLECTED, Reading


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What the reader's process costs, by its own word; a new reader counts anew."""

    cpu_seconds: float
    resident_bytes: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What process table and sockets say."""

    boot: Reading[planes.Boot]
    kubelet_started_at: Reading[Any]
    plugins: Reading[tuple[kube.Plugin, ...]]
    dra_drivers: Reading[tuple[kube.DraDriver, ...]] = NOT_COLLECTED


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Since the agent started."""

    calls: int = 0
    timeouts: int = 0
    """Calls, and devices within a call, that were not answered in time."""
    failures: int = 0
    """Calls that the reader did not answer for another cause."""
    nvml_seconds: float = 0.0
    usage: Reading[Usage] = NOT_COLLECTED
