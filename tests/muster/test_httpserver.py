"""A listener in a thread: its port is given back, whether it ever answered or not."""

import http.server
import urllib.error
import urllib.request

import pytest

from muster.httpserver import Listener, ThreadServer


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_it_answers_until_it_is_closed_and_gives_its_port_back(host):
    server = ThreadServer(Listener((host, 0), http.server.BaseHTTPRequestHandler), "test", 0.05)
    server.start()
    with pytest.raises(urllib.error.HTTPError, match="501"):  # the base class knows no method
        urllib.request.urlopen(f"http://{f'[{host}]' if ':' in host else host}:{server.port}/", timeout=20)
    server.close()
    Listener((host, server.port), http.server.BaseHTTPRequestHandler).server_close()


def test_one_that_never_began_can_be_closed():
    server = ThreadServer(Listener(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler), "test")
    server.close()
    Listener(("127.0.0.1", server.port), http.server.BaseHTTPRequestHandler).server_close()
