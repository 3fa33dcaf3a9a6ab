"""One gang's, node's or pod's bug stops that one and nobody else.

In: a piece of a loop's work with the key that it is about. Out: nothing where it went well, the kind of error where it did not; a
log entry with the traceback, once for each key and error; counts by part.

Invariant: whatever a piece raises ends that piece alone. Cancellation passes through.

Why so broad a catch: which bug it will be nobody knows, and on the pass of one tenant's pod hangs every other tenant's.
"""

import collections
import traceback
from collections.abc import Callable

import structlog

_LOG = structlog.get_logger(__name__)

GANG, PLACE, ASK, SLICE = "gang", "place", "ask", "slice"
PARTS = (GANG, PLACE, ASK, SLICE)
"""A step of a held gang; the gang that a pod belongs to; a gang in a decision pass; a node's slice for its agent."""
_TRACE = 4096
_REMEMBERED = 10_000
"""Keys of which it is known what was logged of them: the oldest are logged anew."""


class Confined:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self.failures: collections.Counter[str] = collections.Counter(dict.fromkeys(PARTS, 0))
        """By part, each try."""
        self._logged: collections.OrderedDict[tuple[str, str], str] = collections.OrderedDict()

    def attempt(self, part: str, key: str, act: Callable[[], object]) -> str:
        """Do a piece of work; return the kind of error that it ended with, empty: none."""
        try:
            act()
        except Exception as error:  # noqa: BLE001 -- see the module's text
            return self.note(part, key, error)
        self._logged.pop((part, key), None)
        return ""

    def note(self, part: str, key: str, error: BaseException) -> str:
        """Count and log what a piece of work ended with; return the kind of error."""
        self.failures[part] += 1
        words, kind = repr(error)[:512], type(error).__name__
        if self._logged.get((part, key)) != words:
            self._logged[part, key] = words
            if len(self._logged) > _REMEMBERED:
                self._logged.popitem(last=False)
            # As text, without the values of variables: to write one of them out may be the same bug again.
            trace = "".join(traceback.format_exception(error))[-_TRACE:]
            _LOG.error("this one failed; the others go on", part=part, key=key, trace=trace)
        return kind
