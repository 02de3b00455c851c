#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What tools/move_kv.sh says where it cannot install packages, and that it completes a virtual environment whose making
# was interrupted. The programs that it calls are stand-ins; nothing is installed.
set -eu
move=$1/tools/move_kv.sh work=$2

rm -rf "$work"
mkdir -p "$work/bin"
for tool in cat cksum dirname env find grep mkdir sh sort; do
  ln -s "$(command -v "$tool")" "$work/bin/$tool"
done

# stand_in NAME BODY
stand_in() {
  printf '#!/bin/sh\n%s\n' "$2" > "$work/bin/$1"
  chmod +x "$work/bin/$1"
}

# runs STATUS: with the stand-ins alone; what it says goes to $work/said.
runs() {
  status=0
  PATH=$work/bin SPLITZIP_BUILD_DIR=$work/build "$work/bin/sh" "$move" > "$work/said" 2>&1 || status=$?
  [ "$status" = "$1" ] || { cat "$work/said"; echo "status $status and not $1"; exit 1; }
}

said() {
  grep -q -e "$1" "$work/said" || { cat "$work/said"; echo "did not say: $1"; exit 1; }
}

stand_in dpkg-query 'exit 1'
stand_in id 'echo 1000'
runs 1
said 'neither root nor have sudo'
said 'let an administrator run: apt-get install g++ .*libcurl4$'

stand_in sudo 'echo "not in the sudoers file"; exit 1'
runs 1
said '^not in the sudoers file$'
said '^failed: sudo .*apt-get update$'
said 'let an administrator run: apt-get install g++ .*libcurl4$'

# With sudo, where no question may be asked.
stand_in sudo 'exec "$@"'
stand_in apt-get 'echo "$DEBIAN_FRONTEND $*" >> "$work/asked"; [ "$1" = update ]'
export work
runs 1
grep -q '^noninteractive install -y ' "$work/asked"
said 'let an administrator run'

# An environment without pip.
stand_in dpkg-query 'echo "install ok installed"'
mkdir -p "$work/build/move/bin"
ln -s "$(command -v false)" "$work/build/move/bin/python"
stand_in python3 'echo "made: $*"; exit 1'
runs 1
said '^made: -m venv .*/build/move$'
! grep -q administrator "$work/said"
