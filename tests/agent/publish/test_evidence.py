"""The evidence file: what a restart keeps, and what it survives."""

import datetime
import json

import grpc
import hypothesis
import hypothesis.strategies as st
import pytest
import structlog.testing

from agent.core.judge import judge
from agent.model.history import Evidence as Hit
from agent.model.history import History
from agent.model.policy import Policy
from agent.publish import evidence, feed
from muster.model.lease import LeaseSet, NodeLease
from tests import builders
from tests.builders import WHOLE

NOW = datetime.datetime(2026, 12, 1, 10, tzinfo=datetime.UTC)
HISTORY = History(started=True, boot_id="b1", evidence=(Hit(key="B2|nvidia.com/gpu|", since=NOW, samples=2),))


def test_a_restart_goes_on_where_the_agent_stopped(tmp_path):
    """History and learned maximum come back; the start counter has risen."""
    first = evidence.EvidenceFile(tmp_path / "made" / "here", "b1")
    began = first.start(100.0)
    kept = evidence.dataclasses.replace(began, history=HISTORY, learned_gpus=8)
    first.keep(kept)
    again = evidence.EvidenceFile(tmp_path / "made" / "here", "b1").start(50.0)
    assert again == evidence.dataclasses.replace(kept, start_counter=began.start_counter + 1)


def test_another_boot_begins_anew(tmp_path):
    """Nothing of the last boot counts."""
    file = evidence.EvidenceFile(tmp_path, "b1")
    file.keep(evidence.dataclasses.replace(file.start(1.0), history=HISTORY, learned_gpus=8))
    assert evidence.EvidenceFile(tmp_path, "b2").start(1.0) == evidence.Evidence(boot_id="b2", start_counter=1000)


def test_a_lost_file_does_not_lower_the_counter(tmp_path):
    """An admitter keeps believing the higher counter, so it must rise even without a file."""
    first = evidence.EvidenceFile(tmp_path, "b1").start(100.0)
    (tmp_path / evidence.FILE_NAME).unlink()
    assert evidence.EvidenceFile(tmp_path, "b1").start(101.0).start_counter > first.start_counter


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe", b"null", b'{"schema": "muster.evidence/v9", "boot_id": "b1", "start_counter": 4}',
                b'{"schema": "muster.evidence/v1", "boot_id": "b1", "start_counter": -4}', b"[" * 100_000]
)  # fmt: skip
def test_a_broken_file_is_said_and_ignored(tmp_path, content):
    """The log names the file; the agent starts."""
    (tmp_path / evidence.FILE_NAME).write_bytes(content)
    with structlog.testing.capture_logs() as logs:
        found = evidence.EvidenceFile(tmp_path, "b1").start(2.0)
    assert found == evidence.Evidence(boot_id="b1", start_counter=2000)
    assert [line["event"] for line in logs] == ["evidence is ignored: it cannot be read"]


@hypothesis.given(st.binary(max_size=300))
def test_no_content_raises(tmp_path_factory, content):
    """Whatever the bytes, a start returns."""
    folder = tmp_path_factory.mktemp("evidence")
    (folder / evidence.FILE_NAME).write_bytes(content)
    with structlog.testing.capture_logs():
        assert evidence.EvidenceFile(folder, "b1").start(1.0).start_counter == 1000


NUMBERS = st.one_of(
    st.integers(-2, 2), st.integers(-(2**70), 2**70), st.floats(), st.booleans(), st.none(), st.text(max_size=2)
)
LEASE = {"id": "l1", "gang": "ml/train", "resource": "nvidia.com/gpu", "units": 8}


