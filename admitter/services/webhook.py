"""The mutating webhook: HTTPS on an address of its own, for API servers that serve no MutatingAdmissionPolicy.

In: AdmissionReviews. Out: their answers. Threads of its own, so that an event loop that is busy placing holds up no pod's
creation; the API server waits two seconds and then goes on without us (failurePolicy Ignore).

Invariants: every replica answers, leader or not: what is asked rests on the pod alone. The certificate is read again when its
file has changed, and a pair that does not fit leaves the one before in use. A review is bounded in size, and a connection in
time as a whole, however slowly it sends; there are `CONNECTIONS` at a time and no more threads, and one review is parsed at a
time, so that who floods us takes the admitter's loop one turn in two at most.

Why one review a connection: an idle one would hold a place that a pod's creation needs, and one that is closed while the API
server sends on it loses that pod's gate.

Not here: which pods (core/gating.py), what the API server is told of us (publish/webhookconfig.py).
"""

import contextlib
import http.server
import json
import math
import pathlib
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any

import structlog

from admitter.core import gating
from admitter.core.gating import Rule
from muster import httpserver, tls

_LOG = structlog.get_logger(__name__)

MAX_BYTES = 3 * 1024 * 1024
"""An API server itself takes no more in a request; a review of a creation holds the pod once."""
CONNECTIONS = 64
"""At a time: more than the pods that controllers make at once (client-go sends bursts of 30), each here for milliseconds."""
CONNECTION_SECONDS = 5.0
"""For handshake, review and answer together; an API server waits two."""
_LOOK_SECONDS = 0.25
"""Between two looks at how long connections have been open."""
_PATHS = {f"/gate/{rule.value}": rule for rule in Rule}


class Webhook(httpserver.ThreadServer):
    """The server of one program."""

    def __init__(self, address: tuple[str, int], files: tls.Files, monotonic: Callable[[], float]) -> None:
        """OSError if the address is taken."""
        self._files = files
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._loaded: object = None
        super().__init__(_Listener(address, self.wrap, monotonic), "webhook", _LOOK_SECONDS)

    def wrap(self, raw: socket.socket) -> ssl.SSLSocket:
        """Begin TLS with the newest certificate; the handshake itself is left to the connection's own thread."""
        seen = (_state(self._files.certificate), _state(self._files.key))
        if seen != self._loaded:
            try:
                self._context.load_cert_chain(self._files.certificate, self._files.key)
            except (OSError, ssl.SSLError) as error:
                _LOG.warning("the webhook keeps its former certificate", problem=str(error))
            self._loaded = seen
        return self._context.wrap_socket(raw, server_side=True, do_handshake_on_connect=False)


def _state(path: pathlib.Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino


class _Listener(httpserver.Listener):
    """Accepts in one thread, which also ends what has been open for too long."""

    request_queue_size = 128

    def __init__(
        self,
        address: tuple[str, int],
        wrap: Callable[[socket.socket], ssl.SSLSocket],
        monotonic: Callable[[], float],
    ) -> None:
        super().__init__(address, _Handler)
        self._wrap, self._monotonic = wrap, monotonic
        self._lock = threading.Lock()
        """Held while one is closed, too: a number of a socket that is closed may be another's."""
        self._ends: dict[socket.socket, float] = {}
        """Open connection -> when it has had its time."""
        self.parsing = threading.Lock()

    def get_request(self) -> tuple[socket.socket, Any]:
        raw, peer = super().get_request()
        raw.settimeout(CONNECTION_SECONDS)
        return self._wrap(raw), peer

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002 -- the base class's names
        """Take it as one more, or have it closed at once."""
        with self._lock:
            if len(self._ends) >= CONNECTIONS:
                return False
            self._ends[request] = self._monotonic() + CONNECTION_SECONDS
            return True

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._ends.pop(request, None)
            super().shutdown_request(request)

    def service_actions(self) -> None:
        now = self._monotonic()
        with self._lock:
            for connection in [each for each, end in self._ends.items() if end <= now]:
                # It holds its place until its thread has found out.
                self._ends[connection] = math.inf
                with contextlib.suppress(OSError):
                    # Not the method of SSLSocket, which takes the TLS from under that thread.
                    socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def handle_error(self, *_: object) -> None:
        """A client that speaks no TLS, or hangs up, is no news."""


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Listener
    timeout = CONNECTION_SECONDS
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "muster-admitter", ""

    def do_POST(self) -> None:
        rule = _PATHS.get(self.path.partition("?")[0])
        length = self.headers.get("Content-Length") or ""
        if rule is None:
            self._send(404, b"not here\n", "text/plain")
        elif not (length.isascii() and length.isdigit() and int(length) <= MAX_BYTES):
            self._send(413, b"no length, or too much\n", "text/plain")
        else:
            content = self.rfile.read(int(length))
            try:
                with self.server.parsing:
                    answer = gating.answer(json.loads(content), rule)
            except (ValueError, RecursionError):
                self._send(400, b"not JSON\n", "text/plain")
                return
            self._send(200, json.dumps(answer).encode(), "application/json")

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Every pod that is made asks."""
