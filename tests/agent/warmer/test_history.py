"""What a node starts often is had ready: from containerd's own events, across restarts of the warmer."""

import datetime
import json
import os
import threading

import pytest

from agent.model.warm import ImageRecord, StoreFacts
from agent.warmer import history
from hack.images import oci
from muster import clock
from tests.agent.warmer.looks import is_warm, settled

NOW = datetime.datetime(2026, 12, 2, 12, tzinfo=datetime.UTC)
ONE, TWO = (f"sha256:{digit * 64}" for digit in "12")
FACTS = StoreFacts(
    records={
        ONE: ImageRecord(digest=TWO),
        "r.io/ml/x:v1": ImageRecord(digest=TWO),
        f"r.io/ml/x@{TWO}": ImageRecord(digest=TWO),
        f"r.io/ml/y@{ONE}": ImageRecord(digest=ONE),
    }
)


@pytest.mark.parametrize(
    ("image", "name"),
    [
        (ONE, "r.io/ml/x:v1"),
        (f"r.io/ml/x@{TWO}", "r.io/ml/x:v1"),
        (f"r.io/ml/y@{ONE}", f"r.io/ml/y@{ONE}"),
        ("r.io/ml/gone:v1", "r.io/ml/gone:v1"),
    ],
    ids=["by id", "by digest, tagged", "by digest alone", "not listed any more"],
)
def test_the_name_that_follows_the_tag(tmp_path, image, name):
    kept = history.History(tmp_path / "h.json")
    for _ in range(2):
        kept.started(image, FACTS, NOW)
    assert [str(wanted.reference) for wanted in kept.wanted(NOW)] == [name]
    assert [wanted.is_habit for wanted in kept.wanted(NOW)] == [True]


def test_it_outlives_the_warmer(tmp_path):
    path = tmp_path / "folder" / "h.json"
    first = history.History(path)
    for _ in range(3):
        first.started("r.io/ml/x:v1", FACTS, NOW)
    first.close(NOW)
    assert history.History(path).wanted(NOW) == first.wanted(NOW) != ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"starts": 5}',
        '{"starts": {"a": 5, "b": ["x", "y"], "c": [9e99, "2026-12-02T12:00:00+00:00"]}}',
        '{"starts": {"r.io/a:1": [Infinity, "2026-12-02T12:00:00+00:00"]}}',
        '{"starts": {"r.io/a:1": [NaN, "2026-12-02T12:00:00+00:00"]}}',
        f'{{"starts": {{"r.io/a:1": [{"9" * 400}, "2026-12-02T12:00:00+00:00"]}}}}',
        '{"starts": {"r.io/a:1": [5, "2026-12-02T12:00:00"]}}',
    ],
    ids=["empty", "a list", "no starts", "no entries", "endless", "no number", "a huge number", "no time zone"],
)
def test_a_file_of_nonsense_is_no_history(tmp_path, text):
    path = tmp_path / "h.json"
    path.write_text(text)
    assert history.History(path).wanted(NOW) == ()


def test_without_a_file_nothing_is_kept():
    kept = history.History(None)
    for _ in range(3):
        kept.started("r.io/ml/x:v1", FACTS, NOW)
    assert kept.wanted(NOW) == ()


def test_starts_come_in_bursts_and_writes_do_not(tmp_path):
    killed, ended = (history.History(tmp_path / f"{name}.json") for name in ("killed", "ended"))
    for _ in range(5):
        killed.started("r.io/ml/x:v1", FACTS, NOW)
        ended.started("r.io/ml/x:v1", FACTS, NOW)
    killed._file.close()
    ended.close(NOW)
    counts = [json.loads((tmp_path / f"{name}.json").read_text())["starts"] for name in ("killed", "ended")]
    assert [count["r.io/ml/x:v1"][0] for count in counts] == [1, 5]


def test_a_disk_that_hangs_holds_up_nobody_who_starts(tmp_path):
    """Containers start just when a disk is busy, and that they do must be heard at once."""
    os.mkfifo(tmp_path / "h.new")  # Opened for writing, it waits for a reader.
    kept = history.History(tmp_path / "h.json")
    starting = threading.Thread(target=kept.started, args=("r.io/ml/x:v1", FACTS, NOW), daemon=True)
    starting.start()
    starting.join(10)
    assert not starting.is_alive()
    (tmp_path / "h.new").read_text()
    kept._file.close()


async def test_an_image_that_the_node_starts_comes_back_by_itself(world, runtime, origin, faulty, name, tmp_path):
    """Started twice, then removed as garbage collection would: it is had ready again, within its own budget."""
    small = name.replace("ml/cuda", "ml/habit")
    oci.push(origin.address, "ml/habit", ["v1"], oci.image([oci.generated(oci.MIB, 300)]))
    here = world(history_file=tmp_path / "h.json", history_budget_gib=1.0)
    await here.start()
    await here.until(lambda _: True, "a first look")
    await here.client.pull(small, None, lease="", handler="")
    for number in range(2):
        runtime.run_ctr("containers", "create", small, f"c{number}", "/true")

    async def has_habit():
        return here.engine._history.wanted(clock.SystemClock().utc())

    await settled(has_habit, bool)
    for number in range(2):
        runtime.run_ctr("containers", "rm", f"c{number}")
    runtime.run_ctr("images", "rm", "--sync", small)
    for listed in runtime.run_ctr("images", "ls", "-q").split():
        runtime.run_ctr("images", "rm", "--sync", listed)
    report = await here.until(is_warm(here, small), "the image again")
    assert here.image(small, report).is_wanted
