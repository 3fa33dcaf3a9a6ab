"""The other processes of a benchmark: programs of its own that are spoken to line by line, in JSON the one way."""

import json
import subprocess
import sys
from typing import IO, Any


class Child:
    """A process that is spoken to line by line."""

    def __init__(self, module: str, *arguments: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def say(self, line: str) -> None:
        print(line, file=_open(self._process.stdin), flush=True)

    def hear(self) -> dict[str, Any]:
        line = _open(self._process.stdout).readline()
        if not line:
            raise SystemExit(f"{self._process.args!r} ended early, exit status {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, line: str) -> dict[str, Any]:
        self.say(line)
        return self.hear()

    def end(self) -> None:
        _open(self._process.stdin).close()
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _open(stream: "IO[str] | None") -> "IO[str]":
    assert stream is not None
    return stream
