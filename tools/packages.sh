# SPDX-License-Identifier: Apache-2.0
#
# Debian packages, for the scripts beside this one, which read it with `.`.

# missing_packages NAME...: those that are not installed. None where there is no dpkg.
missing_packages() {
  if command -v dpkg-query > /dev/null; then
    missing=
    for package; do
      # Since Debian 13 some libraries have another name and provide the old one.
      dpkg-query -W -f '${Status}\n' "$package" "${package}t64" 2> /dev/null | grep -q ' ok installed$' ||
        missing="$missing $package"
    done
    echo "$missing"
  else
    echo "not a Debian system: expecting the equivalents of" "$@" >&2
  fi
}

# as_root: how a command begins that installs packages. Fails for a user without sudo, which does not pass variables on.
as_root() {
  noninteractive='env DEBIAN_FRONTEND=noninteractive'
  if [ "$(id -u)" = 0 ]; then
    echo "$noninteractive"
  elif command -v sudo > /dev/null; then
    echo "sudo $noninteractive"
  else
    return 1
  fi
}

# install_packages NAME...: installs those that are missing, or says which, and ends the script.
install_packages() {
  missing=$(missing_packages "$@")
  [ -n "$missing" ] || return 0
  root=$(as_root) || {
    echo "please install, as root: apt-get install$missing" >&2
    exit 1
  }
  $root apt-get update -q
  $root apt-get install -q -y --no-install-recommends $missing
}
