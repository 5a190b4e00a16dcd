#!/usr/bin/env bash
# Installs the missing Debian packages of scripts/packages.txt. Does nothing if none is missing.
#
#   scripts/setup.sh [SECTION...]     (default: build tests demo)
#
# PLIMSOLL_SETUP=0 skips this, for machines that have the same software from another source.
set -euo pipefail

list=$(dirname "$0")/packages.txt
[ "${PLIMSOLL_SETUP-1}" != 0 ] || exit 0
[ $# -gt 0 ] || set -- build tests demo

# A section starts after a comment line of one word, and ends at the next comment.
wanted=()
for section in "$@"; do
  packages=$(awk -v section="$section" '/^#/ { inside = (NF == 2 && $2 == section); next } inside { print }' "$list")
  [ -n "$packages" ] || { echo "setup: $list has no section '$section'" >&2; exit 2; }
  # shellcheck disable=SC2206 # words of a list
  wanted+=($packages)
done

give_up() {
  { echo "setup: $1"
    echo "  Plimsoll needs these Debian 12 packages: ${missing[*]}"
    echo "  try: $2"
    echo "       PLIMSOLL_SETUP=0 make ...   if this machine has them from another source"; } >&2
  exit 6
}

missing=("${wanted[@]}")
command -v dpkg-query >/dev/null || give_up "this is not a Debian machine (no dpkg)" "install the same software by hand"
missing=()
for package in "${wanted[@]}"; do
  state=$(dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null || true)
  # dpkg-query prints one line per architecture of a package.
  grep -qx installed <<<"$state" || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

command -v apt-get >/dev/null || give_up "packages are missing and there is no apt-get" "install them by hand"
as_root=()
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || give_up "packages are missing, and only root may install them" "su -c 'apt-get install ${missing[*]}'"
  as_root=(sudo)
fi
apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -y "$@"; }

echo "setup: installing ${missing[*]}"
# On a new machine the package lists may be missing, or may name versions that no longer exist. Update them only then.
apt install --no-install-recommends "${missing[@]}" ||
  { apt update && apt install --no-install-recommends "${missing[@]}"; } ||
  give_up "apt-get could not install them (its own message is above)" "apt-get update, then apt-get install ${missing[*]}"
