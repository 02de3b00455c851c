#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Measures everything that docs/evaluation.md shows, and writes that page.
#
#   eval/run.sh                                          the sample cache in data/
#   eval/run.sh --kv NAME=CALIBRATION,TEST[,MORE] ...    caches of yours: safetensors files as tools/dump_kv.py makes them
#
#   SPLITZIP_BUILD_DIR   where to build (default: build)
#
# It needs a C++20 compiler, CMake, Ninja and Python 3.10; CONTRIBUTING.md names the packages. Of the other codecs it measures those
# that eval/requirements.txt can install; with zipnn and torch in the environment (build/eval) it measures ZipNN, too.
set -eu
case "${1-}" in -h | --help) sed -n '4,/^set /s/^#\( \|$\)//p' "$0" && exit ;; esac
here=$(cd "$(dirname "$0")/.." && pwd)
build=${SPLITZIP_BUILD_DIR:-$here/build}
case $build in /*) ;; *) build=$PWD/$build ;; esac
venv=$build/eval

# Files are named relative to where the user is, and the module is run from the root of the tree.
for argument; do
  shift
  case $argument in
    [!-]*=*)
      name=${argument%%=*} files=
      for file in $(printf %s "${argument#*=}" | tr ',' ' '); do
        case $file in /*) ;; *) file=$PWD/$file ;; esac
        files=${files:+$files,}$file
      done
      argument=$name=$files
      ;;
  esac
  set -- "$@" "$argument"
done
cd "$here"

if [ ! -x "$venv/bin/python" ]; then
  python3 -m venv "$venv"
fi
"$venv/bin/python" -m pip install -q --disable-pip-version-check -r eval/requirements.txt
"$venv/bin/python" -m pip install -q --disable-pip-version-check ./python
cmake --preset release -B "$build/release" > /dev/null
cmake --build "$build/release" --target splitzip splitzip_shared
export SPLITZIP_LIBRARY="$build/release/src/libsplitzip.so"
"$venv/bin/python" -B -m eval measure --command "$build/release/cli/splitzip" --peers local "$@"
"$venv/bin/python" -B -m eval render
