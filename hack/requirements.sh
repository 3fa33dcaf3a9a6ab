#!/usr/bin/env bash
# Compile requirements/*.txt from pyproject.toml: every version pinned, every file hashed, one set for every Python from
# 3.11 on. The compiler is uv, itself pinned in requirements/uv.txt, in an environment of its own.
# Arguments go to uv: `--upgrade`, or `--upgrade-package NAME`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

[[ -x .build/uv/bin/uv ]] || python3 -m venv .build/uv
.build/uv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt

# $1: name of the list; the rest goes to uv.
compile() {
  local target=$1
  shift
  .build/uv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
    --no-emit-index-url --output-file "requirements/$target.txt" "$@"
}
compile runtime --extra admitter pyproject.toml "$@"
compile dev --extra admitter --extra dev pyproject.toml "$@"
# What pyproject.toml's build-system needs, at the version dev.txt chose: the image builds the wheel with it.
compile build --constraint requirements/dev.txt - "$@" <<<"setuptools"
