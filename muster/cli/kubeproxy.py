"""The API server with the user's own rights: through a `kubectl proxy` on a unix socket that nobody else may open.

In: the user's kubectl and kubeconfig. Out: requests and their answers. `Refused` is an answer that says no, with its status;
`NoAnswer` is none.

Invariants: kubectl ends with us, even if we are killed: it runs under a shell that ends it when our end of a pipe closes.
Nothing is sent twice.

Why kubectl and no client: this package knows no Kubernetes client, and every way to sign in (plugins, tokens, certificates)
that a user has works in kubectl. Why a proxy: one process for ten thousand requests instead of one for each.
"""

import contextlib
import dataclasses
import http.client
import json
import pathlib
import shutil
import socket
import subprocess
import tempfile
import threading
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from muster.cli import clusterdoor
from muster.cli.noanswer import NoAnswer

REQUEST_SECONDS = 30.0
PAGE = 500
"""Objects in one page of a list, as kubectl asks for them."""
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"

Form = Mapping[str, Any]


class Refused(Exception):
    """The API server said no."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(f"{status}: {words}")
        self.status = status
        self.words = words


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One write."""

    method: str
    path: str
    body: Any = None
    kind: str = "application/json"
    """Content type of the body."""


class _Connection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: pathlib.Path) -> None:
        super().__init__("localhost", timeout=REQUEST_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(REQUEST_SECONDS)
        self.sock.connect(str(self._path))


class KubeProxy:
    """Requests through the proxy; any thread may ask."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path
        self._mine = threading.local()
        self._all: list[_Connection] = []
        self._said_at = ""
        """Date of its last answer."""

    def get(self, path: str) -> dict[str, Any]:
        """Return one object."""
        return self._ask("GET", path)

    def date(self) -> str:
        """Return the time by the API server's own clock, as HTTP writes it: without an answer now, what it last said."""
        try:
            self._ask("GET", "/version")
        except (Refused, NoAnswer):
            if not self._said_at:
                raise
        return self._said_at

    def list(self, path: str, **parameters: str) -> Iterator[dict[str, Any]]:
        """Yield the items of a list, page by page."""
        token = ""
        while True:
            query = urllib.parse.urlencode({"limit": str(PAGE), **parameters, **({"continue": token} if token else {})})
            page = self._ask("GET", f"{path}?{query}")
            yield from page.get("items") or ()
            token = (page.get("metadata") or {}).get("continue") or ""
            if not token:
                return

    def send(self, request: Request) -> dict[str, Any]:
        """Carry out one write; return what the API server answers."""
        return self._ask(request.method, request.path, request.body, request.kind)

    def close(self) -> None:
        """Close the connections of all threads."""
        for connection in self._all:
            connection.close()

    def _ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> dict[str, Any]:
        connection = self._connection()
        text = json.dumps(body) if body is not None else None
        try:
            connection.request(method, path, text, {"Content-Type": kind, "Accept": "application/json"})
            response = connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise NoAnswer(f"{method} {path}: {error or type(error).__name__}") from error
        refusal = _refusal(response.status, content) if response.status >= 400 else None
        if not isinstance(refusal, NoAnswer):
            self._said_at = response.getheader("Date") or self._said_at
        if refusal is not None:
            raise refusal
        try:
            found: dict[str, Any] = json.loads(content or b"{}")
            return found
        except ValueError as error:
            raise NoAnswer(f"{method} {path}: the answer is no JSON") from error

    def _connection(self) -> _Connection:
        mine: _Connection | None = getattr(self._mine, "connection", None)
        if mine is None:
            mine = self._mine.connection = _Connection(self._path)
            self._all.append(mine)
        return mine


def _refusal(status: int, content: bytes) -> Exception:
    try:
        words = str(json.loads(content)["message"])
    except (ValueError, KeyError, TypeError):
        words = content.decode("utf-8", "replace").strip()
    if status in (502, 503, 504) and "dial tcp" in words:
        # The proxy's own words: the API server is not there.
        return NoAnswer(words[:300])
    return Refused(status, words[:300])


@contextlib.contextmanager
def start(words: Sequence[str]) -> Iterator[KubeProxy]:
    """Open a proxy with these words of kubectl's (`--context`, `--kubeconfig`); NoAnswer if it does not start."""
    program = shutil.which("kubectl")
    if program is None:
        raise NoAnswer("kubectl is not in the PATH")
    # mkdtemp: for this user only.
    with tempfile.TemporaryDirectory(prefix="muster-") as folder:
        path = pathlib.Path(folder) / "api.sock"
        command = ["/bin/sh", "-c", clusterdoor.UNDER_US, "sh", program, *words, "proxy", f"--unix-socket={path}"]
        with subprocess.Popen(  # noqa: S603 -- the user's own kubectl, with words of ours
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            proxy = KubeProxy(path)
            try:
                said = process.stdout.readline()
                if not said.startswith("Starting to serve"):
                    raise NoAnswer(f"kubectl proxy: {said.strip() or 'ended without a word'}")
                yield proxy
            finally:
                proxy.close()
                process.stdin.close()
                process.stdout.close()
