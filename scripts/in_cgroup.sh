#!/usr/bin/env bash
# Runs a command in a memory cgroup of a given size, and says how it ended.
#
#   scripts/in_cgroup.sh [--report FILE] SIZE -- COMMAND [ARGUMENT...]
#
# SIZE is written as for plimsoll: 512MiB, 1.5GB, or plain bytes. Swap is limited with it, so the limit is one on memory.
# The exit status is the command's own (137 when the kernel killed it), or 77 when no cgroup can be made here: the reason is on
# stderr, and nothing was run. FILE receives lines limit_bytes=, peak_bytes= (0: this kernel does not tell),
# oom_killed=yes|no, status=. The peak is the cgroup's: it counts page cache and page tables too.
#
# Hierarchies of version 1 and 2 both serve. In version 1 the group is made below the caller's own. In version 2 a group that
# holds processes cannot have limited children (the "no internal processes" rule), so there it is made below the nearest
# ancestor that passes the memory controller on, beside the caller's group.
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

# The folder of the caller's group: its path below the mount, or the mount itself where a namespace hides that path.
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
      # The true root may pass controllers on although it holds processes; the root of a container's namespace refuses.
      { echo +memory >"$root/cgroup.subtree_control"; } 2>/dev/null
    fi
    if grep -qw memory "$parent/cgroup.subtree_control" 2>/dev/null && [ -w "$parent" ]; then return 0; fi
    [ "$parent" != "$root" ] || refuse "no group from ours up to $root passes the memory controller on and lets us add to it ($hint)"
    parent=${parent%/*}
  done
}

find_parent_v1 || find_parent_v2 || refuse "no memory cgroup hierarchy is mounted"
group=$parent/plimsoll-$$
mkdir "$group" 2>/dev/null || refuse "no right to make $group ($hint)"

cleanup() {
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    # Only what the command left behind can be in there.
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
  # Counts memory and swap together; absent where the kernel does not account for swap.
  if [ -e "$group/memory.memsw.limit_in_bytes" ]; then echo "$limit" >"$group/memory.memsw.limit_in_bytes"; fi
  events=$group/memory.oom_control
  peak=$group/memory.max_usage_in_bytes
else
  { echo "$limit" >"$group/memory.max"; } 2>/dev/null || refuse "the kernel refused a limit of $limit bytes"
  if [ -e "$group/memory.swap.max" ]; then echo 0 >"$group/memory.swap.max"; fi
  events=$group/memory.events
  peak=$group/memory.peak
fi

# The shell that joins the group becomes the command, so nothing else lives in it. Where joining is refused (a hierarchy that
# was not delegated to us), the marker stays and nothing has been run. A limit too small for that shell kills it: no refusal.
marker=$(mktemp)
# This shell's own "Killed" goes to /dev/null: the line below says it better. The command keeps our stderr.
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
