"""Keep the reader's NVML session as the moment asks: open, short, or closed.

In: the node's labels and the core's manners; a person's `muster-agent release`. Out: `set_session` calls on the reader, and
the proof that came back (device files that a process of ours still holds: there must be none).

Invariants: a release is timed by the clock that only moves forward. A mode counts as set only when the
reader said so; until then it is asked for again in every cycle, and while `closed` is wanted nobody reads NVML, whether
or not the reader has answered. A reader that is new knows no mode: `lost` forgets what the old one said.

Not here: which marker asks for what (core.manners).
"""

import asyncio
import dataclasses
import datetime
from collections.abc import Callable
from typing import Protocol

import structlog

from agent.model.history import History
from muster import clock as clocks
from muster.model import kube
from muster.model.reading import Known, Reading, Unknown

_LOG = structlog.get_logger(__name__)

OPEN, CLOSED, SHORT = "open", "closed", "short"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A mode and why."""

    mode: str
    reason: str = ""


class Manners(Protocol):
    """What the node's markers ask for (core)."""

    def __call__(
        self,
        node: Reading[kube.NodeObject],
        history: History,
        now: datetime.datetime,
        released_until: datetime.datetime | None,
    ) -> Wanted: ...


class SessionSetter(Protocol):
    """The reader's half: returns the device files that are still open once the mode is set."""

    async def set_session(self, mode: str, reason: str) -> Reading[tuple[str, ...]]: ...


class SessionKeeper:
    """Follows the wanted mode."""

    def __init__(
        self,
        *,
        time: clocks.Clock,
        reader: SessionSetter,
        node: Callable[[], Reading[kube.NodeObject]],
        manners: Manners,
    ) -> None:
        self._clock, self._reader, self._node, self._manners = time, reader, node, manners
        self._released_until: float | None = None
        self._wanted = Wanted(mode=OPEN)
        self._confirmed = OPEN
        self._was_told = False
        self._refusal = ""
        self._open_files: tuple[str, ...] = ()
        self._following = asyncio.Lock()

    @property
    def mode(self) -> str:
        """The mode that is wanted, and so the one that reads must respect."""
        return self._wanted.mode

    @property
    def proof(self) -> Reading[tuple[str, ...]]:
        """Device files still open, once the reader has confirmed the wanted mode."""
        if self._confirmed != self._wanted.mode:
            return Unknown("NotConfirmed", f"the reader has not answered to {self._wanted.mode!r}")
        return Known(self._open_files)

    def release(self, seconds: float) -> None:
        """Close NVML from the next cycle on, for so long."""
        self._released_until = self._clock.monotonic() + seconds

    def lost(self) -> None:
        """Note that the reader is gone: what it confirmed counts no more. One that was never told anything is open."""
        self._confirmed = "" if self._was_told else OPEN

    async def follow(self, history: History, now: datetime.datetime) -> None:
        """Decide the mode and make the reader take it."""
        async with self._following:
            await self._follow(history, now)

    async def _follow(self, history: History, now: datetime.datetime) -> None:
        wanted = self._decide(history, now)
        if wanted.mode != self._wanted.mode:
            _LOG.info("NVML session", mode=wanted.mode, reason=wanted.reason)
        self._wanted = wanted
        is_proven = wanted.mode != CLOSED or not self._open_files
        if self._confirmed == wanted.mode and is_proven:
            return
        self._was_told = True
        answer = await self._reader.set_session(wanted.mode, wanted.reason)
        match answer:
            case Known(open_files):
                self._confirmed, self._open_files, self._refusal = wanted.mode, open_files, ""
                if wanted.mode == CLOSED and open_files:
                    _LOG.warning("NVML is closed, yet device files are open", files=list(open_files))
            case Unknown(reason, detail):
                say = _LOG.debug if reason == self._refusal else _LOG.warning
                say("the reader did not take the session mode", mode=wanted.mode, reason=reason, detail=detail)
                # It may have taken it and answered late: what it confirmed before counts no more either.
                self._confirmed, self._refusal = "", reason

    def _decide(self, history: History, now: datetime.datetime) -> Wanted:
        left = (self._released_until or 0.0) - self._clock.monotonic()
        released_until = now + datetime.timedelta(seconds=left) if left > 0 else None
        return self._manners(self._node(), history, now, released_until)
