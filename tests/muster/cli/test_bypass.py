"""A bypass during an outage: an API server that answers some requests and not others. A whole one: tests/cluster/test_bypass.py.

The server here is a real one on a unix socket; the kubectl that is found in the PATH leads to it.
"""

import collections
import http.server
import json
import socketserver
import stat
import threading

import pytest
from click.testing import CliRunner

from muster.cli import bypass
from muster.cli.connection import Exit
from muster.model import labels

KUBECTL = """#!/bin/sh
for word in "$@"; do case $word in --unix-socket=*) ln -s "{socket}" "${{word#*=}}" ;; esac; done
echo "Starting to serve"
exec sleep 600
"""
PODS, JOBS = "/api/v1/namespaces/ml/pods", "/apis/batch/v1/namespaces/ml/jobs"


class ApiServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Pods of a namespace, and how many of the next requests (method, path) get no answer."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, path):
        super().__init__(str(path), Handler)
        self.pods = {name: pod(name) for name in ("a", "b", "c")}
        self.silent = collections.Counter()
        self.refusing = {}

    def handle_error(self, *_):
        """Who is hung up on hangs up."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path, server = self.path.partition("?")[0], self.server
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        if server.silent[self.command, path]:
            server.silent[self.command, path] -= 1
            self.close_connection = True
            return
        if path in server.refusing:
            status, words = server.refusing[path]
            self.answer(status, words)
            return
        if self.command == "PATCH":
            server.pods[path.rpartition("/")[2]]["spec"]["schedulingGates"] = []
        self.answer(200, json.dumps({"items": list(server.pods.values())} if path == PODS else body).encode())

    def answer(self, status, content):
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_POST(self):
        self.do_GET()

    def do_PATCH(self):
        self.do_GET()

    def log_message(self, *_):
        """Nobody reads it."""


def pod(name):
    metadata = {"name": name, "namespace": "ml", "uid": name}
    return {"metadata": metadata, "spec": {"schedulingGates": [{"name": labels.GANG.full}]}}


@pytest.fixture
def api(tmp_path, monkeypatch):
    monkeypatch.setattr(bypass, "PAUSE_SECONDS", 0.0)
    (tmp_path / "bin").mkdir()
    kubectl = tmp_path / "bin" / "kubectl"
    kubectl.write_text(KUBECTL.format(socket=tmp_path / "api.sock"))
    kubectl.chmod(kubectl.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{kubectl.parent}:/usr/bin:/bin")
    with ApiServer(tmp_path / "api.sock") as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def run():
    result = CliRunner().invoke(bypass.command, ["namespace/ml", "--yes", "--json"])
    lines = result.stdout.splitlines()
    return result.exit_code, json.loads(lines[-1]) if lines else {}


def gated(api):
    return sorted(name for name, each in api.pods.items() if each["spec"]["schedulingGates"])


def test_a_step_without_an_answer_is_tried_again_and_the_others_go_on(api):
    api.silent["PATCH", f"{PODS}/b"] = 1
    code, record = run()
    assert (code, record["done"], record["left"]) == (Exit.FINE, {"pod": 3}, {})
    assert gated(api) == []


def test_the_proxys_words_that_nobody_is_there_end_nothing(api):
    api.refusing[f"{PODS}/b"] = (502, b"dial tcp 10.0.0.1:6443: connect: connection refused")
    code, record = run()
    assert (code, record["done"]) == (Exit.SOMETHING, {"pod": 2})
    assert record["left"]["pod ml/b"].startswith("no answer")
    assert gated(api) == ["b"]


@pytest.mark.parametrize("path", [PODS, JOBS])
def test_a_list_without_an_answer_is_read_again(api, path):
    api.silent["GET", path] = bypass.TRIES - 1
    code, record = run()
    assert (code, record["left"]) == (Exit.FINE, {})
    assert gated(api) == []


def test_a_list_that_gets_none_is_said_to_be_unread_and_the_rest_is_done(api):
    api.silent["GET", JOBS] = 1000
    code, record = run()
    assert (code, record["done"]) == (Exit.SOMETHING, {"pod": 3})
    assert record["left"].keys() == {JOBS}
    assert record["left"][JOBS].startswith("cannot be listed: no answer: ")
    assert gated(api) == []


def test_who_is_asking_and_what_time_it_is_keep_nothing_from_being_let_go(api):
    for path in ("/apis/authentication.k8s.io/v1/selfsubjectreviews", "/apis/events.k8s.io/v1/namespaces/ml/events"):
        api.silent["POST", path] = 1000
    api.refusing["/version"] = (429, b"too many requests")
    code, record = run()
    assert (code, record["actor"], record["done"]) == (Exit.FINE, "somebody", {"pod": 3})


def test_an_api_server_out_of_reach_is_said_at_once(api):
    api.silent["GET", "/version"] = 1000
    code, record = run()
    assert (code, record) == (Exit.NO_ANSWER, {})
    assert gated(api) == ["a", "b", "c"]
