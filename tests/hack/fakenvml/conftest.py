"""Children that run the real binding on the fake driver."""

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hack import fakenvml

ANSWER_SECONDS = 20
CHILD = """
import ctypes, json, sys, pynvml as n
scope = {"n": n, "ctypes": ctypes}
for line in sys.stdin:
    try:
        source = json.loads(line)
        try:
            answer = {"value": eval(source, scope)}
        except SyntaxError:
            exec(source, scope)
            answer = {"value": None}
    except n.NVMLError as error:
        answer = {"code": error.value}
    except Exception as error:
        answer = {"python": repr(error)}
    print(json.dumps(answer, default=str), flush=True)
"""


class NvmlFailed(Exception):
    """The call answered with an NVML return code."""

    def __init__(self, code):
        super().__init__(code)
        self.code = code


class Child:
    """A process with the binding: `child("n.nvmlInit()")` runs the source there and returns its value."""

    def __init__(self, path, environment=None):
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(fakenvml.environment(path) if environment is None else environment)},
        )

    def send(self, source):
        self.process.stdin.write(json.dumps(source) + "\n")
        self.process.stdin.flush()

    def answered(self, seconds):
        return bool(select.select([self.process.stdout], [], [], seconds)[0])

    def syscall(self):
        """Return the system call that the main thread sleeps in, or "running"."""
        return Path(f"/proc/{self.process.pid}/syscall").read_text().split()[0]

    def hang(self, source):
        """Send `source` and return once the child sleeps in it, no longer in the wait for a line."""
        while (waiting := self.syscall()) == "running":
            time.sleep(0.01)
        self.send(source)
        asleep, deadline = [], time.monotonic() + ANSWER_SECONDS
        while len(set(asleep[-5:])) != 1 or len(asleep) < 5 or asleep[-1] in ("running", waiting):
            assert time.monotonic() < deadline, f"the child does not hang: {asleep[-5:]}"
            assert not self.answered(0.02), "the child answered"
            asleep.append(self.syscall())

    def receive(self):
        assert self.answered(ANSWER_SECONDS), "the child did not answer"
        answer = json.loads(self.process.stdout.readline())
        if "code" in answer:
            raise NvmlFailed(answer["code"])
        assert "python" not in answer, answer
        return answer["value"]

    def __call__(self, source):
        self.send(source)
        return self.receive()

    def code(self, source):
        """Return the NVML code that the source ends with; 0 for success."""
        try:
            self(source)
        except NvmlFailed as failed:
            return failed.code
        return 0

    def end(self):
        self.process.kill()
        return self.process.communicate()[1]


@pytest.fixture
def path(tmp_path):
    """Where a test's state file is."""
    return tmp_path / "driver.state"


@pytest.fixture
def start(path):
    """Start children; they end with the test."""
    children = []

    def started(*, init=True, environment=None):
        child = Child(path, environment)
        children.append(child)
        if init:
            child("n.nvmlInit()")
        return child

    yield started
    for child in children:
        child.end()
