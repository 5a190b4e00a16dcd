#!/usr/bin/env bash
# Tests scripts/in_cgroup.sh, on which the demo and the tests depend. A command inside the limit ends as it would without the script. A
# command that exceeds the limit, or cannot even start in it, is killed, and the report says so. No cgroup is left behind. If no cgroup
# can be created here, this script says so and passes.
set -u
cd "$(dirname "$0")" || exit 1
report=$(mktemp)
trap 'rm -f "$report"' EXIT

run() {  # MiB to hold, exit status to return
  ./in_cgroup.sh --report "$report" 64MiB -- python3 -c "import sys; b = bytes([1]) * ($1 << 20); sys.exit($2)" 2>/dev/null
}
expect() {  # description, actual, expected
  [ "$2" = "$3" ] || { echo "check_cgroup: $1: got $2, expected $3"; exit 1; }
}
value() { sed -n "s/^$1=//p" "$report"; }

run 16 5
status=$?
if [ $status = 77 ]; then
  ./in_cgroup.sh 64MiB -- true 2>&1 | sed 's/^/check_cgroup: not checked: /'
  exit 0
fi
expect "status of a command that fits" $status 5
expect "its report" "$(value oom_killed) $(value status) $(value limit_bytes)" "no 5 67108864"
peak=$(value peak_bytes)
# Kernels without memory.peak report 0.
[ "$peak" = 0 ] || [ "$peak" -ge $((16 << 20)) ] || { echo "check_cgroup: the command held 16 MiB, but the reported peak is $peak bytes"; exit 1; }

run 256 0
expect "status of a command over the limit" $? 137
expect "its report" "$(value oom_killed) $(value status)" "yes 137"

./in_cgroup.sh --report "$report" 4KiB -- true 2>/dev/null
expect "status if not even a shell fits" $? 137
expect "its report" "$(value oom_killed) $(value status)" "yes 137"
echo "check_cgroup: limits are enforced and reported"
