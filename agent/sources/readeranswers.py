"""What the agent's side of the reader hands on besides planes: the host's processes, and what the reader costs.

Values, and how a message's fields become readings.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

from agent.model import planes
from muster.model import codec, kube
from muster.model.reading import NOT_COLLECTED, Known, Reading, Unknown

T = TypeVar("T")


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


def decoded(decode: Callable[[], T]) -> Reading[T]:
    """Return what decodes, or why it does not."""
    try:
        return Known(decode())
    except codec.Malformed as error:
        return Unknown("Malformed", str(error))


def field(message: Any, name: str, decode: Callable[[Any], Any] = lambda value: value) -> Reading[Any]:
    """Return an optional field of a message, or the reason that the message gives for its absence."""
    if message.HasField(name):
        return decoded(lambda: decode(getattr(message, name)))
    if name in message.errors:
        return Unknown(message.errors[name].error, message.errors[name].detail)
    return Unknown("NotCollected")
