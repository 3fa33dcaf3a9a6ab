"""A fake process table is looked through while processes end in it, as a real one is."""

from hack.fakenode import proctable


def test_a_process_that_ends_while_the_table_is_looked_through_is_not_found(tmp_path):
    left, ended = tmp_path / "proc" / "1001", tmp_path / "proc" / "1002"
    left.mkdir(parents=True)
    (left / "cmdline").write_bytes(b"/usr/bin/kubelet\0--v=2\0")
    ended.mkdir()
    assert proctable.pids_named(tmp_path, "kubelet") == (1001,)
