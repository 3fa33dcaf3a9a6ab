"""Decisions are appended, one JSON object a line, and a full disk stops nothing."""

import datetime
import json
import pathlib

from admitter.core import viewhash
from admitter.model.decision import Event
from admitter.publish.decisionlog import DecisionLog
from tests.admitter.clusters import a_node, a_view

AT = datetime.datetime(2026, 12, 1, 10, tzinfo=datetime.UTC)
VIEW = a_view(a_node("n1"), version=9)
EVENT = Event(kind="leased", gang="a/b", actor="admitter", rule="admit", detail="3 pods on 1 nodes", lease_id="t1-x-1")


def test_lines_are_only_ever_added(tmp_path):
    path = tmp_path / "log"
    for term in (1, 2):
        log = DecisionLog(path, lambda: AT)
        log.write([EVENT], term=term, view=VIEW)
        log.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["term"] for line in lines] == [1, 2]
    assert lines[0] == {
        "at": "2026-12-01T10:00:00Z",
        "term": 1,
        "snapshot_version": 9,
        "snapshot_hash": viewhash.ViewHash().of(VIEW),
        "kind": "leased",
        "gang": "a/b",
        "actor": "admitter",
        "rule": "admit",
        "detail": "3 pods on 1 nodes",
        "lease_id": "t1-x-1",
        "node": "",
        "reason": "",
    }


def test_a_line_that_cannot_be_written_is_counted():
    log = DecisionLog(pathlib.Path("/dev/full"), lambda: AT)
    log.write([EVENT, EVENT], term=1, view=VIEW)
    log.close()
    assert log.lost == 2


def test_without_a_path_nothing_is_lost():
    log = DecisionLog(None, lambda: AT)
    log.write([EVENT], term=1, view=VIEW)
    log.close()
    assert log.lost == 0
