"""Others come first, and what is ours is nobody else."""

import datetime

import pytest

from agent.core import warmyield
from agent.model.warm import Ingest

AT = datetime.datetime(2026, 12, 1, tzinfo=datetime.UTC)
OURS = warmyield.Ours(digests=frozenset(["sha256:ours"]), chain_ids=frozenset(["sha256:chain"]))


def ingest(ref, offset):
    return Ingest(ref=ref, offset=offset, updated_at=AT)


@pytest.mark.parametrize(
    ("before", "now", "is_reason"),
    [
        ({}, [ingest("layer-sha256:other", 1)], True),
        ({"layer-sha256:other": 1}, [ingest("layer-sha256:other", 2)], True),
        ({"layer-sha256:other": 2}, [ingest("layer-sha256:other", 2)], False),
        ({}, [ingest("layer-sha256:ours", 1)], False),
        ({"layer-sha256:ours": 1}, [ingest("layer-sha256:ours", 2)], False),
        ({"layer-sha256:other": 1}, [], False),
    ],
    ids=["new", "moves", "lies there", "ours is new", "ours moves", "is done"],
)
def test_ingests(before, now, is_reason):
    assert bool(warmyield.of_ingests(before, now, OURS)) == is_reason


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (f"{warmyield.OWN_PREFIX}1 sha256:other", ""),
        ("extract-1-a sha256:chain", ""),
        ("extract-1-a sha256:other", "another image is being unpacked"),
        ("2f5a0c", "a container is being created"),
    ],
)
def test_prepared_snapshots(key, reason):
    assert warmyield.of_prepare(key, OURS) == reason


def test_written_blobs():
    assert warmyield.of_content("sha256:ours", OURS) == ""
    assert warmyield.of_content("sha256:other", OURS) == "another image is being pulled"
