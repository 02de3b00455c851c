#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The tests of the CUDA backend, then a share of them under each tool of compute-sanitizer, where that is installed.
#
#   tests/cuda/run.sh PROGRAM [gtest options]     PROGRAM is build/.../splitzip_cuda_tests
#
#   SPLITZIP_CUDA_MUTATIONS    damaged frames in the first run (default: 1,000,000)
set -eu
case "${1-}" in -h | --help) sed -n '4,/^set /s/^#\( \|$\)//p' "$0" && exit ;; esac
program=$1
shift
SPLITZIP_CUDA_MUTATIONS=${SPLITZIP_CUDA_MUTATIONS:-1000000} "$program" "$@"

sanitizer=$(command -v compute-sanitizer || ls "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer" 2> /dev/null || true)
if [ -z "$sanitizer" ]; then
  echo "compute-sanitizer is not installed: its runs are skipped"
  exit 0
fi
export SPLITZIP_CUDA_MUTATIONS=1000
for tool in memcheck racecheck initcheck synccheck; do
  echo "== $tool"
  options=
  # Every block has barriers of its own; the tool's table for them is small by default.
  [ "$tool" != synccheck ] || options="--num-cuda-barriers 262144"
  "$sanitizer" --tool "$tool" $options --error-exitcode 1 "$program" --gtest_brief=1 \
    --gtest_filter='CudaEquality.*:CudaTypes.content*:CudaMutation.*:CudaFailure.frames_*'
done
