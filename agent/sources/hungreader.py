"""Say when the reader must be replaced, and replace it (design.md section 8: "a hung reader is killed and replaced once").

In: the client's word on who does not answer, and the means to end the reader: the child process where it is one, else its
own Exit call, after which the kubelet starts the container again. Out: a complaint, or none.

Invariant: nothing here waits without a deadline. Whoever asks remembers, over its own restarts, that the one replacement of
a boot was used: readers that all hang on the same driver would pile up (topology.md section 1.1).

Why one device's call counts as well: its thread is lost to the reader even when the driver has long recovered, and the
device would stay marked until somebody restarts the reader by hand. It may take far longer than a silent driver, since
the other devices are served meanwhile.

A reader that answers nobody at all and is nobody's child can be ended by its container's supervisor alone: `silence` is what its
liveness probe asks, at the agent's door, since the reader has none and a probe that starts a program would cost more than both.
"""

from typing import Protocol

SILENT_SECONDS = 30.0
"""The driver as a whole does not answer (topology.md section 1.4)."""
STUCK_SECONDS = 600.0
"""One device does not. Drivers have been seen to come back after minutes (faults.md B8: steps of 45 s)."""


class Answering(Protocol):
    """What the reader's client knows of any answer."""

    @property
    def unanswered_since(self) -> float | None: ...


def silence(client: Answering, now: float, limit_seconds: float) -> str:
    """Return that the reader has answered nothing at all for too long, or an empty text. An answer that NVML hangs is one."""
    since = client.unanswered_since
    if since is None or now - since <= limit_seconds:
        return ""
    return f"the reader has answered nothing for {now - since:.1f} s"


class Client(Protocol):
    """What the reader's client knows; instants are of the monotonic clock."""

    @property
    def silent_since(self) -> float | None: ...
    @property
    def stuck_since(self) -> float | None: ...
    @property
    def unanswered_since(self) -> float | None: ...
    async def exit(self, reason: str) -> bool: ...


class Child(Protocol):
    """The reader as a child process."""

    @property
    def started_at(self) -> float | None: ...
    def replace(self) -> bool: ...


class Watchdog:
    """Watches one reader."""

    def __init__(
        self,
        client: Client,
        child: Child | None = None,
        *,
        silent_seconds: float = SILENT_SECONDS,
        stuck_seconds: float = STUCK_SECONDS,
    ) -> None:
        self._client, self._child = client, child
        self._limits = (silent_seconds, stuck_seconds)

    def complaint(self, now: float, *, nvml_closed: bool = False) -> str:
        """Return why the reader should be replaced, or an empty text.

        While NVML is closed nobody asks for the driver, and what was last heard of it grows old without meaning anything.
        """
        silent, stuck = self._limits
        if nvml_closed:
            is_mute = self._for(self._client.unanswered_since, now) >= silent
            return f"nothing at all has been answered in {silent:g} s" if is_mute else ""
        if self._for(self._client.silent_since, now) >= silent:
            return f"the driver has not been answered for in {silent:g} s"
        if self._for(self._client.stuck_since, now) >= stuck:
            return f"a device's call has not returned in {stuck:g} s"
        return ""

    def _for(self, since: float | None, now: float) -> float:
        if since is None:
            return 0.0
        # A child that is starting anew has not been silent since before it was there.
        started = self._child.started_at if self._child is not None else None
        return now - max(since, started if started is not None else since)

    async def replace(self, reason: str) -> bool:
        """End the reader so that another one starts; False if there was none to end."""
        if self._child is not None:
            return self._child.replace()
        return await self._client.exit(reason)
