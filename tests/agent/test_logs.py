"""What logging costs an agent."""

import json
import subprocess
import sys

SCRIPT = """
import json, sys
from agent import logs
loaded = "rich" in sys.modules
logs.configure("info")
import structlog
structlog.get_logger().info("said", answer=42)
import rich
print(json.dumps({"loaded": loaded, "rich": rich.__name__}))
"""


def test_logging_leaves_rich_alone_and_importable():
    """The agent pays for no console; whoever wants one later in the same process still gets it."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], check=True, capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout) == {"loaded": False, "rich": "rich"}
    assert json.loads(done.stderr)["answer"] == 42
