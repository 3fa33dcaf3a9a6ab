"""The go.mod and the linker flags that build a released program out of a module proxy.

In: the program's own go.mod as `go mod edit -json` prints it. Out: text.

Invariant: every dependency has the version that the release itself asks for. A released go.mod that replaces modules
by folders of its own repository is followed to the published module of the same release: `v0.MINOR.PATCH` for
Kubernetes (it requires those as v0.0.0); elsewhere the required version stands.

Why a module of ours around it: `go install PACKAGE@VERSION` refuses a module with such replacements.

Not here: running go (build.py).
"""

import re
from typing import Any

from hack.cluster import versions


def staging_version(version: str) -> str:
    """Return the version of Kubernetes' published parts.

    >>> staging_version("v1.37.2")
    'v0.37.2'
    """
    return re.sub(r"^v1\.", "v0.", version)


def wrapper(program: versions.Program, released: dict[str, Any]) -> str:
    """Return the go.mod of a module that only builds `program`."""
    replaced = [
        f"replace {entry['Old']['Path']} => {entry['Old']['Path']} {staging_version(program.version)}"
        for entry in released.get("Replace") or ()
        if entry["New"]["Path"].startswith("./staging/")
    ]
    godebug = [f"godebug {entry['Key']}={entry['Value']}" for entry in released.get("Godebug") or ()]
    lines = [
        f"module muster.dev/cluster/{program.name}",
        f"go {released['Go']}",
        *godebug,
        f"require {program.module} {program.version}",
        *replaced,
    ]
    return "\n".join(lines) + "\n"


def linker_flags(program: versions.Program) -> str:
    """Return -ldflags: no debug tables, and the version where the program looks for its own."""
    major, minor, _ = program.version.removeprefix("v").split(".", 2)
    values = {"gitVersion": program.version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    stamped = [f"-X {package}.{name}={value}" for package in program.stamps for name, value in values.items()]
    return " ".join(["-s -w", *stamped])
