"""Serve /metrics, /healthz and /readyz of one program, and a page for each further part that somebody probes.

In: a registry to scrape and a word on readiness, one more for each part. Out: plain HTTP on one address, from a thread of its own, so that a
stalled event loop is seen (readyz falls) instead of hiding behind its own silence.
"""

import dataclasses
import http.server
import types
from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from muster import httpserver

_REQUEST_SECONDS = 5.0
"""A client that connects and says nothing is dropped."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    is_ready: bool
    text: str
    """One line for a person."""


class ProbeServer(httpserver.ThreadServer):
    """The HTTP server of one program."""

    def __init__(
        self,
        address: tuple[str, int],
        registry: CollectorRegistry,
        readiness: Callable[[], Readiness],
        *,
        program: str,
        parts: Mapping[str, Callable[[], Readiness]] = types.MappingProxyType({}),
    ) -> None:
        """`parts`: page -> the word on it."""
        handler = _handler(registry, {"/readyz": readiness, **parts}, program)
        super().__init__(_Listener(address, handler), name="probes")


class _Listener(httpserver.Listener):
    request_queue_size = 8


def _handler(
    registry: CollectorRegistry, words: Mapping[str, Callable[[], Readiness]], program: str
) -> type[http.server.BaseHTTPRequestHandler]:
    def metrics() -> tuple[int, str, bytes]:
        return 200, CONTENT_TYPE_PLAIN_0_0_4, generate_latest(registry)

    def healthz() -> tuple[int, str, bytes]:
        return 200, "text/plain", b"ok\n"

    def page_of(readiness: Callable[[], Readiness]) -> Callable[[], tuple[int, str, bytes]]:
        def page() -> tuple[int, str, bytes]:
            word = readiness()
            return 200 if word.is_ready else 503, "text/plain", f"{word.text}\n".encode()

        return page

    pages = {"/metrics": metrics, "/healthz": healthz, **{path: page_of(word) for path, word in words.items()}}

    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = _REQUEST_SECONDS
        server_version, sys_version = program, ""

        def do_GET(self) -> None:
            page = pages.get(self.path.partition("?")[0])
            status, kind, body = page() if page is not None else (404, "text/plain", b"not here\n")
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Scrapes are no news."""

    return Handler
