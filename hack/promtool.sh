#!/usr/bin/env bash
# Put promtool into .build/promtool, out of a Debian package. Does nothing if a promtool is there or on the PATH.
#
# Unpacked, never installed: the package of Debian 12 would start a Prometheus. Since Debian 13 promtool has one of its own.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

FOLDER=.build/promtool

if command -v promtool >/dev/null || [[ -x $FOLDER/promtool ]]; then
  exit 0
fi
if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
  printf 'promtool: not there, and this is no Debian or Ubuntu: put promtool on the PATH (it is part of Prometheus)\n' >&2
  exit 1
fi
parts=$(mktemp -d)
trap 'rm -rf "$parts"' EXIT
if [[ $(id -u) == 0 ]]; then
  apt-get update -qq
fi
package=prometheus
if [[ -n $(apt-cache show --quiet=2 promtool 2>/dev/null) ]]; then package=promtool; fi
printf 'promtool: taking it out of the package %s\n' "$package" >&2
(cd "$parts" && apt-get download -qq "$package")
dpkg-deb --extract "$parts/$package"_*.deb "$parts/root"
mkdir -p "$FOLDER"
mv "$parts/root/usr/bin/promtool" "$FOLDER/promtool"
