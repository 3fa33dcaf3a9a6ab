"""Generate muster/pb from proto/. `--check` compares instead of writing and exits 1 on drift.

protoc writes `from muster.v1 import x_pb2`; the stubs live under muster.pb, so those imports are rewritten on the way.
"""

import argparse
import filecmp
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"
TARGET = ROOT / "muster" / "pb"

_IMPORT = re.compile(r"^(\s*)(from|import) ((?:muster|kubelet|containerd|cri)\.[\w.]*v\d\w*)", re.MULTILINE)


def generate(target: pathlib.Path) -> None:
    """Write all stubs below `target`."""
    files = sorted(str(path.relative_to(PROTO)) for path in PROTO.rglob("*.proto"))
    binaries = pathlib.Path(sys.executable).parent
    command = [
        sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTO}",
        f"--plugin=protoc-gen-mypy={binaries / 'protoc-gen-mypy'}",
        f"--plugin=protoc-gen-mypy_grpc={binaries / 'protoc-gen-mypy_grpc'}",
        f"--python_out={target}", f"--grpc_python_out={target}", f"--mypy_out={target}", f"--mypy_grpc_out={target}",
        *files,
    ]  # fmt: skip
    subprocess.run(command, check=True, stderr=subprocess.PIPE)
    for path in [*target.rglob("*.py"), *target.rglob("*.pyi")]:
        text = path.read_text()
        path.write_text(rewrite(text))
    for folder in [target, *(path for path in target.rglob("*") if path.is_dir())]:
        (folder / "__init__.py").write_text("")


def rewrite(text: str) -> str:
    """Point the imports of generated code at muster.pb.

    >>> rewrite("from muster.v1 import feed_pb2 as x")
    'from muster.pb.muster.v1 import feed_pb2 as x'
    """
    text = _IMPORT.sub(r"\1\2 muster.pb.\3", text)
    return re.sub(
        r"(?<![\w.\"'])(_?)(muster\.v1|muster\.reader\.v1|muster\.warmer\.v1|containerd\.v1)\.(\w+_pb2)\b(?!\.proto)",
        r"\1muster.pb.\2.\3",
        text,
    )


def differences(left: pathlib.Path, right: pathlib.Path) -> list[str]:
    """Return the files that differ or stand on one side only, sorted."""
    names = {
        str(path.relative_to(base))
        for base in (left, right)
        for path in base.rglob("*.py*")
        if "__pycache__" not in path.parts
    }
    return sorted(
        name
        for name in names
        if not (
            (left / name).is_file()
            and (right / name).is_file()
            and filecmp.cmp(left / name, right / name, shallow=False)
        )
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        # A folder inside: the temporary one is closed to others, and its mode would be copied.
        fresh = pathlib.Path(folder) / TARGET.name
        fresh.mkdir()
        generate(fresh)
        if arguments.check:
            stale = differences(fresh, TARGET)
            for name in stale:
                print(f"muster/pb/{name} is not what proto/ generates: run `make proto`", file=sys.stderr)
            return 1 if stale else 0
        shutil.rmtree(TARGET, ignore_errors=True)
        shutil.copytree(fresh, TARGET)
    return 0


if __name__ == "__main__":
    sys.exit(main())
