"""An HTTP server in threads of its own: a stalled event loop neither holds it up nor hides behind its silence.

In: an address and a handler class, or a server made of them. Out: `start`, `close`, and the port that it got.

Not here: what is answered (probes.py; the admitter's services/webhook.py).
"""

import http.server
import socket
import threading


class Listener(http.server.ThreadingHTTPServer):
    """Listens on IPv4 or IPv6, as the address says."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[http.server.BaseHTTPRequestHandler]) -> None:
        """OSError if the address is taken."""
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)


class ThreadServer:
    """One listener and the thread that accepts for it."""

    def __init__(self, listener: Listener, name: str, look_seconds: float = 0.5) -> None:
        """`look_seconds`: between two looks of the accepting thread at what else there is to do."""
        self._listener = listener
        self._thread = threading.Thread(target=listener.serve_forever, args=(look_seconds,), name=name, daemon=True)

    @property
    def port(self) -> int:
        """The port it listens on; asked for as 0, the system's choice."""
        return int(self._listener.server_address[1])

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def close(self) -> None:
        """Stop answering, if it ever began, and give the port back."""
        if self._thread.is_alive():
            self._listener.shutdown()
            self._thread.join()
        self._listener.server_close()
