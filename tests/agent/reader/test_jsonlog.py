"""The reader's log lines, beside the agent's own."""

import json
import subprocess
import sys

SCRIPT = """
import logging, sys
from {module} import configure
configure({level})
log = logging.getLogger("muster.reader")
log.info("reader serves %s", "\\xff here")
try:
    raise ValueError("odd")
except ValueError:
    log.exception("a plane could not be read")
"""


def _lines(module, level):
    script = SCRIPT.format(module=module, level=level)
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60)
    return [json.loads(line) for line in done.stderr.splitlines()]


def test_a_line_of_the_reader_has_the_keys_of_the_agent():
    ours, agents = _lines("agent.reader.jsonlog", "20"), _lines("agent.logs", "'info'")
    assert [line.keys() for line in ours] == [line.keys() for line in agents]
    for name in ("event", "level"):
        assert [line[name] for line in ours] == [line[name] for line in agents]
    assert "ValueError: odd" in ours[1]["exception"]
    assert len(ours[0]["timestamp"]) == len(agents[0]["timestamp"])
