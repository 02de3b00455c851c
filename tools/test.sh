#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Installs what the tests need, builds everything with warnings as errors, and runs all tests: g++ and nvcc with all of it, clang
# with AddressSanitizer and UndefinedBehaviorSanitizer, there the fuzz targets on their seeds, too.
# On Debian 12 or 13 it needs nothing but a shell and root or sudo.
#
#   tools/test.sh              everything
#   tools/test.sh REGEX        everything is built, and the tests whose names match are run
#
#   SPLITZIP_BUILD_DIR         where to build (default: build)
#   SPLITZIP_TEST_CUDA=0       leave the CUDA backend out (else it is built, with nvcc from PyPI where there is none)
#   SPLITZIP_FUZZ_SECONDS      how long each fuzz target runs (default: 20)
set -eu
case "${1-}" in -h | --help) sed -n '4,/^set /s/^#\( \|$\)//p' "$0" && exit ;; esac
cd "$(dirname "$0")/.."
build=${SPLITZIP_BUILD_DIR:-$PWD/build}
fuzz_seconds=${SPLITZIP_FUZZ_SECONDS:-20}
jobs=$(nproc)
venv=$build/venv

say() { printf '\n== %s\n' "$*"; }

packages='g++ cmake ninja-build pkg-config clang libclang-rt-dev libxxhash-dev libhwy-dev libcli11-dev nlohmann-json3-dev
  libgtest-dev libbenchmark-dev python3-dev python3-venv libibverbs1 libnuma1 libcurl4'

say "packages"
. tools/packages.sh
install_packages $packages

# The environment is made anew when a list of requirements changes.
tree=cuda
if [ "${SPLITZIP_TEST_CUDA-}" = 0 ]; then
  tree=dev
  nvcc=none
else
  nvcc=$(command -v nvcc || ls "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" 2> /dev/null || true)
fi
requirements=tests/requirements.txt
[ -n "$nvcc" ] || requirements="$requirements tools/cuda-requirements.txt"
mkdir -p "$build"
if ! cat $requirements | cmp -s - "$venv/installed.txt"; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/python" -m pip install -q --disable-pip-version-check $(printf -- '-r %s ' $requirements)
  cat $requirements > "$venv/installed.txt"
fi
if [ -z "$nvcc" ]; then
  nvcc=$(ls "$venv"/lib/python3*/site-packages/nvidia/*/bin/nvcc)
  # The names under which nvcc and CMake look for the libraries.
  toolkit=${nvcc%/bin/nvcc}
  [ -e "$toolkit/lib64" ] || ln -s lib "$toolkit/lib64"
  [ -e "$toolkit/lib/libcudart.so" ] || ln -s libcudart.so.13 "$toolkit/lib/libcudart.so"
fi
echo "nvcc: $nvcc; $("$venv/bin/python" --version)"

build_preset() {
  preset=$1
  shift
  say "build: $preset"
  cmake --preset "$preset" -B "$build/$preset" "$@"
  cmake --build "$build/$preset" --parallel "$jobs"
}
if [ "$tree" = dev ]; then cuda=SPLITZIP_CUDA=OFF; else cuda=CMAKE_CUDA_COMPILER=$nvcc; fi
build_preset "$tree" -DSPLITZIP_TEST_PYTHON=ON -DPython3_EXECUTABLE="$venv/bin/python" -DSPLITZIP_TEST_CUDA_ARCHITECTURES=80-real -D"$cuda"

say "Python package"
# With the library of that tree; test_package.py builds one with the library's sources, as users do.
cmake --install "$build/$tree" --prefix "$build/installed" > "$build/installed.log"
"$venv/bin/python" -m pip install -q --disable-pip-version-check --no-build-isolation --no-deps \
  --config-settings=build-dir="$build/python" --config-settings=cmake.define.SPLITZIP_KV_INSTALLED_LIBRARY=ON \
  --config-settings=cmake.define.splitzip_ROOT="$build/installed" --config-settings=cmake.define.CMAKE_CUDA_ARCHITECTURES=90 \
  --config-settings=cmake.define.SPLITZIP_WERROR=ON --config-settings=cmake.define."$cuda" ./python

build_preset asan -DPython3_EXECUTABLE="$venv/bin/python" -DSPLITZIP_FUZZ_SECONDS="$fuzz_seconds"

# One run over both trees, so that one summary counts everything. Some tests wait more than they work, so there is one more than processors.
echo "subdirs(\"$tree\" \"asan\")" > "$build/CTestTestfile.cmake"
say "tests"
exec ctest --test-dir "$build" --parallel "$((jobs + 1))" --output-on-failure --no-tests=error ${1:+-R "$1"}
