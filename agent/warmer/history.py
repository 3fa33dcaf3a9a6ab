"""The node's own habits: which images its containers were started from, kept in a file.

In: containerd's events, by the name that a container was created from. Out: images to have ready.

Invariant: without a budget for it nothing is kept and nothing is warmed. The file is written at most every
WRITE_SECONDS: starts come in bursts, and one that is lost by a crash is one of many.

Not here: what a start is worth (core/warmhistory.py).
"""

import datetime
import pathlib
from collections.abc import Mapping
from typing import Any

from agent.core import warmhistory, warmref
from agent.core.warmhistory import Use
from agent.model.warm import Refused, StoreFacts, Wanted
from agent.warmer import statefile

WRITE_SECONDS = 60.0
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class History:
    """The habits of one node."""

    def __init__(self, path: pathlib.Path | None) -> None:
        """Read them; without a path there are none."""
        self._is_kept, self._file = path is not None, statefile.Writer(path)
        self._uses = _uses(statefile.read(path))
        self._written_at = _EPOCH
        self._is_written = True

    def started(self, image: str, facts: StoreFacts, now: datetime.datetime) -> None:
        """Note that a container was created from an image."""
        name = _name(image, facts)
        if not self._is_kept or not name:
            return
        self._uses, self._is_written = warmhistory.started(self._uses, name, now), False
        if (now - self._written_at).total_seconds() >= WRITE_SECONDS:
            self._write(now)

    def wanted(self, now: datetime.datetime) -> tuple[Wanted, ...]:
        """Return what to have ready."""
        found = [warmref.parse(name) for name in warmhistory.likely(self._uses, now)]
        return tuple(
            Wanted(reference=reference, is_habit=True) for reference in found if not isinstance(reference, Refused)
        )

    def close(self, now: datetime.datetime) -> None:
        """Write what is not written, and wait for it."""
        if not self._is_written:
            self._write(now)
        self._file.close()

    def _write(self, now: datetime.datetime) -> None:
        self._written_at, self._is_written = now, True
        starts = {name: [use.count, use.at.isoformat()] for name, use in self._uses.items()}
        self._file.write({"starts": starts})


def _name(image: str, facts: StoreFacts) -> str:
    """Return the name by which an image is asked for: its tag where it has one, which may move; else its digest."""
    record = facts.records.get(image)
    names = [image]
    if record is not None:
        names += sorted(name for name, other in facts.records.items() if other.digest == record.digest)
    # The id alone is a name of the runtime's own; it would read as a tag.
    known = [name for name in names if not name.startswith("sha256:") and not isinstance(warmref.parse(name), Refused)]
    return next((name for name in known if "@" not in name), known[0] if known else "")


def _uses(said: Mapping[str, Any]) -> dict[str, Use]:
    found: dict[str, Use] = {}
    starts = said.get("starts")
    for name, entry in starts.items() if isinstance(starts, dict) else ():
        try:
            count, at = entry
            use = Use(count=max(0.0, float(count)), at=datetime.datetime.fromisoformat(at))
        except (TypeError, ValueError, OverflowError):
            continue
        if use.at.tzinfo is not None and use.count < 1e6:
            found[str(name)] = use
    return dict(list(found.items())[: warmhistory.MAX_NAMES])
