"""The mutating webhook: HTTPS on an address of its own, for API servers that serve no MutatingAdmissionPolicy.

In: AdmissionReviews. Out: their answers. Threads of its own, so that an event loop that is busy placing holds up no pod's
creation; the API server waits two seconds and then goes on without us (failurePolicy Ignore).

Invariants: every replica answers, leader or not: what is asked rests on the pod alone. The certificate is read again when its
file has changed, and a pair that does not fit leaves the one before in use. A review is bounded in size and time.

Not here: which pods (core/gating.py), what the API server is told of us (publish/webhookconfig.py).
"""

import http.server
import json
import pathlib
import socket
import ssl
import threading

import structlog

from admitter.core import gating
from admitter.core.gating import Rule
from muster import tls

_LOG = structlog.get_logger(__name__)

MAX_BYTES = 4 * 1024 * 1024
"""A pod is 1.5 MiB at most in etcd; a review holds it once at a creation."""
REQUEST_SECONDS = 5.0
_PATHS = {f"/gate/{rule.value}": rule for rule in Rule}


class Webhook:
    """The server of one program."""

    def __init__(self, address: tuple[str, int], files: tls.Files) -> None:
        """OSError if the address is taken."""
        self._files = files
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._loaded: object = None
        self._server = _server(address, self)
        self._thread = threading.Thread(target=self._server.serve_forever, name="webhook", daemon=True)

    @property
    def port(self) -> int:
        """The port it listens on; asked for as 0, the system's choice."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def close(self) -> None:
        """Stop answering and give the port back."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

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


def _server(address: tuple[str, int], webhook: Webhook) -> http.server.HTTPServer:
    class Server(http.server.ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        daemon_threads = True
        request_queue_size = 128

        def get_request(self) -> tuple[socket.socket, object]:
            raw, peer = super().get_request()
            raw.settimeout(REQUEST_SECONDS)
            return webhook.wrap(raw), peer

        def handle_error(self, *_: object) -> None:
            """A client that speaks no TLS, or hangs up, is no news."""

    return Server(address, _Handler)


class _Handler(http.server.BaseHTTPRequestHandler):
    timeout = REQUEST_SECONDS
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
            try:
                review = json.loads(self.rfile.read(int(length)))
            except (ValueError, RecursionError):
                self._send(400, b"not JSON\n", "text/plain")
                return
            self._send(200, json.dumps(gating.answer(review, rule)).encode(), "application/json")

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if status != 200:
            # What was sent after the head was not read.
            self.close_connection = True
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Every pod that is made asks."""
