"""State files of a lazy snapshotter: whole, torn, and of nonsense."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core import warmlazy

# As stargz-snapshotter 0.18 writes it.
REAL = '{"digest":"sha256:a9093f23","size":9484263,"fetchedSize":84263,"fetchedPercent":0.8884506893155536}\n'


def test_a_real_file():
    share = warmlazy.parse(REAL)
    assert (share.digest, share.size, share.fetched, share.error) == ("sha256:a9093f23", 9484263, 84263, "")


def test_bytes_count_and_the_percentage_does_not():
    said = json.loads(REAL) | {"fetchedPercent": 100, "error": "failed to read: EIO"}
    share = warmlazy.parse(json.dumps(said))
    assert share.fraction < 0.01
    assert share.error == "failed to read: EIO"


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "{}", '{"size": 0, "fetchedSize": 0, "digest": "x"}', '{"size": "big"}', "[" * 2_000]
)
def test_nonsense_says_nothing(text):
    assert warmlazy.parse(text) is None


@given(st.integers(0, len(REAL) - 2))
def test_a_torn_file_says_nothing(length):
    assert warmlazy.parse(REAL[:length]) is None


@given(st.integers(1, 2**62), st.integers(-(2**62), 2**62))
def test_a_share_is_a_share(size, fetched):
    share = warmlazy.parse(json.dumps({"digest": "d", "size": size, "fetchedSize": fetched}))
    assert 0 <= share.fraction <= 1


@pytest.mark.parametrize(
    ("mounts", "folders"),
    [
        ((("overlay", "overlay", ("index=off", "lowerdir=/3/fs:/2/fs:/1/fs")),), ("/3/fs", "/2/fs", "/1/fs")),
        ((("bind", "/1/fs", ("ro", "rbind")),), ("/1/fs",)),
        ((("overlay", "overlay", ("ro",)),), ()),
        ((("erofs", "/1/layer", ()),), ()),
        ((), ()),
    ],
)
def test_where_layers_are(mounts, folders):
    assert warmlazy.folders(mounts) == folders
