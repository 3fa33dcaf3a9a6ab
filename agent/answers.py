"""What a running agent answers on its control socket.

In: `release` and `capture` requests (sources/control.py). Out: JSON objects, line by line: the proof that NVML is closed,
or what the cycles observed. A capture hands out the very observations that were judged, so no plane is read twice.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from agent.model import planes
from agent.publish.board import Board
from agent.sources import control, session
from muster.model import jsonform
from muster.model.reading import Known, Unknown

PROOF_SECONDS = 5.0
"""How long `release` waits for the reader's word that nothing is open."""

MAX_RELEASE_MINUTES = 24 * 60
MAX_CAPTURE_LINES = 100_000


class Cycles(Protocol):
    """The loop, as far as an answer needs it."""

    def wake(self, why: str) -> None: ...
    async def next_cycle(self) -> None: ...


class Answers:
    """The commands of one agent."""

    def __init__(self, *, board: Board, session: session.SessionKeeper, cycles: Cycles) -> None:
        self._board, self._session, self._cycles = board, session, cycles

    @property
    def commands(self) -> Mapping[str, control.Answer]:
        """Command -> answer."""
        return {"release": self.release, "capture": self.capture}

    async def release(self, request: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        """Close NVML for a while and hand out the proof; 0 minutes ends it."""
        minutes = _number(request, "minutes", high=MAX_RELEASE_MINUTES)
        self._session.release(minutes * 60)
        self._cycles.wake("Release")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PROOF_SECONDS):
                await self._cycles.next_cycle()
                while isinstance(self._session.proof, Unknown):
                    await self._cycles.next_cycle()
        match self._session.proof:
            case Known(open_files):
                yield {"mode": self._session.mode, "open_device_files": list(open_files)}
            case Unknown(reason, detail):
                yield {"mode": self._session.mode, "error": reason, "detail": detail}

    async def capture(self, request: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        """Hand out what the last and the next cycles observed."""
        lines = int(_number(request, "lines", high=MAX_CAPTURE_LINES))
        last: planes.Observation | None = None
        while lines:
            notice = self._board.notice
            if notice is not None and notice.observation is not last:
                last, lines = notice.observation, lines - 1
                yield jsonform.to_json(last)
            else:
                await self._cycles.next_cycle()


def _number(request: Mapping[str, Any], name: str, *, high: float) -> float:
    value = request.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= high:
        raise control.BadRequest(f"{name}: expected a number from 0 to {high}")
    return float(value)