@pytest.mark.parametrize(
    "leases",
    [{"term": -1}, {"term": 2**70}, {"term": 3, "leases": [{**LEASE, "units": 2**70}]},
     {"term": 3, "leases": [{**LEASE, "id": "\ud800"}]}]
)  # fmt: skip
def test_leases_that_the_wire_cannot_carry_cost_only_themselves(tmp_path, leases):
    """They made the feed fail at every start until the next boot."""
    file = evidence.EvidenceFile(tmp_path, "b1")
    kept = evidence.dataclasses.replace(file.start(1.0), history=HISTORY, learned_gpus=8)
    file.keep(kept)
    stored = json.loads((tmp_path / evidence.FILE_NAME).read_text())
    (tmp_path / evidence.FILE_NAME).write_text(json.dumps({**stored, "leases": leases}))
    with structlog.testing.capture_logs() as logs:
        found = evidence.EvidenceFile(tmp_path, "b1").start(1.0)
    assert found == evidence.dataclasses.replace(kept, start_counter=kept.start_counter + 1)
    assert [line["event"] for line in logs] == ["the leases in the evidence are ignored"]


@hypothesis.given(NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.text(st.characters(categories=("Cs", "L")), max_size=3))
def test_whatever_the_numbers_are_the_feed_begins(tmp_path_factory, term, units, counter, learned, text):
    """Each is JSON, so that the file is one of ours by its form."""
    folder = tmp_path_factory.mktemp("evidence")
    leases = {"term": term, "leases": [{**LEASE, "units": units, "id": text}]}
    content = {"schema": evidence.SCHEMA, "boot_id": "b1", "start_counter": counter, "learned_gpus": learned}
    (folder / evidence.FILE_NAME).write_text(json.dumps({**content, "leases": leases}))
    with structlog.testing.capture_logs():
        began = evidence.EvidenceFile(folder, "b1").start(1.0)
    hello = feed.Hello(node="n1", boot_id="b1", start_counter=began.start_counter, version="1")
    credentials = grpc.ssl_channel_credentials
    publisher = feed.FeedPublisher(addresses=(), credentials=credentials, hello=hello, held=began.leases)
    assert publisher.hello().hello.start_counter == began.start_counter
    assert 0 <= began.learned_gpus < 2**63


@pytest.mark.parametrize("number", [-1, 2**60, 2**70, 10**400, 1e300])
@pytest.mark.parametrize(
    ("history", "field"),
    [
        (
            {"evidence": [{"key": "B2||", "since": "2026-12-01T10:00:00Z", "samples": "?"}]},
            "$.history.evidence[0].samples",
        ),
        (
            {"resources": {"nvidia.com/gpu": {"verdict": "OK", "strict": "?"}}},
            "$.history.resources.nvidia.com/gpu.strict",
        ),
        ({"resources": {"a": {"verdict": "OK", "seen_lenient": "?"}}}, "$.history.resources.a.seen_lenient"),
    ],
)
def test_a_number_that_nobody_remembered_is_named(tmp_path, history, field, number):
    """A floor that high would publish a rise at the first sample (faults.md P4)."""
    text = json.dumps({"schema": evidence.SCHEMA, "boot_id": "b1", "start_counter": 4, "history": history})
    (tmp_path / evidence.FILE_NAME).write_text(text.replace('"?"', str(number)))
    with structlog.testing.capture_logs() as logs:
        found = evidence.EvidenceFile(tmp_path, "b1").start(1.0)
    assert found == evidence.Evidence(boot_id="b1", start_counter=1000)
    assert [line["error"].partition(": ")[0] for line in logs] == [field]


MEMORY = st.fixed_dictionaries(
    {"verdict": st.sampled_from(["OK", "OVER"])},
    optional=dict.fromkeys(("strict", "lenient", "seen_strict", "seen_lenient"), NUMBERS),
)


