"""Reading a layer opens nothing that is not a plain file of it, whatever its maker put there."""

import contextlib
import errno
import os
import pathlib
import tempfile

import hypothesis
import pytest
from hypothesis import strategies as st

from agent.warmer import lazyfiles

MIB = 1024 * 1024


def pieces(folder):
    """Return the size of each piece of a layer."""
    sizes, place = [], lazyfiles.BEGINNING
    while place is not None:
        size, place = lazyfiles.read(folder, place)
        sizes.append(size)
    return sizes


def descriptors():
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def layer(tmp_path):
    folder = tmp_path / "fs"
    (folder / "opt").mkdir(parents=True)
    (folder / "opt" / "file").write_bytes(b"x" * (MIB + 5))
    (folder / "empty").touch()
    return folder


def test_all_files_piece_by_piece(layer):
    (layer / "a").write_bytes(b"abc")
    assert pieces(layer) == [MIB, 8]


def test_no_link_and_no_pipe_is_opened(layer, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"s" * 77)
    (layer / "link").symlink_to(outside / "secret")
    (layer / "folder").symlink_to(outside)
    os.mkfifo(layer / "pipe")
    assert pieces(layer) == [MIB, 5]


def test_a_layer_without_files_can_be_probed(tmp_path):
    assert lazyfiles.probe(tmp_path) is None


def test_a_layer_that_says_nothing_of_itself(layer):
    with pytest.raises(FileNotFoundError):
        lazyfiles.state(layer)
    (layer / ".stargz-snapshotter").mkdir()
    with pytest.raises(FileNotFoundError):
        lazyfiles.state(layer)


def test_a_folder_that_is_gone_is_no_empty_layer(tmp_path):
    with pytest.raises(OSError, match="No such file"):
        lazyfiles.read(tmp_path / "gone")
    with pytest.raises(OSError, match="No such file"):
        lazyfiles.probe(tmp_path / "gone")


@hypothesis.given(
    files=st.dictionaries(
        st.lists(st.sampled_from(["a", "a.b", "a0", "b", "\udce4"]), min_size=1, max_size=3).map(tuple),
        st.integers(0, 7),
        max_size=12,
    ),
    entries=st.integers(5, 9),
)
def test_every_byte_is_read_once_wherever_pieces_end(files, entries):
    """Names that sort otherwise than their paths, empty files, and pieces that end at any file or folder."""
    with tempfile.TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        patch.setattr(lazyfiles, "PIECE_BYTES", 3)
        patch.setattr(lazyfiles, "PIECE_ENTRIES", entries)
        folder, total = pathlib.Path(root), 0
        for path, size in files.items():
            with contextlib.suppress(OSError):  # A file stands where a folder is needed, or the other way round.
                folder.joinpath(*path[:-1]).mkdir(parents=True, exist_ok=True)
                folder.joinpath(*path).write_bytes(b"x" * size)
                total += size
        before = descriptors()
        assert sum(pieces(folder)) == total
        assert descriptors() == before


def test_nothing_is_open_between_two_pieces(layer):
    """An open file would keep the kubelet's garbage collection from taking the mount away."""
    before = descriptors()
    size, place = lazyfiles.read(layer)
    assert (size, place) == (MIB, lazyfiles.Place(path=("opt", "file"), offset=MIB))
    assert descriptors() == before
    assert lazyfiles.read(layer, place) == (5, None)


def test_a_piece_that_fails_half_way_counts_what_came(layer, monkeypatch):
    (layer / "a").write_bytes(b"abc")
    stat = os.stat

    def broken(name, **how):
        if name == "opt":
            raise OSError(errno.EIO, "Input/output error")
        return stat(name, **how)

    monkeypatch.setattr(os, "stat", broken)
    before = descriptors()
    size, place = lazyfiles.read(layer)
    assert (size, place.path) == (3, ("empty",))
    with pytest.raises(OSError, match="Input/output error"):
        lazyfiles.read(layer, place)
    with pytest.raises(OSError, match="Input/output error"):
        lazyfiles.probe(layer, place)
    assert descriptors() == before


def test_a_probe_reads_on_from_a_place(layer):
    assert lazyfiles.probe(layer, lazyfiles.Place(path=("opt", "file"), offset=MIB)) is None
    assert lazyfiles.probe(layer, lazyfiles.Place(path=("z",))) is None


def test_a_layer_of_countless_empty_files_is_read_and_probed_bit_by_bit(tmp_path, monkeypatch):
    monkeypatch.setattr(lazyfiles, "PIECE_ENTRIES", 10)
    for number in range(35):
        (tmp_path / f"{number:02}").touch()
    assert pieces(tmp_path) == [0, 0, 0, 0]
    assert lazyfiles.probe(tmp_path) is None


def test_folders_nested_beyond_the_recursion_limit(tmp_path):
    """As deep as a path may be long: no RecursionError, and no descriptor for each of them."""
    (tmp_path / "0").write_bytes(b"x" * 7)
    deep = []
    folder = tmp_path
    for _ in range(1200):
        folder /= "d"
        folder.mkdir()
        deep.append(folder)
    try:
        assert pieces(tmp_path) == [7]
        (tmp_path / "0").unlink()
        assert lazyfiles.probe(tmp_path) is None
    finally:
        # pytest's own removal would recurse.
        for each in reversed(deep):
            each.rmdir()


def test_a_state_file_is_read_whole_and_no_further(layer):
    (layer / ".stargz-snapshotter").mkdir()
    (layer / ".stargz-snapshotter" / "state.json").write_bytes(b"\xff{}")
    assert lazyfiles.state(layer) == "\ufffd{}"
    (layer / ".stargz-snapshotter" / "state.json").write_bytes(b"y" * MIB)
    assert lazyfiles.state(layer) == "y" * lazyfiles.STATE_BYTES


@pytest.mark.parametrize("what", ["file", "folder", "pipe", "link to a folder", "link to a file", "folder as file"])
def test_a_state_that_is_no_plain_file_of_the_layer_says_nothing(layer, tmp_path, what):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    own = layer / ".stargz-snapshotter"
    match what:
        case "file":
            own.write_text("{}")
        case "folder":
            own.mkdir()
        case "pipe":
            own.mkdir()
            os.mkfifo(own / "state.json")
        case "link to a folder":
            own.symlink_to(outside)
        case "link to a file":
            own.mkdir()
            (own / "state.json").symlink_to(outside / "secret")
        case "folder as file":
            (own / "state.json").mkdir(parents=True)
    before = descriptors()
    with pytest.raises(FileNotFoundError):
        lazyfiles.state(layer)
    assert descriptors() == before
