"""A token goes from kubelet's file onto a call, and is read anew each time."""

import pytest

from muster import bearer, settings


def test_the_file_is_read_for_every_call(tmp_path):
    path = tmp_path / "token"
    path.write_text("one\n")
    assert bearer.token_of(bearer.metadata_of(path)) == "one"
    path.write_text("two\n")
    assert bearer.token_of(bearer.metadata_of(path)) == "two"
    assert bearer.metadata_of(None) == ()


@pytest.mark.parametrize("content", [b"", b"  \n", b"two words", b"\xff\xfe", "schlüssel".encode()])
def test_a_file_without_a_token_is_named(tmp_path, content):
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(settings.InvalidSettings, match="token"):
        bearer.metadata_of(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(settings.InvalidSettings, match="No such file"):
        bearer.metadata_of(tmp_path / "none")


NOBODY = {
    "no metadata": None,
    "another scheme": (("authorization", "Basic abc"),),
    "two of them": (("authorization", "Bearer a"), ("authorization", "Bearer b")),
    "bytes": (("authorization", b"Bearer a"),),
}


@pytest.mark.parametrize("metadata", NOBODY.values(), ids=NOBODY)
def test_what_is_no_token_is_nobody(metadata):
    assert bearer.token_of(metadata) == ""
