"""Generated code imports from muster.pb, and drift on either side is named."""

from hack import codegen


def test_strings_that_carry_the_wire_name_are_left_alone():
    line = "DESCRIPTOR = x('muster/v1/feed.proto', 'muster.v1.feed_pb2')"
    assert codegen.rewrite(line) == line


def test_drift_names_changed_missing_and_left_over_files(tmp_path):
    fresh, kept = tmp_path / "fresh", tmp_path / "kept"
    for folder, files in (
        (fresh, {"a.py": "1", "b.pyi": "1", "c.py": "1"}),
        (kept, {"a.py": "1", "b.pyi": "2", "d.py": "1"}),
    ):
        folder.mkdir()
        for name, text in files.items():
            (folder / name).write_text(text)
    assert codegen.differences(fresh, kept) == ["b.pyi", "c.py", "d.py"]


def test_the_committed_stubs_are_what_proto_generates(tmp_path):
    codegen.generate(tmp_path)
    assert codegen.differences(tmp_path, codegen.TARGET) == []
