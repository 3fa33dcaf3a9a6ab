#!/usr/bin/env bash
# The tests of tests/cluster on the older Kubernetes line, its real node on Debian's containerd 1.6: make test-older.
#
# The package is unpacked, not installed: no daemon of it may start, and the machine may have another containerd.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

folder=$PWD/.build/debian
if [[ ! -x $folder/usr/bin/containerd ]] && command -v apt-get >/dev/null; then
  printf 'test-older: unpacking the package containerd into %s\n' "$folder" >&2
  mkdir -p "$folder"
  (cd "$folder" && apt-get download -qq containerd && dpkg-deb -x containerd_*.deb .)
fi
if [[ -x $folder/usr/bin/containerd ]]; then export KUBEBUILDER_ASSETS=$folder/usr/bin; fi
export MUSTER_CLUSTER_LINE=1.35
exec .venv/bin/python -m hack.teststages --only real -- tests/cluster "$@"
