"""An HTTP server on loopback that answers by a table, and the hosts.toml that leads to it."""

import contextlib
import http.server
import threading
import time


class Server:
    """Answers by a table of path prefix -> function(handler)."""

    def __init__(self):
        self.routes, self.seen = {}, []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer.seen.append((self.command, self.path, self.headers.get("Authorization", "")))
                for prefix, answer in outer.routes.items():
                    if self.path.startswith(prefix):
                        answer(self)
                        return
                reply(self, 404)

            do_HEAD = do_GET  # noqa: N815

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self):
        self._server.shutdown()
        self._server.server_close()


def reply(handler, status, body=b"", **headers):
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body)


def trust(folder, host, *mirrors):
    (folder / host).mkdir()
    hosts = "".join(f'[host."http://{mirror}"]\ncapabilities = ["pull", "resolve"]\n' for mirror in mirrors)
    (folder / host / "hosts.toml").write_text(f'server = "http://{host}"\n{hosts}')


def dripper(given_up):
    """Return an answer of a byte now and then, without end; `given_up` is released once nobody reads it any more."""

    def drip(handler):
        with contextlib.suppress(OSError):
            while True:
                handler.wfile.write(b"H")
                time.sleep(0.02)
        given_up.release()

    return drip