@hypothesis.given(st.dictionaries(st.text(max_size=3), MEMORY, max_size=3), NUMBERS)
def test_whatever_a_history_holds_the_first_cycle_is_judged_or_the_file_is_ignored(
    tmp_path_factory, resources, samples
):
    folder = tmp_path_factory.mktemp("evidence")
    hit = {"key": "B2|nvidia.com/gpu|", "since": "2026-12-01T10:00:00Z", "samples": samples}
    content = {
        "started": True,
        "boot_id": "b1",
        "resources": {**resources, WHOLE: {"verdict": "OK", "strict": samples}},
    }
    text = {"schema": evidence.SCHEMA, "boot_id": "b1", "start_counter": 4, "history": {**content, "evidence": [hit]}}
    (folder / evidence.FILE_NAME).write_text(json.dumps(text))
    with structlog.testing.capture_logs():
        began = evidence.EvidenceFile(folder, "b1").start(1.0)
    report = judge(began.history, builders.a_node(), Policy(), api_server=True)[1]
    assert 0 <= report.resources[WHOLE].admit_strict.value <= 8


LEASES = st.builds(
    LeaseSet,
    term=st.integers(0, 9),
    leases=st.lists(
        st.builds(
            NodeLease,
            id=st.text(max_size=8),
            gang=st.just("ml/train"),
            resource=st.just("nvidia.com/gpu"),
            units=st.integers(0, 8),
            pod_uids=st.lists(st.text(max_size=4), max_size=3).map(tuple),
        ),
        max_size=3,
    ).map(tuple),
)
STEPS = st.lists(
    st.one_of(LEASES, st.sampled_from(["cycle", "restart", "killed while writing", "reboot"])), max_size=12
)


@hypothesis.given(STEPS)
def test_a_restart_at_any_point_holds_what_was_held_and_a_reboot_nothing(tmp_path_factory, steps):
    """Decision 0004: where no pod exists yet, the agents are the only memory of a lease."""
    folder, boot, number = tmp_path_factory.mktemp("evidence"), 1, 1
    file = evidence.EvidenceFile(folder, "b1")
    now, held = file.start(1.0), LeaseSet()
    for step in steps:
        match step:
            case LeaseSet():
                held = step
                now = evidence.dataclasses.replace(now, leases=step)
                file.keep(now)
            case "cycle":
                number += 1
                now = evidence.dataclasses.replace(now, history=History(started=True), learned_gpus=number)
                file.keep(now)
            case "reboot":
                boot, held = boot + 1, LeaseSet()
        if step == "killed while writing":
            (folder / evidence.FILE_NAME).with_suffix(".new").write_text('{"schema": "muster')
        if isinstance(step, str) and step != "cycle":
            file = evidence.EvidenceFile(folder, f"b{boot}")
            now = file.start(1.0)
        assert now.leases == held


def test_what_could_not_be_read_back_does_not_replace_what_can(tmp_path):
    """A set of leases beyond all measure costs itself, not the memory of everything else."""
    file = evidence.EvidenceFile(tmp_path, "b1")
    kept = evidence.dataclasses.replace(file.start(1.0), learned_gpus=8)
    file.keep(kept)
    huge = LeaseSet(
        term=1, leases=(NodeLease(id="x" * evidence.MAX_BYTES, gang="a/b", resource="nvidia.com/gpu", units=1),)
    )
    with structlog.testing.capture_logs() as logs:
        file.keep(evidence.dataclasses.replace(kept, leases=huge))
    assert [line["log_level"] for line in logs] == ["warning"]
    assert evidence.EvidenceFile(tmp_path, "b1").start(1.0).learned_gpus == 8


def test_a_directory_that_cannot_be_written_is_said(tmp_path):
    """Evidence is worth a warning, not the agent."""
    (tmp_path / "file").touch()
    with structlog.testing.capture_logs() as logs:
        evidence.EvidenceFile(tmp_path / "file" / "sub", "b1").start(1.0)
    assert [line["log_level"] for line in logs] == ["warning", "warning"]


def test_nothing_new_writes_nothing(tmp_path):
    """A steady node does not touch its file."""
    file = evidence.EvidenceFile(tmp_path, "b1")
    kept = file.start(1.0)
    before = (tmp_path / evidence.FILE_NAME).stat()
    file.keep(kept)
    after = (tmp_path / evidence.FILE_NAME).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert json.loads((tmp_path / evidence.FILE_NAME).read_text())["boot_id"] == "b1"
