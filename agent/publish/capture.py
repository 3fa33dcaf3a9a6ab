"""Write observations as JSON Lines: the bug report and the test fixture (design.md section 4).

In: planes.Observation values. Out: one line each, in the form of contracts/capture.schema.json, redacted on request.

Invariant: a line is written whole or not at all, and what is written reads back equal (muster.model.jsonform); redacting
changes names and ids only, never a count, a time or a join.
"""

import json
from typing import TextIO

from agent.model import planes
from agent.publish import redact
from muster.model import jsonform


class Writer:
    """Writes lines to one text stream."""

    def __init__(self, out: TextIO, *, redacted: bool) -> None:
        self._out = out
        self._redactor = redact.Redactor() if redacted else None

    def write(self, observation: planes.Observation) -> None:
        """Write one line and flush it: a capture is often cut short."""
        self.write_json(jsonform.to_json(observation))

    def write_json(self, line: dict[str, object]) -> None:
        """Write a line that is in JSON form already."""
        if self._redactor is not None:
            line = self._redactor.line(line)
        self._out.write(json.dumps(line, separators=(",", ":")) + "\n")
        self._out.flush()
