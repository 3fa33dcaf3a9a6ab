"""Only what was started here is signalled."""

import dataclasses
import http.server
import ssl
import sys
import threading

import pytest

from hack.cluster import parts

SLEEPER = [sys.executable, "-c", "import time; print('here', flush=True); time.sleep(600)"]


@pytest.fixture
def part(tmp_path):
    started = parts.start("sleeper", SLEEPER, probe="http://127.0.0.1:9/", log=tmp_path / "log")
    yield started
    parts.stop(started)


def test_a_started_part_is_found_again_and_stopped(part):
    again = parts.Part(**dataclasses.asdict(part))
    assert again.process().pid == part.pid
    parts.stop(again)
    assert part.process() is None


def test_a_process_that_has_the_pid_but_not_the_start_time_is_left_alone(part):
    stranger = dataclasses.replace(part, started=part.started - 60)
    assert stranger.process() is None
    parts.stop(stranger)
    assert part.process() is not None


def test_stopping_twice_is_no_error(part):
    parts.stop(part)
    parts.stop(part)
    assert part.process() is None


class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(500 if self.path == "/bad" else 200)
        self.end_headers()

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{serving.server_address[1]}"
        serving.shutdown()
        thread.join()


@pytest.mark.parametrize(("path", "wrong"), [("/", ""), ("/bad", "answers 500")])
def test_a_part_works_when_its_probe_says_so(part, server, path, wrong):
    assert parts.fault(dataclasses.replace(part, probe=server + path), ssl.create_default_context()) == wrong


def test_a_part_that_nobody_answers_for_has_a_fault(part):
    assert parts.fault(part, ssl.create_default_context()).startswith("no answer")


def test_a_part_that_died_is_not_asked(part):
    parts.stop(part)
    assert parts.fault(part, ssl.create_default_context()) == "not running"
