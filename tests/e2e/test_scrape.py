"""The pages of a running agent and a running admitter: promtool finds nothing, and the docs list every metric on them."""

import functools
import pathlib
import re
import subprocess
import urllib.error
import urllib.request

import pytest

from hack import promtool
from hack.fakenode.fleet import Fleet, wait_until
from hack.fakenode.node import FakeNode
from tests import scrapes

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

DOCS = pathlib.Path(__file__).parents[2] / "docs"
WAIT_SECONDS = 90.0
SETTINGS = {"--poll-seconds": "0.3", "--slow-seconds": "0.3", "--start-jitter-seconds": "0"}


def page_of(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            return answer.read().decode()
    except urllib.error.URLError:
        return ""


def documented(*names):
    text = "\n".join((DOCS / name).read_text() for name in names)
    return set(re.findall(r"^\| `(muster_\w+)` \|", text, re.MULTILINE))


def metrics_of(text):
    """Return the metrics of a page; a histogram is one."""
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name, _ in scrapes.series_of(text)}


UNTIL = {
    "gpu-a1": (
        'muster_gpu_state{reason="GpuLost"',
        "muster_reader_memory_bytes ",
        'muster_agent_plane_age_seconds{plane="processes"}',
        "muster_agent_feed_streams 1.0",
    ),
    "admitter": (
        'muster_admitter_node_findings{reason="GpuLost"',
        'muster_admitter_plane_age_seconds{plane="processes"}',
        "muster_admitter_open 1.0",
    ),
}
"""Program -> what must be on its page before it is looked at."""


def is_ready(name, port):
    text = page_of(port)
    return all(part in text for part in UNTIL[name])


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Scrape both once a lost GPU has reached the admitter."""
    folder = tmp_path_factory.mktemp("fleet")
    node = FakeNode(folder, "gpu-a1")
    with Fleet(folder, [node], scale=0.1, settings=SETTINGS) as fleet:
        fleet.start()
        node.lose_gpu(3)
        ports = {name: fleet.metrics[name] for name in ("gpu-a1", "admitter")}
        for name, port in ports.items():
            assert wait_until(functools.partial(is_ready, name, port), WAIT_SECONDS), fleet.log_of(name)[-4000:]
        yield {name: page_of(port) for name, port in ports.items()}


@pytest.mark.parametrize("name", ["gpu-a1", "admitter"])
def test_promtool_finds_nothing(pages, name):
    tool = promtool.find()
    if tool is None:
        pytest.skip("no promtool (make promtool)")
    done = subprocess.run(
        (str(tool), "check", "metrics"), check=False, text=True, capture_output=True, input=pages[name], timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_running_agent_exports_what_the_docs_list_and_nothing_else(pages):
    """What is missing has nothing to say on this node: no Xid came with the loss, and no pod is hit."""
    listed = documented("metrics.md")
    shown = metrics_of(pages["gpu-a1"])
    assert shown - listed == set()
    assert listed - shown <= {"muster_gpu_xids", "muster_pods", "muster_unverified_checks"}


def test_a_running_admitter_exports_what_the_docs_list_and_nothing_else(pages):
    """What is missing is about gangs that wait, and about Nodes on an API server."""
    shown = metrics_of(pages["admitter"])
    assert shown - documented("metrics-admitter.md", "metrics-nodes.md", "images.md") == set()
    absent = documented("metrics-admitter.md") - shown
    assert {name for name in absent if not name.startswith("muster_admitter_oldest_wait")} <= COUNTERS_OF_NOTHING


COUNTERS_OF_NOTHING = {"muster_admitter_feed_refusals_total", "muster_admitter_decisions_total"}
"""Counters by a label that nothing has happened to yet."""


def test_the_planes_whose_age_the_agent_tells_are_those_that_the_admitter_knows(pages):
    named = {
        dict(labels)["plane"]
        for name, labels in scrapes.series_of(pages["admitter"])
        if name.endswith("plane_age_seconds")
    }
    told = {
        dict(labels)["plane"]
        for name, labels in scrapes.series_of(pages["gpu-a1"])
        if name.endswith("plane_age_seconds")
    }
    assert "other" not in named
    assert {"nvml", "kubelet.pods", "kubelet.allocatable"} <= named <= told
