#!/usr/bin/env bash
# Runs a command in a memory cgroup of a given size, and prints how it ended.
#
#   scripts/in_cgroup.sh [--report FILE] SIZE -- COMMAND [ARGUMENT...]
#
# SIZE has the form of plimsoll's sizes: 512MiB, 1.5GB, or plain bytes. Swap counts against the limit, too.
# The exit status is the command's own (137 if the kernel killed it). It is 77 if no cgroup can be created here; then the reason is on
# stderr, and the command was not run. FILE receives the lines limit_bytes=, peak_bytes= (0: this kernel does not report it),
# oom_killed=yes|no, status=. The peak is that of the cgroup, which includes page cache and page tables.
#
# Works with cgroup version 1 and 2. In version 1 the group is created below the caller's group. In version 2 a group that contains
# processes cannot have limited children (the "no internal processes" rule), so the group is created below the nearest ancestor that
# passes the memory controller on.
set -u

readonly cannot=77

say() { echo "in_cgroup: $*" >&2; }
refuse() { say "cannot limit memory here: $*"; exit $cannot; }
usage() { sed -n '2,4s/^# \{0,1\}//p' "$0" >&2; exit 2; }

report=
if [ "${1-}" = --report ]; then
  report=${2-}
  [ -n "$report" ] || usage
  shift 2
fi
[ $# -ge 3 ] && [ "$2" = -- ] || usage
limit=$(numfmt --from=auto --suffix=B -- "$1" 2>/dev/null) || { say "'$1' is not a size"; exit 2; }
limit=${limit%B}
shift 2

hint="are you root?"
if [ "$(id -u)" = 0 ]; then hint="in a container, this is its host's to allow"; fi

# The mount point of the first file system of type $1 whose options contain the word $2 (or any options).
mount_point() {
  awk -v type="$1" -v word="${2-}" '$3 == type && (word == "" || ("," $4 ",") ~ ("," word ",")) { print $2; exit }' /proc/mounts
}

# The folder of the caller's group: its path below the mount, or the mount itself if a namespace hides that path.
own_group() {
  if [ -d "$1$2" ]; then echo "$1${2%/}"; else echo "$1"; fi
}

find_parent_v1() {
  root=$(mount_point cgroup memory)
  [ -n "$root" ] || return 1
  parent=$(own_group "$root" "$(awk -F: '("," $2 ",") ~ ",memory," { print $3; exit }' /proc/self/cgroup)")
  version=1
}

find_parent_v2() {
  root=$(mount_point cgroup2)
  [ -n "$root" ] && grep -qw memory "$root/cgroup.controllers" 2>/dev/null || return 1
  version=2
  parent=$(own_group "$root" "$(awk -F: '$1 == 0 { print $3; exit }' /proc/self/cgroup)")
  while :; do
    if [ "$parent" = "$root" ] && ! grep -qw memory "$root/cgroup.subtree_control" 2>/dev/null; then
      # The real root may pass controllers on although it contains processes; the root of a container's namespace may not.
      { echo +memory >"$root/cgroup.subtree_control"; } 2>/dev/null
    fi
    if grep -qw memory "$parent/cgroup.subtree_control" 2>/dev/null && [ -w "$parent" ]; then return 0; fi
    [ "$parent" != "$root" ] || refuse "no cgroup between this process and $root passes the memory controller on and allows new groups ($hint)"
    parent=${parent%/*}
  done
}

find_parent_v1 || find_parent_v2 || refuse "no memory cgroup hierarchy is mounted"
group=$parent/plimsoll-$$
mkdir "$group" 2>/dev/null || refuse "no permission to create $group ($hint)"

cleanup() {
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    # Only processes that the command left behind can be in the group.
    while read -r pid; do kill -KILL "$pid" 2>/dev/null; done <"$group/cgroup.procs"
    rmdir "$group" 2>/dev/null && return
    sleep 0.1
  done
  say "could not remove $group"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

if [ $version = 1 ]; then
  { echo "$limit" >"$group/memory.limit_in_bytes"; } 2>/dev/null || refuse "the kernel refused a limit of $limit bytes"
  # Limits the sum of memory and swap; absent if the kernel does not account for swap.
  if [ -e "$group/memory.memsw.limit_in_bytes" ]; then echo "$limit" >"$group/memory.memsw.limit_in_bytes"; fi
  events=$group/memory.oom_control
  peak=$group/memory.max_usage_in_bytes
else
  { echo "$limit" >"$group/memory.max"; } 2>/dev/null || refuse "the kernel refused a limit of $limit bytes"
  if [ -e "$group/memory.swap.max" ]; then echo 0 >"$group/memory.swap.max"; fi
  events=$group/memory.events
  peak=$group/memory.peak
fi

# The shell that joins the group becomes the command, so the group contains nothing else. If joining is refused (a hierarchy that was not
# delegated to us), the marker file stays and the command was not run. If the limit is too small even for that shell, the kernel kills it.
marker=$(mktemp)
# The message "Killed" of this shell goes to /dev/null, because the line below says more. The command keeps our stderr.
exec 3>&2
{
  bash -c '{ echo $$ >"$1/cgroup.procs"; } 2>/dev/null || exit 1; rm -f "$2"; shift 2; exec "$@"' \
    in_cgroup "$group" "$marker" "$@" 2>&3 3>&-
  status=$?
} 2>/dev/null

kills=$(awk '$1 == "oom_kill" { print $2 }' "$events")
oom_killed=no
if [ "${kills:-0}" -gt 0 ]; then oom_killed=yes; fi
if [ -e "$marker" ]; then
  rm -f "$marker"
  [ $oom_killed = yes ] || refuse "the kernel refused to move a process into $group"
fi
peak_bytes=$(cat "$peak" 2>/dev/null || echo 0)
say "limit $limit bytes, peak $peak_bytes bytes, killed for memory: $oom_killed, exit status $status"
if [ -n "$report" ]; then
  printf 'limit_bytes=%s\npeak_bytes=%s\noom_killed=%s\nstatus=%s\n' "$limit" "$peak_bytes" "$oom_killed" "$status" >"$report"
fi
exit "$status"
