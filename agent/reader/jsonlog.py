"""Log JSON lines with the agent's keys, without the agent's stack: structlog alone is MiBs of a reader's memory.

Invariant: the keys are those of agent/logs.py: `event`, `level`, `timestamp`, and `exception` where there is one.
"""

import datetime
import json
import logging


class Formatter(logging.Formatter):
    """One record, one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a JSON object."""
        at = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        line = {
            "event": record.getMessage(),
            "level": record.levelname.lower(),
            "timestamp": at.isoformat().replace("+00:00", "Z"),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def configure(level: int) -> None:
    """Log on standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(Formatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
