#!/usr/bin/env bash
# Make .venv hold exactly requirements/dev.txt and this checkout. Does nothing when it already does.
#
# Needs Python >= 3.11 with venv, and a C compiler (the tests build a fake libnvidia-ml). In CI, as root on a Debian
# machine, what is missing is installed; elsewhere the script says what to install and stops.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

PYTHON=${PYTHON:-python3}
STAMP=.venv/muster-stamp

say() { printf 'venv: %s\n' "$*" >&2; }

# $1: what is missing, $2: the Debian package that brings it.
lacks() {
  if [[ ${CI:-} == true && $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
    say "$1 is missing: installing $2"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2" >/dev/null
  else
    say "$1 is missing. On Debian or Ubuntu: apt-get install $2"
    exit 1
  fi
}

command -v "$PYTHON" >/dev/null || lacks "$PYTHON" python3-venv
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  say "$PYTHON is $("$PYTHON" --version 2>&1): Muster needs Python 3.11 or newer. Name another one with PYTHON=..."
  exit 1
}
"$PYTHON" -c 'import ensurepip, venv' 2>/dev/null || lacks "the venv module of $PYTHON" python3-venv
command -v cc >/dev/null || lacks "a C compiler (cc)" build-essential
# Without promtool the tests of the alert rules say so in one line; in CI they may not be missing.
[[ ${CI:-} != true ]] || bash hack/promtool.sh
# The same for the warmer, which is tested against a real containerd and a real registry (docs/images.md).
if [[ ${CI:-} == true ]]; then
  command -v containerd >/dev/null || lacks containerd containerd
  command -v docker-registry >/dev/null || lacks docker-registry docker-registry
fi

# A copied checkout or another Python makes the scripts in .venv/bin point elsewhere: those start afresh.
home="$PWD $("$PYTHON" --version)"
wanted="$home $(cat requirements/dev.txt pyproject.toml | sha256sum | cut -d' ' -f1)"
have=$(cat "$STAMP" 2>/dev/null || true)
[[ $have == "$wanted" ]] && exit 0

if [[ ! -x .venv/bin/python || ( -n $have && $have != "$home "* ) ]]; then
  say "creating .venv with $("$PYTHON" --version)"
  "$PYTHON" -m venv --clear .venv
fi
say "installing requirements/dev.txt (hash-pinned) and this checkout into .venv; about a minute the first time"
rm -f "$STAMP"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
printf '%s\n' "$wanted" >"$STAMP"
say "ready"
