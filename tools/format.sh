#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Formats all C, C++ and CUDA sources with clang-format 14. Versions of clang-format differ in details, so another one is not used:
# exit 77 (skipped).
#
#   tools/format.sh            formats
#   tools/format.sh --check    only says which files would change
set -eu
case "${1-}" in -h | --help) sed -n '4,/^set /s/^#\( \|$\)//p' "$0" && exit ;; esac
cd "$(dirname "$0")/.."

tool=
for candidate in clang-format-14 clang-format; do
  if command -v "$candidate" > /dev/null && "$candidate" --version | grep -q 'version 14\.'; then
    tool=$candidate
    break
  fi
done
if [ -z "$tool" ]; then
  echo "skipped: clang-format 14 is not installed"
  exit 77
fi

case "${1-}" in
  '' | --check) ;;
  *) echo "usage: tools/format.sh [--check]" >&2; exit 2 ;;
esac

unformatted=$(find . -name build -prune -o -name '.?*' -prune -o -type f \
  \( -name '*.h' -o -name '*.hpp' -o -name '*.c' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) \
  -exec "$tool" --dry-run {} + 2>&1 | sed -n 's/:[0-9]*:[0-9]*: warning: .*//p' | sort -u)
[ -n "$unformatted" ] || exit 0
echo "$unformatted"
if [ "${1-}" = --check ]; then
  echo "the files above are not formatted: run tools/format.sh"
  exit 1
fi
"$tool" -i $unformatted
