"""A registry that misbehaves on order: a reverse proxy with faults, on loopback.

In: the address of a real registry; `faults`, which a test changes while it runs. Out: the registry's answers, or what a
fault makes of them; every request that came, in `requests`.

Invariant: without faults every byte goes through as it came.
"""

import collections
import dataclasses
import http.client
import http.server
import re
import threading
import time
from collections.abc import Mapping
from typing import Any

_CHUNK = 64 * 1024
_HOP = frozenset(("connection", "transfer-encoding", "keep-alive", "content-length"))


@dataclasses.dataclass(kw_only=True)
class Fault:
    """What happens to requests whose path matches."""

    path: str = ""
    """Regular expression, searched."""
    method: str = ""
    """Empty: any."""
    status: int = 0
    """Answer this instead of asking."""
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    corrupt: bool = False
    """Change one byte in the middle of the body."""
    stall_after: int | None = None
    """Send so many bytes of the body, then nothing more, and keep the connection."""
    cut_after: int | None = None
    """Send so many bytes of the body, then close."""
    times: int | None = None
    """None: until it is removed."""

    def fits(self, method: str, path: str) -> bool:
        return self.times != 0 and self.method in {"", method} and re.search(self.path, path) is not None


class Proxy:
    """Serves until stopped. `address` is host:port."""

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream
        self.faults: list[Fault] = []
        self.bytes_per_second: float | None = None
        """Of all bodies together."""
        self.requests: collections.deque[tuple[str, str]] = collections.deque(maxlen=10_000)
        self.body_bytes = 0
        self.path_bytes: collections.Counter[str] = collections.Counter()
        """Of bodies, by path."""
        self._gate = threading.Lock()
        self._free_at = 0.0
        self._stopping = threading.Event()
        handler = type("Handler", (_Handler,), {"proxy": self})
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._server.shutdown()
        self._server.server_close()

    def fault_of(self, method: str, path: str) -> Fault:
        """Return the first fault that fits and count it; without one, a fault that does nothing."""
        for fault in self.faults:
            if fault.fits(method, path):
                if fault.times is not None:
                    fault.times -= 1
                return fault
        return Fault()

    def spend(self, path: str, size: int) -> None:
        """Wait until so many bytes may pass."""
        with self._gate:
            self.body_bytes += size
            self.path_bytes[path] += size
            if self.bytes_per_second is None:
                return
            now = time.monotonic()
            self._free_at = max(now, self._free_at) + size / self.bytes_per_second
            wait = self._free_at - now
        self._stopping.wait(wait)

    def hang(self) -> None:
        """Keep a connection without a word until the proxy stops."""
        self._stopping.wait()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: Proxy

    def do_GET(self) -> None:
        self._pass()

    def do_HEAD(self) -> None:
        self._pass()

    def log_message(self, *_: Any) -> None:
        """Say nothing: `requests` is the log."""

    def _pass(self) -> None:
        self.proxy.requests.append((self.command, self.path))
        fault = self.proxy.fault_of(self.command, self.path)
        if fault.status:
            self._refuse(fault)
            return
        connection = http.client.HTTPConnection(self.proxy.upstream, timeout=30)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
            connection.request(self.command, self.path, headers=headers)
            self._answer(connection.getresponse(), fault)
        except OSError:
            self.close_connection = True
        finally:
            connection.close()

    def _refuse(self, fault: Fault) -> None:
        body = b'{"errors":[{"code":"FAULT","message":"made by the proxy"}]}'
        self.send_response(fault.status)
        for name, value in fault.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _answer(self, response: http.client.HTTPResponse, fault: Fault) -> None:
        size = int(response.getheader("Content-Length") or 0)
        self.send_response(response.status)
        for name, value in response.getheaders():
            if name.lower() not in _HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        sent = 0
        while self.command != "HEAD" and (data := response.read(_CHUNK)):
            for limit, end in ((fault.stall_after, self.proxy.hang), (fault.cut_after, lambda: None)):
                if limit is not None and sent + len(data) > limit:
                    self._write(data[: limit - sent])
                    end()
                    self.close_connection = True
                    return
            if fault.corrupt and sent <= size // 2 < sent + len(data):
                place = size // 2 - sent
                data = data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]
            self._write(data)
            sent += len(data)

    def _write(self, data: bytes) -> None:
        self.proxy.spend(self.path, len(data))
        self.wfile.write(data)
        self.wfile.flush()
