#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Formats C, C++ and CUDA sources with clang-format 14 and Python with ruff; then ruff and mypy look at the Python. Versions differ in details,
# so only those of tests/requirements.txt are used (of clang-format any 14): without one of them exit 77 (skipped).
#
#   tools/format.sh            formats, and says what else is wrong
#   tools/format.sh --check    changes nothing
set -eu
case "${1-}" in -h | --help) sed -n '4,/^set /s/^#\( \|$\)//p' "$0" && exit ;; esac
cd "$(dirname "$0")/.."

case "${1-}" in
  '' | --check) ;;
  *) echo "usage: tools/format.sh [--check]" >&2; exit 2 ;;
esac

# has PROGRAM VERSION: whether it is there, and says that version
has() { command -v "$1" > /dev/null && "$1" --version | grep -qF " $2"; }
version_of() { sed -n "s/^$1==//p" tests/requirements.txt; }

clang_format=
for candidate in clang-format-14 clang-format; do
  if has "$candidate" 'version 14.'; then
    clang_format=$candidate
    break
  fi
done
if [ -z "$clang_format" ] || ! has ruff "$(version_of ruff)" || ! has mypy "$(version_of mypy)"; then
  echo "skipped: clang-format 14, ruff $(version_of ruff) and mypy $(version_of mypy) are not all installed"
  exit 77
fi

status=0
unformatted=$(find . -name build -prune -o -name '.?*' -prune -o -type f \
  \( -name '*.h' -o -name '*.hpp' -o -name '*.c' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) \
  -exec "$clang_format" --dry-run {} + 2>&1 | sed -n 's/:[0-9]*:[0-9]*: warning: .*//p' | sort -u)
if [ "${1-}" = --check ]; then
  if [ -n "$unformatted" ]; then
    echo "$unformatted"
    status=1
  fi
  ruff format --no-cache --check . || status=1
  [ "$status" = 0 ] || echo "not all is formatted: run tools/format.sh"
else
  [ -z "$unformatted" ] || "$clang_format" -i $unformatted
  ruff format --no-cache --quiet .
fi
ruff check --no-cache --quiet . || status=1
cd python && mypy --cache-dir /dev/null src || status=1
exit "$status"
