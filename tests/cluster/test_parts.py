"""Only what was started here is signalled."""

import dataclasses
import http.server
import ssl
import sys
import threading

import psutil
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


@pytest.mark.parametrize("changed", [0, 1], ids=["another boot", "another start"])
def test_a_process_that_has_the_pid_but_not_the_birth_is_left_alone(part, changed):
    words = part.birth.split()
    words[changed] = "1"
    stranger = dataclasses.replace(part, birth=" ".join(words))
    assert stranger.process() is None
    parts.stop(stranger)
    assert part.process() is not None


def test_what_nobody_has_written_down_is_found_by_its_mark(part, tmp_path):
    parts.stop_strays(tmp_path / "another")
    assert part.process() is not None
    parts.stop_strays(tmp_path)
    assert part.process() is None


def test_a_child_that_outlives_its_part_is_found_by_its_mark(tmp_path):
    child = "import subprocess, sys; print(subprocess.Popen(['sleep', '600']).pid, flush=True)"
    started = parts.start("parent", [sys.executable, "-c", child], probe="", log=tmp_path / "log")
    psutil.Process(started.pid).wait(timeout=60)
    orphan = psutil.Process(int((tmp_path / "log").read_text()))
    parts.stop_strays(tmp_path)
    # Nobody may have asked yet how it ended.
    assert not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE


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
