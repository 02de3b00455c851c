#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Installs to a fresh prefix, moves it, and builds other people's projects on it: with find_package (shared and static), with
# pkg-config (shared and static), and with this source tree as a subdirectory.
set -eu
cmake=$1 build=$2 source=$3 version=$4 generator=$5 cc=$6 cxx=$7 work=$8
here=$(dirname "$0")
export CC="$cc" CXX="$cxx" CMAKE_GENERATOR="$generator"

rm -rf "$work"
mkdir -p "$work"
"$cmake" --install "$build" --prefix "$work/elsewhere" > "$work/install.log"
prefix=$work/prefix
mv "$work/elsewhere" "$prefix"

say() { echo "-- $*"; }

say "installed"
(cd "$prefix" && find . -type f -o -type l | sort)
if grep -rIl -e "$work" -e "$build" "$prefix"; then
  echo "the files above hold a path of the build" >&2
  exit 1
fi

say "find_package"
"$cmake" -S "$here/stranger" -B "$work/find" -DCMAKE_PREFIX_PATH="$prefix" -DEXAMPLES="$source/examples" \
  -Dsplitzip_VERSION_WANTED="$version"
"$cmake" --build "$work/find" --parallel 2
for program in c_shared c_static cpp_shared cpp_static; do
  say "$program"
  "$work/find/$program"
done

say "find_package in a project of C alone"
"$cmake" -S "$here/stranger_c" -B "$work/find_c" -DCMAKE_PREFIX_PATH="$prefix" -DEXAMPLES="$source/examples"
"$cmake" --build "$work/find_c" --parallel 2
for program in c_shared c_static; do
  say "$program"
  "$work/find_c/$program"
done

say "find_package refuses another minor version"
if "$cmake" -S "$here/stranger" -B "$work/refused" -DCMAKE_PREFIX_PATH="$prefix" -DEXAMPLES="$source/examples" \
    -Dsplitzip_VERSION_WANTED=0.999 > "$work/refused.log" 2>&1; then
  echo "find_package(splitzip 0.999) succeeded" >&2
  exit 1
fi
grep -q 'compatible with requested version "0.999"' "$work/refused.log"

say "pkg-config"
pc=$(find "$prefix" -name splitzip.pc)
export PKG_CONFIG_PATH="${pc%/*}"
test "$(pkg-config --modversion splitzip)" = "$version"
libdir=$(pkg-config --variable=libdir splitzip)
$cc -std=c99 "$source/examples/quickstart.c" -o "$work/pc_c" $(pkg-config --cflags --libs splitzip)
$cxx -std=c++20 "$source/examples/quickstart.cpp" -o "$work/pc_cpp" $(pkg-config --cflags --libs splitzip)
$cxx -std=c++17 -fsyntax-only "$source/examples/quickstart.cpp" $(pkg-config --cflags splitzip) > "$work/cxx17.log" 2>&1 && exit 1
grep -q 'needs C++20: compile with -std=c++20' "$work/cxx17.log"
for program in pc_c pc_cpp; do
  say "$program"
  LD_LIBRARY_PATH=$libdir "$work/$program"
done

say "pkg-config --static"
rm "$libdir"/libsplitzip.so*
$cc -std=c99 "$source/examples/quickstart.c" -o "$work/pc_c_static" $(pkg-config --static --cflags --libs splitzip)
"$work/pc_c_static"

# With the least that can be left out; test_package.py has the tree as a subdirectory with vectors.
say "add_subdirectory"
"$cmake" -S "$here/parent" -B "$work/parent" -DSPLITZIP_SOURCE="$source" -DSPLITZIP_CUDA=OFF -DSPLITZIP_SIMD=OFF
"$cmake" --build "$work/parent" --parallel 2 --target program
"$work/parent/program"

say "all of them work"
