"""When a request that got no answer, or met a change, may be tried again.

In: what a request was about, what became of it, the clock. Out: whether it may be tried now.

Invariants. What failed rests alone, longer with each failure in a row; a first conflict does not, since it only says that somebody
was quicker. After `ROW` failures in a row, of whatever, without one answer between them it is the API server that is ill: everything
rests, so that any number of pods costs it `ROW` requests in each rest. Nothing is remembered for longer than `KEPT_SECONDS`.

Why a row and not the first failure: a webhook that fails for one tenant's pods must not make all others wait.
"""

from admitter.core import pace
from admitter.core.pace import Rest
from admitter.publish.nodes import Outcome

ROW = 32
"""As many as may be on their way at a time (podissuer.py)."""
MOST_ALONE_SECONDS = 30.0
MOST_ALL_SECONDS = 8.0
"""As a watch (sources/watch.py)."""
KEPT_SECONDS = 120.0


class Patience:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self._alone: dict[str, Rest] = {}
        self._all = pace.RESTED
        self._row = 0
        self._swept_at = 0.0

    def may_try(self, what: str, now: float) -> bool:
        """Return whether a request about this may leave."""
        return now >= self._all.until and now >= self._alone.get(what, pace.RESTED).until

    def note(self, what: str, outcome: Outcome, now: float) -> None:
        """Take what became of a request."""
        if now - self._swept_at > KEPT_SECONDS:
            self._alone = {each: rest for each, rest in self._alone.items() if now - rest.until < KEPT_SECONDS}
            self._swept_at = now
        match outcome:
            case Outcome.NOT_LEADING:
                return
            case Outcome.BUSY:
                self._row += 1
                if self._row % ROW == 0:
                    self._all = self._all.failed(now, MOST_ALL_SECONDS)
            case _:
                self._row, self._all = 0, pace.RESTED
        if outcome is Outcome.BUSY or (outcome is Outcome.CONFLICT and what in self._alone):
            self._alone[what] = self._alone.get(what, pace.RESTED).failed(now, MOST_ALONE_SECONDS)
        elif outcome is Outcome.CONFLICT:
            self._alone[what] = Rest(failures=1, until=now)
        else:
            self._alone.pop(what, None)
