"""What no file may hold is found, and an exception that excepts nothing is a finding too."""

import pytest

from hack import check_content

FOUND = [
    "pip install --index-url http://mirror/simple x",
    '"resolved": "https://mirror/x.tgz"',
    'source = { registry = "https://mirror" }',
    "wheel @ https://mirror.example/packages/x.whl",
    "GOPROXY=direct go build",
    "cp /home/someone/x .",
    "in /work/x/y",
    "/root/.kube/config",
]
FINE = [
    "uv pip compile --no-emit-index-url",
    "/host/home/kubernetes/bin/nvidia and /home/kubernetes/bin/nvidia",
    "docs/work/notes.md",
    "the network/work/boundary",
    "/rootfs/x",
]


@pytest.mark.parametrize("line", FOUND)
def test_forbidden_content_is_found(line):
    assert len(check_content.findings_in("a.md", f"first line\n{line}\n")) == 1
    assert check_content.findings_in("a.md", line)[0].startswith("a.md:1: ")


@pytest.mark.parametrize("line", FINE)
def test_what_only_looks_like_it_is_not(line):
    assert check_content.findings_in("a.md", line) == []


def test_a_long_source_file_is_found_and_a_long_page_is_not():
    text = "x = 1\n" * (check_content.MAX_LINES + 1)
    assert check_content.findings_in("agent/x.py", text) == [
        "agent/x.py: 351 lines, more than 350: split it along its parts"
    ]
    assert check_content.findings_in("docs/x.md", text) == []
    assert check_content.findings_in("muster/pb/x_pb2.py", text) == []


def test_a_checkout_is_searched_without_caches_and_binaries(tmp_path):
    for name in ("a.md", ".venv/a.md", ".ci/run", "deep/er/b.py", "x.egg-info/a.md", ".git/a"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("/home/someone/x")
    (tmp_path / "image.bin").write_bytes(b"\0/home/someone/x")
    found = check_content.findings(tmp_path, {"a.md": "an example", "gone.md": "no longer there"})
    assert [line.split(":")[0] for line in found] == [".ci/run", "deep/er/b.py", "gone.md"]
