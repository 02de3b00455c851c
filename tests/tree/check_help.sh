#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Scripts that install or build something say what they do when they are asked for help, and do nothing else: nothing is there that
# they could do it with.
set -eu
root=$1 work=$2

rm -rf "$work"
mkdir -p "$work/bin"
for tool in dirname sed sh; do
  ln -s "$(command -v "$tool")" "$work/bin/$tool"
done
for script in "$root"/tools/*.sh "$root/eval/run.sh" "$root/tests/cuda/run.sh"; do
  case $script in */packages.sh) continue ;; esac
  for option in -h --help; do
    PATH=$work/bin SPLITZIP_BUILD_DIR=$work/build "$work/bin/sh" "$script" $option > "$work/said" 2>&1 || {
      cat "$work/said"
      echo "$script $option fails"
      exit 1
    }
    grep -q "^  *${script#"$root/"}" "$work/said" || {
      cat "$work/said"
      echo "$script $option does not say how it is called"
      exit 1
    }
  done
done
[ ! -e "$work/build" ]
