"""Where the programs of a cluster are: KUBEBUILDER_ASSETS first, then this project's cache.

Invariant: a program found in the cache was built whole; build.py moves it there as its last step.

Why KUBEBUILDER_ASSETS: it is the folder that controller tests already know, so that a machine with binaries builds
nothing. It is asked per program: a folder that holds three of four leaves one to build.

Not here: building (build.py).
"""

import os
import pathlib
import shutil

from hack.cluster import versions

ASSETS_VARIABLE = "KUBEBUILDER_ASSETS"
MANIFESTS = "manifests.yaml"
"""Beside a program that has API objects of its own."""


def cache() -> pathlib.Path:
    """Return the folder outside the repository that everything built is kept in."""
    given = os.environ.get("MUSTER_CACHE")
    root = pathlib.Path(given) if given else pathlib.Path.home() / ".cache" / "muster"
    return root / "cluster"


def folder(program: versions.Program) -> pathlib.Path:
    """Return where one version of one program is built and kept."""
    return cache() / program.name / program.version


def find(program: versions.Program) -> pathlib.Path | None:
    """Return the program's path, or None where it must be built first."""
    # A program that comes with API objects is of no use without those of its own version.
    given = None if program.manifests else os.environ.get(ASSETS_VARIABLE)
    places = [*([pathlib.Path(given)] if given else []), folder(program)]
    for place in places:
        path = place / program.name
        if os.access(path, os.X_OK) and path.is_file():
            return path
    return None


def find_installed(name: str) -> pathlib.Path | None:
    """Return a program of the machine's own packages; Debian keeps some where only root's PATH leads."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    return pathlib.Path(found) if found else None


def reason_missing(programs: list[versions.Program]) -> str:
    """Return why a cluster of these programs cannot run here, or an empty text where it can (building is able)."""
    missing = [program.name for program in programs if find(program) is None]
    if not missing or shutil.which("go"):
        return ""
    return f"no Go and no {ASSETS_VARIABLE} to have {', '.join(missing)} from"
