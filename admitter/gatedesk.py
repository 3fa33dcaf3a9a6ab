"""The gate adapter at the queue's counter: what it asked for, and who listens for the answers.

In: questions, members, withdrawals of gangs. Out: the queue's calls; a word whenever it has something new about a gang.

Invariant: a gang has one question at a time, and one listener; both end with it.

Not here: what is asked (core/gates.py), the queue (loop.py).
"""

import asyncio
from collections.abc import Callable
from typing import Any

from admitter.core.register import Conflict
from admitter.gateports import Desk
from admitter.model.hold import HoldReason, Join, Leave, Open, Stand, Told, Withdraw
from admitter.model.leadership import NotLeading

OWNER = "gates"
"""Whose gangs these are, among the clients of the queue."""


class GateDesk:
    """Belongs to one event loop."""

    def __init__(self, desk: Desk, news: Callable[[str], None]) -> None:
        """`news` hears the name of a gang to be looked at again."""
        self._desk, self._news = desk, news
        self._attached: dict[str, Any] = {}
        self._listeners: dict[str, asyncio.Task[None]] = {}
        self._tasks: asyncio.TaskGroup | None = None

    def begin(self, tasks: asyncio.TaskGroup) -> None:
        """Listen among these tasks from now on."""
        self._tasks = tasks

    def clear(self) -> None:
        """Forget everything: another term has begun."""
        for listener in self._listeners.values():
            listener.cancel()
        self._attached, self._listeners = {}, {}

    def ask(self, intent: Open | Withdraw | Stand | Join | Leave, key: str) -> Told | None:
        """Tell the queue; return why a question could not be put."""
        attachment = self._attached.get(key)
        match intent:
            case Open():
                return self._open(intent, key)
            case Withdraw(detail=detail, has_run=has_run):
                self.withdraw(key, detail, has_run=has_run)
            case Stand(standing=standing) if attachment is not None:
                self._desk.stand(attachment, standing)
            case Join(member=member) if attachment is not None:
                self._desk.join(attachment, member)
            case Leave(uid=uid) if attachment is not None:
                self._desk.leave(attachment, uid)
        return None

    def withdraw(self, key: str, detail: str, *, has_run: bool) -> None:
        """Take a question back or give a lease up."""
        attachment, listener = self._attached.pop(key, None), self._listeners.pop(key, None)
        if listener is not None:
            listener.cancel()
        if attachment is not None:
            self._desk.end(attachment, detail, has_run=has_run)
            self._desk.close(attachment)
            self._news(key)

    def _open(self, intent: Open, key: str) -> Told | None:
        try:
            attachment = self._desk.open(intent.gang, OWNER, intent.asked_at)
        except NotLeading:
            return None
        except Conflict as conflict:
            return Told(reason=HoldReason.NAME_TAKEN, summary=f"another gang has its name: {conflict.detail}")
        self._attached[key] = attachment
        assert self._tasks is not None
        older = self._listeners.pop(key, None)
        if older is not None:
            older.cancel()
        self._listeners[key] = self._tasks.create_task(self._listen(key, attachment))
        return None

    async def _listen(self, key: str, attachment: Any) -> None:
        """Look again whenever the queue has something new."""
        while True:
            record = await attachment.next()
            if self._attached.get(key) is not attachment:
                return
            self._news(key)
            if record is None:
                return
