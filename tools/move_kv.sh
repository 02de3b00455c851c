#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Moves a KV cache from a prefill process to a decode process: installs what that needs, builds the Python package, and
# runs `python -m splitzip_kv.transfer.demo`. On Debian 12 or 13 it needs nothing but a shell and root or sudo. Where there are a
# GPU and nvcc 13, the pools are in the GPU's memory, and it codes.
#
#   tools/move_kv.sh                                  the sample in data/
#   tools/move_kv.sh --kv cache.safetensors           a cache of your own (tools/dump_kv.py makes one)
#   tools/move_kv.sh --help                           this and, once it is installed, all options
#
#   SPLITZIP_BUILD_DIR         where the virtual environment is made (default: build)
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
build=${SPLITZIP_BUILD_DIR:-$here/build}
venv=$build/move
log=$build/move.log
case " $* " in
  *' -h '* | *' --help '*)
    sed -n '4,/^set /s/^#\( \|$\)//p' "$0"
    [ -e "$venv/built" ] || exit 0
    exec "$venv/bin/python" -m splitzip_kv.transfer.demo --help
    ;;
esac
mkdir -p "$build"

# What runs without a word when all is well shows its words when it is not.
advice=
quietly() {
  echo "== $1" >&2
  shift
  "$@" > "$log" 2>&1 && return
  cat "$log" >&2
  echo "failed: $*" >&2
  [ -z "$advice" ] || echo "$advice" >&2
  exit 1
}

packages='g++ libxxhash-dev libhwy-dev python3-dev python3-venv libibverbs1 libnuma1 libcurl4'
. "$here/tools/packages.sh"
missing=$(missing_packages $packages)
if [ -n "$missing" ]; then
  advice="if you may not install packages here, let an administrator run: apt-get install$missing"
  root=$(as_root) || {
    echo "some packages are missing, and you are neither root nor have sudo" >&2
    echo "$advice" >&2
    exit 1
  }
  quietly "packages: apt-get update" $root apt-get update
  quietly "packages:$missing" $root apt-get install -y --no-install-recommends $missing
  advice=
fi

# CUDA builds of Mooncake have other names; one that is installed in the environment is left as it is.
# One whose making was interrupted has no pip yet; making it again completes it.
"$venv/bin/python" -m pip --version > /dev/null 2>&1 || quietly "virtual environment" python3 -m venv "$venv"
pip="$venv/bin/python -m pip install --disable-pip-version-check"
"$venv/bin/python" -c 'import mooncake.engine, safetensors' 2> /dev/null ||
  quietly "Mooncake Transfer Engine" $pip mooncake-transfer-engine-non-cuda==0.3.13.post1 safetensors

# The kernels take minutes to compile, so only where something can run them.
cuda=OFF
if nvidia-smi -L > /dev/null 2>&1; then cuda=AUTO; fi

# The package is built again when something that it is made of has changed.
sources="$cuda $(cd "$here" && find python src include cmake CMakeLists.txt -type f ! -name '*.pyc' -exec cksum {} + | sort | cksum)"
if [ "$sources" != "$(cat "$venv/built" 2> /dev/null)" ]; then
  quietly "building splitzip-kv (some minutes)" $pip --config-settings=cmake.define.SPLITZIP_CUDA=$cuda "$here/python"
  echo "$sources" > "$venv/built"
fi

# The sample is the default from the command's own folder; paths that are given stay relative to the caller's.
case " $* " in
  *" --kv"*) ;;
  *) set -- --kv "$here/data/smollm2-135m/gsm8k.safetensors" --codebook "$here/data/smollm2-135m/wikitext2.szcb" "$@" ;;
esac
exec "$venv/bin/python" -m splitzip_kv.transfer.demo "$@"
