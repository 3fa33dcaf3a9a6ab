"""Compile the fake driver with the plain C compiler, once for as long as its sources stay the same.

In: the C files beside this one. Out: `.build/fakenvml/libnvidia-ml.so.1` in the repository.

Invariant: a process never loads a half-written library: it is linked under another name and renamed, under a lock that
parallel tests share.

Why that soname: the binding opens it by name, and glibc also matches a library that is already loaded by its soname.
"""

import fcntl
import os
import pathlib
import subprocess

SOURCES = pathlib.Path(__file__).parent
TARGET = SOURCES.parent.parent / ".build" / "fakenvml" / "libnvidia-ml.so.1"
FLAGS = (
    "-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread",
    "-Wl,-soname,libnvidia-ml.so.1",
)  # fmt: skip


def build() -> pathlib.Path:
    """Compile if a source is newer than the library; return the library's path."""
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    with (TARGET.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_fresh():
            unfinished = TARGET.with_suffix(".new")
            sources = sorted(str(path) for path in SOURCES.glob("*.c"))
            command = [os.environ.get("CC", "cc"), *FLAGS, "-o", str(unfinished), *sources]
            subprocess.run(command, check=True)
            unfinished.replace(TARGET)
    return TARGET


def _is_fresh() -> bool:
    inputs = [path for pattern in ("*.c", "*.h", "*.def", "build.py") for path in SOURCES.glob(pattern)]
    return TARGET.exists() and all(path.stat().st_mtime <= TARGET.stat().st_mtime for path in inputs)
