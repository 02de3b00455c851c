#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Tests the operators for PyTorch: installs torch from PyPI into an environment of its own (several gigabytes), builds the Python
# package, and runs the tests that need torch. On a machine with a GPU and the CUDA toolkit they run there, too.
# On Debian 12 or 13 it needs nothing but a shell and root or sudo.
#
#   tools/test_torch.sh [PYTEST ARGUMENTS]
#
#   SPLITZIP_BUILD_DIR         where the environment is made (default: build)
#   SPLITZIP_TORCH=VERSION     another torch than the one below
set -eu
case "${1-}" in -h | --help) sed -n '4,/^set /s/^#\( \|$\)//p' "$0" && exit ;; esac
cd "$(dirname "$0")/.."
build=${SPLITZIP_BUILD_DIR:-$PWD/build}/torch
torch=torch==${SPLITZIP_TORCH:-2.11.0}
venv=$build/$torch

. tools/packages.sh
install_packages g++ libxxhash-dev libhwy-dev python3-dev python3-venv

if [ ! -e "$venv/installed" ]; then
  rm -rf "$venv"
  mkdir -p "$build"
  [ -x "$build/uv/bin/uv" ] || { python3 -m venv "$build/uv" && "$build/uv/bin/pip" install -q uv; }
  "$build/uv/bin/uv" venv -q --seed -p python3 "$venv"
  "$build/uv/bin/uv" pip install -q -p "$venv" "$torch" pytest ml_dtypes
  touch "$venv/installed"
fi
"$venv/bin/python" -m pip install -q --disable-pip-version-check ./python
"$venv/bin/python" -B -m pytest -q -p no:cacheprovider -W ignore python/tests/test_torch.py \
  python/tests/test_torch_operators.py python/tests/test_cuda.py "$@"
