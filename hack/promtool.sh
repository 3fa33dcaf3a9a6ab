#!/usr/bin/env bash
# Put promtool into .build/promtool, from Debian's prometheus package. Does nothing if a promtool is there or on the PATH.
#
# Unpacked, never installed: the package would start a Prometheus.
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
printf 'promtool: taking it out of the prometheus package\n' >&2
parts=$(mktemp -d)
trap 'rm -rf "$parts"' EXIT
if [[ $(id -u) == 0 ]]; then
  apt-get update -qq
fi
(cd "$parts" && apt-get download -qq prometheus)
dpkg-deb --extract "$parts"/prometheus_*.deb "$parts/root"
mkdir -p "$FOLDER"
mv "$parts/root/usr/bin/promtool" "$FOLDER/promtool"
