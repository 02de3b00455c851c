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
#   SPLITZIP_PAPER_CODE  a clone of the paper's code, which is measured, too, where there is a GPU
#
# It needs a C++20 compiler, CMake, Ninja and Python 3.10; tools/test.sh lists the packages. Of the other codecs it measures those
# that eval/requirements.txt can install; with zipnn and torch in the environment (build/eval) it measures ZipNN, too. Where there are a GPU
# and nvcc 13, it measures there first: nvCOMP if its package nvidia-libnvcomp-cu13 is in the environment or the loader finds it; with
# torch in the environment the paper's code, and DFloat11 if it is installed, too; with two GPUs transfers between them.
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
CMAKE_ARGS=-DSPLITZIP_CUDA=OFF "$venv/bin/python" -m pip install -q --disable-pip-version-check ./python
cmake --preset release -DSPLITZIP_CUDA=OFF -B "$build/release" > /dev/null
cmake --build "$build/release" --target splitzip splitzip_shared

nvcc=$(command -v nvcc || ls "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" 2> /dev/null || true)
if [ -n "$nvcc" ] && nvidia-smi -L > /dev/null 2>&1; then
  cmake --preset release -DSPLITZIP_CUDA=ON -DSPLITZIP_BUILD_BENCHMARKS=ON -DCMAKE_CUDA_ARCHITECTURES=native \
    -DCMAKE_CUDA_COMPILER="$nvcc" -B "$build/gpu" > /dev/null
  cmake --build "$build/gpu" --target cuda_bench two_gpu_bench planner_bench splitzip_shared
  "$venv/bin/python" -B -m eval gpu --build "$build/gpu" "$@"
  "$venv/bin/python" -B bench/scripts/gpu_report.py render
  "$venv/bin/python" -B bench/scripts/link_report.py render
else
  echo "no GPU, or no nvcc: speeds on GPUs are those of bench/results"
fi
export SPLITZIP_LIBRARY="$build/release/src/libsplitzip.so"
"$venv/bin/python" -B -m eval measure --command "$build/release/cli/splitzip" --peers local "$@"
"$venv/bin/python" -B -m eval render
