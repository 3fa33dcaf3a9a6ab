"""Append every decision to a file, one JSON object a line: what was decided, by which rule, for whom, from which view.

The view has its version, a count of this process, and its hash, which any process that sees the same comes to.

Invariant: lines are only ever added. A line that cannot be written is counted and logged; it never stops a decision.
"""

import dataclasses
import json
import pathlib
from collections.abc import Callable, Sequence
from datetime import datetime

import structlog

from admitter.core.viewhash import ViewHash
from admitter.model.decision import Event
from admitter.model.nodecapacity import ClusterView
from muster.model import jsonform

_LOG = structlog.get_logger(__name__)


class DecisionLog:
    """One file; without a path the decisions go to the program's log alone."""

    def __init__(self, path: pathlib.Path | None, utc: Callable[[], datetime]) -> None:
        # Unbuffered: what could not be written is not kept to be written later, out of place.
        self._file = path.open("ab", buffering=0) if path is not None else None
        self._utc = utc
        self._hash = ViewHash()
        self.lost = 0
        """Lines that could not be written."""

    def write(self, events: Sequence[Event], *, term: int, view: ClusterView) -> None:
        """Append the decisions of one pass, taken from this view."""
        if not events:
            return
        snapshot = {"snapshot_version": view.version, "snapshot_hash": self._hash.of(view)}
        for event in events:
            line = {"at": jsonform.time_to_text(self._utc()), "term": term, **snapshot, **dataclasses.asdict(event)}
            _LOG.info("decision", **{key: line[key] for key in ("kind", "gang", "rule", "detail", "lease_id")})
            if self._file is None:
                continue
            try:
                self._file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
            except OSError as error:
                self.lost += 1
                _LOG.error("decision not written", error=str(error), lost=self.lost)

    def close(self) -> None:
        """Give the file back."""
        if self._file is not None:
            self._file.close()
