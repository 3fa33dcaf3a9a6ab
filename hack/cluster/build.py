"""`python -m hack.cluster.build [PROGRAM...]`: build what the cluster needs and does not find.

In: names of programs (versions.py); none means the control plane. Out: binaries in the cache (assets.py), each with a
build.jsonl beside it: for every build how long it took, how much of it was compiled, and on what machine.

Invariant: a half-built program is never found. The binary is moved into place last, and one build at a time holds the
cache's lock, so that parallel tests build a program once.

Why progress by packages: a cold build takes minutes and the compiler says nothing; go lists what it compiles with -v.

Not here: versions (versions.py), go.mod and linker flags (gomodule.py).
"""

import argparse
import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from hack.cluster import assets, gomodule, versions

PROGRESS_SECONDS = 15
_ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class Failed(Exception):
    """Go could not build a program; the text is what go said."""


def ensure(programs: Sequence[versions.Program], *, anew: bool = False) -> dict[str, pathlib.Path]:
    """Return each program's path; build those that are missing, or all when `anew`."""
    missing = [program for program in programs if anew or assets.find(program) is None]
    if missing:
        say(outlook(missing))
        with _lock():
            for program in missing:
                # Somebody else may have built it while this process waited for the lock.
                if anew or assets.find(program) is None:
                    _build(program)
    paths = {program.name: assets.find(program) for program in programs}
    return {name: path for name, path in paths.items() if path is not None}


def outlook(programs: Sequence[versions.Program]) -> str:
    """Say what `ensure` would build, how long that takes and where it is kept; nothing where nothing is missing."""
    missing = [program for program in programs if assets.find(program) is None]
    if not missing:
        return ""
    names = ", ".join(f"{program.name} {program.version}" for program in missing)
    minutes = sum(program.cold_seconds for program in missing) / 60
    return f"to build: {names}; up to {minutes:.0f} minutes on 2 cores, once; kept in {assets.cache()}"


def say(text: str) -> None:
    print(f"cluster: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _lock() -> Iterator[None]:
    assets.cache().mkdir(parents=True, exist_ok=True)
    with (assets.cache() / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(program: versions.Program) -> None:
    go = shutil.which("go")
    if go is None:
        raise Failed(f"{program.name}: no go in PATH, and no {assets.ASSETS_VARIABLE} with it")
    began = time.monotonic()
    source = assets.folder(program) / "module"
    source.mkdir(parents=True, exist_ok=True)
    module = _download(go, program, source)
    released = json.loads(_go(go, source, "mod", "edit", "-json", module["GoMod"]))
    (source / "go.mod").write_text(gomodule.wrapper(program, released))
    (source / "go.sum").unlink(missing_ok=True)
    if program.source:
        shutil.copy(_ROOT / program.source, source / "main.go")
    listed = _go(go, source, "list", "-mod=mod", "-deps", program.package)
    fetched = time.monotonic()
    say(f"{program.name}: {len(listed.split())} packages, modules fetched in {fetched - began:.0f} s")
    output = source / program.name
    compiled = _compile(go, source, program, output)
    if program.manifests:
        _render(pathlib.Path(module["Dir"]) / program.manifests, assets.folder(program) / assets.MANIFESTS)
    os.replace(output, assets.folder(program) / program.name)
    record = {
        "program": program.name,
        "version": program.version,
        "go": _go(go, source, "env", "GOVERSION").strip(),
        "fetch_s": round(fetched - began, 1),
        "build_s": round(time.monotonic() - fetched, 1),
        "packages": len(listed.split()),
        "packages_compiled": compiled,
        "cpus": len(os.sched_getaffinity(0)),
        "gomaxprocs": os.environ.get("GOMAXPROCS", ""),
        "nice": os.nice(0),
    }
    with (assets.folder(program) / "build.jsonl").open("a") as records:
        records.write(json.dumps(record) + "\n")
    say(f"{program.name}: built in {record['build_s']} s, {compiled} packages compiled")


def _download(go: str, program: versions.Program, source: pathlib.Path) -> dict[str, str]:
    """Fetch the program's own module; return where its files are (`GoMod`, `Dir`)."""
    (source / "go.mod").write_text(f"module muster.dev/cluster/{program.name}\n")
    module: dict[str, str] = json.loads(
        _go(go, source, "mod", "download", "-json", f"{program.module}@{program.version}")
    )
    return module


def _render(folder: pathlib.Path, output: pathlib.Path) -> None:
    """Keep what the module would have applied to a cluster."""
    kubectl = pathlib.Path(sys.executable).parent / "kubectl"
    done = subprocess.run([kubectl, "kustomize", folder], check=False, text=True, capture_output=True)
    if done.returncode:
        raise Failed(f"kubectl kustomize {folder} ended with {done.returncode}:\n{done.stderr}")
    output.write_text(done.stdout)


def _compile(go: str, source: pathlib.Path, program: versions.Program, output: pathlib.Path) -> int:
    """Run go build; return how many packages it compiled, the others being in go's own cache."""
    flags = ["-mod=mod", "-v", "-trimpath", "-buildvcs=false", "-ldflags", gomodule.linker_flags(program)]
    command = [go, "build", *flags, "-o", str(output), program.package]
    compiled, said, told = 0, [], time.monotonic()
    with subprocess.Popen(command, cwd=source, env=_environment(), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for text in process.stderr:
            said.append(text)
            compiled += 1
            if time.monotonic() - told >= PROGRESS_SECONDS:
                told = time.monotonic()
                say(f"{program.name}: {compiled} packages compiled, now {text.strip()}")
    if process.returncode:
        raise Failed(f"{program.name}: go build ended with {process.returncode}:\n{''.join(said[-20:])}")
    return compiled


def _go(go: str, folder: pathlib.Path, *arguments: str) -> str:
    done = subprocess.run([go, *arguments], check=False, cwd=folder, env=_environment(), text=True, capture_output=True)
    if done.returncode:
        raise Failed(f"go {' '.join(arguments)} ended with {done.returncode}:\n{done.stderr[-4000:]}")
    return done.stdout


def _environment() -> dict[str, str]:
    # Static binaries that need no C compiler; the go.work of a surrounding folder must not take part.
    return {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m hack.cluster.build", description="Build the cluster's programs.")
    parser.add_argument("programs", nargs="*", help="default: the control plane")
    parser.add_argument("--line", choices=sorted(versions.LINES), default=versions.line_name())
    parser.add_argument("--anew", action="store_true", help="build even what is there, to measure a warm build")
    arguments = parser.parse_args()
    known = versions.programs(arguments.line)
    unknown = [name for name in arguments.programs if name not in known]
    if unknown:
        parser.error(f"no such program: {', '.join(unknown)}; there are {', '.join(known)}")
    wanted = [known[name] for name in arguments.programs or versions.CONTROL_PLANE]
    try:
        for name, path in ensure(wanted, anew=arguments.anew).items():
            print(f"{name}\t{path}")
    except Failed as failed:
        say(str(failed))
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
