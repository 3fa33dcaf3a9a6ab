"""Find what no file of the repository may hold: addresses of package registries, paths of one machine, oversize files.

Input: the text files of a checkout. Output: one line per finding, `path:line: what`.

Invariant: an exception is an entry in ALLOWED with its reason, never a pattern that looks away; an entry that is no longer
needed is a finding too.

Why: a lock file or script that names a registry breaks behind a mirror; a machine's path breaks everywhere else; a file
that outgrew one screenful of ideas is no longer read whole (STYLE.md).
"""

import pathlib
import re
import sys
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent

MAX_LINES = 350
"""Source files aim at 300 lines; beyond this they are split."""

SKIPPED_FOLDERS = frozenset((".git", ".venv", ".build", "build", "__pycache__"))
"""Together with every other hidden folder but .ci: caches of tools, never part of the repository."""

GENERATED = ("muster/pb/", "requirements/")
"""No size limit below these."""

SIZED = frozenset((".py", ".sh", ".c", ".h"))
"""Kinds of file that hold logic. A .proto or a manifest is as long as its contract."""

PATTERNS = {
    "a package registry's address": re.compile(
        # What leads to one: lock files with addresses, a client's option, Go's variable. No host is named, here neither.
        r'"resolved": *"http|source = \{ registry|GOPROXY=|--(extra-)?index-url|https?://[\w.-]+/(simple|packages)/'
    ),
    "a path of one machine": re.compile(r"(?<![\w.-])/(home/(?!kubernetes/)|Users/|root/|work/)[\w.-]"),
}

ALLOWED: dict[str, str] = {
    "agent/model/planes.py": "one value type per plane of the capture schema, read beside it; no logic",
    "agent/reader/nvml.py": "one function per NVML call, compared with what the fake driver exports; no logic",
    "hack/check_content.py": "the patterns themselves",
    "tests/hack/test_check_content.py": "the patterns' examples",
}
"""File -> why it may hold what the patterns find, or be longer than MAX_LINES."""


def text_files(root: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield the files of a checkout, hidden folders and build products aside, sorted."""
    for path in sorted(root.iterdir()):
        if path.is_symlink():
            continue
        if path.is_dir():
            hidden = path.name.startswith(".") and path.name != ".ci"
            if not hidden and path.name not in SKIPPED_FOLDERS and not path.name.endswith(".egg-info"):
                yield from text_files(path)
        elif path.is_file() and b"\0" not in path.read_bytes()[:8192]:
            yield path


def findings_in(name: str, text: str) -> list[str]:
    """Return the findings of one file, exceptions not considered.

    >>> findings_in("a.md", "see /home/someone/notes")
    ['a.md:1: a path of one machine: /home/s']
    """
    lines = text.splitlines()
    found = [
        f"{name}:{number}: {what}: {match.group()}"
        for number, line in enumerate(lines, start=1)
        for what, pattern in PATTERNS.items()
        for match in pattern.finditer(line)
    ]
    if pathlib.PurePosixPath(name).suffix in SIZED and not name.startswith(GENERATED) and len(lines) > MAX_LINES:
        found.append(f"{name}: {len(lines)} lines, more than {MAX_LINES}: split it along its parts")
    return found


def findings(root: pathlib.Path, allowed: dict[str, str]) -> list[str]:
    """Return all findings of a checkout, and the exceptions that except nothing."""
    result: list[str] = []
    needed: set[str] = set()
    for path in text_files(root):
        name = path.relative_to(root).as_posix()
        found = findings_in(name, path.read_text(errors="replace"))
        if found and name in allowed:
            needed.add(name)
        else:
            result.extend(found)
    result.extend(f"{name}: is in ALLOWED and needs no exception" for name in sorted(allowed.keys() - needed))
    return result


def main() -> int:
    found = findings(ROOT, ALLOWED)
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
