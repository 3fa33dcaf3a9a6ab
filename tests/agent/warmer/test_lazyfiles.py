"""Reading a layer opens nothing that is not a plain file of it, whatever its maker put there."""

import os

import pytest

from agent.warmer import lazyfiles


@pytest.fixture
def layer(tmp_path):
    folder = tmp_path / "fs"
    (folder / "opt").mkdir(parents=True)
    (folder / "opt" / "file").write_bytes(b"x" * (lazyfiles.PIECE_BYTES + 5))
    (folder / "empty").touch()
    return folder


def test_all_files_piece_by_piece(layer):
    (layer / "a").write_bytes(b"abc")
    assert list(lazyfiles.pieces(layer)) == [3, lazyfiles.PIECE_BYTES, 5]


def test_no_link_and_no_pipe_is_opened(layer, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"s" * 77)
    (layer / "link").symlink_to(outside / "secret")
    (layer / "folder").symlink_to(outside)
    os.mkfifo(layer / "pipe")
    assert list(lazyfiles.pieces(layer)) == [lazyfiles.PIECE_BYTES, 5]


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
        list(lazyfiles.pieces(tmp_path / "gone"))
