#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Compiles the command and the unit tests for 64-bit Arm and runs the tests on an emulated processor: among them those that compare the NEON code
# with the scalar code, byte for byte. Not a part of tools/test.sh, for it takes minutes.
# On Debian 12 or 13 it needs nothing but a shell and root or sudo.
#
#   tools/test_arm.sh              all unit tests
#   tools/test_arm.sh REGEX        those whose names match, for instance Backends
#
#   SPLITZIP_BUILD_DIR         where to build (default: build)
case "${1-}" in -h | --help) sed -n '4,/^set /s/^#\( \|$\)//p' "$0" && exit ;; esac
set -eu
cd "$(dirname "$0")/.."
build=${SPLITZIP_BUILD_DIR:-$PWD/build}/arm

. tools/packages.sh
install_packages g++-aarch64-linux-gnu qemu-user cmake ninja-build libxxhash-dev libhwy-dev libcli11-dev nlohmann-json3-dev libgtest-dev python3

# Headers alone, so that none of this machine's own library is found beside them.
mkdir -p "$build/headers"
ln -sfn /usr/include/hwy "$build/headers/hwy"
ln -sfn /usr/include/xxhash.h "$build/headers/xxhash.h"

configure() {
  cmake -G Ninja -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc \
    -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ "$@"
}
configure -S /usr/src/googletest -B "$build/gtest" -DBUILD_GMOCK=OFF -DCMAKE_INSTALL_PREFIX="$build/installed"
cmake --build "$build/gtest" --target install
configure -S . -B "$build/tree" -DCMAKE_BUILD_TYPE=Release -DSPLITZIP_CUDA=OFF -DSPLITZIP_WERROR=ON -DGTest_ROOT="$build/installed" \
  -DSPLITZIP_XXHASH_INCLUDE_DIR="$build/headers" -DSPLITZIP_HIGHWAY_INCLUDE_DIR="$build/headers" \
  -DCMAKE_CROSSCOMPILING_EMULATOR="$(command -v qemu-aarch64);-L;/usr/aarch64-linux-gnu"
cmake --build "$build/tree" --target splitzip splitzip_unit_tests
exec "$(command -v qemu-aarch64)" -L /usr/aarch64-linux-gnu "$build/tree/tests/unit/splitzip_unit_tests" --gtest_brief=1 ${1:+--gtest_filter="*$1*"}
