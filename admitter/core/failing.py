"""Gangs on which a decision pass fails by a bug: each is left out for a while, and the others are answered.

Input: what raised, and for whom. Output: who is left out of a pass; the errors, for whoever logs and counts them.

Invariant: who is left out is tried again after `RETRY_SECONDS`, and at once when it asks for something else. Nothing is granted
to it meanwhile and nothing is taken from it.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from admitter.model.decision import Explanation
from admitter.model.gang import Gang
from admitter.model.queue import Ask
from muster.model.vocabulary import WaitReason

RETRY_SECONDS = 60.0
MOST = 8
"""New ones that a pass finds before it fails as a whole: each costs the pass once more, and the next pass goes on from there."""
_Answer = TypeVar("_Answer")


class AskFailed(Exception):
    """The answer to this gang could not be worked out; the cause is what was raised."""

    def __init__(self, gang: Gang) -> None:
        super().__init__(gang.full_name)
        self.gang = gang


def answered(asks: Iterable[Ask], answer: Callable[[Ask], _Answer]) -> Iterator[tuple[Ask, _Answer]]:
    """Yield each with its answer; AskFailed names the one that could not be answered."""
    for ask in asks:
        try:
            found = answer(ask)
        except Exception as error:
            raise AskFailed(ask.gang) from error
        yield ask, found


def decided(
    asks: tuple[Ask, ...],
    decide: Callable[[tuple[Ask, ...]], _Answer],
    fail: Callable[[Gang, BaseException], None],
) -> tuple[tuple[Ask, ...], _Answer]:
    """Return what was decided without those on whom that fails, and for whom; `fail` hears of each that is left out."""
    for _ in range(MOST):
        try:
            return asks, decide(asks)
        except AskFailed as failed:
            fail(failed.gang, failed.__cause__ or failed)
            asks = tuple(ask for ask in asks if ask.gang is not failed.gang)
    return asks, decide(asks)


def told(error: BaseException) -> Explanation:
    """Say why such a gang waits."""
    kind = type(error).__name__
    summary = f"Muster failed on it ({kind}); its log says more, and it tries again"
    return Explanation(reason=WaitReason.INTERNAL_ERROR, summary=summary, position=0)


class Failing:
    """Belongs to one book."""

    def __init__(self) -> None:
        self._out: dict[str, tuple[Gang, float]] = {}
        self._errors: list[tuple[str, BaseException]] = []

    def note(self, gang: Gang, error: BaseException, now: float) -> None:
        """Leave a gang out from now on."""
        self._out[gang.full_name] = gang, now
        self._errors.append((gang.full_name, error))

    def is_out(self, gang: Gang, now: float) -> bool:
        """Return whether a gang is left out now."""
        known = self._out.get(gang.full_name)
        if known is not None and (known[0] != gang or now - known[1] >= RETRY_SECONDS):
            del self._out[gang.full_name]
            return False
        return known is not None

    def taken(self) -> list[tuple[str, BaseException]]:
        """Return the errors since the last call, each with its gang's name."""
        errors, self._errors = self._errors, []
        return errors
