#!/usr/bin/env bash
# Runs fuzz targets that are already built, JOBS at a time, each for SECONDS, and prints the result of each. scripts/fuzz.sh
# calls this script; a bundle contains it as run.sh.
#
#   run.sh SECONDS JOBS [TARGET...]
#
# New inputs and findings are stored in $FOUND/TARGET/ (default: found/ next to this script). Exits with 1 if anything was found.
set -u
here=$(cd "$(dirname "$0")" && pwd)
programs=${PROGRAMS:-$here} corpus=${CORPUS:-$here/corpus} dictionaries=${DICTIONARIES:-$here/dictionaries}
found=${FOUND:-$here/found}
[ $# -ge 2 ] || { sed -n '2,7p' "$0"; exit 2; }
seconds=$1 jobs=$2
shift 2
[ $# -gt 0 ] || set -- $(cd "$programs" && ls fuzz_* | sed 's/^fuzz_//')
if [ -d "$here/lib" ]; then export LD_LIBRARY_PATH="$here/lib"; fi
export ASAN_OPTIONS=detect_stack_use_after_return=1:allocator_may_return_null=0:${ASAN_OPTIONS-}
export UBSAN_OPTIONS=print_stacktrace=1:${UBSAN_OPTIONS-}

run_one() {  # target
  local target=$1 folder=$found/$1 dictionary=$dictionaries/$1.dict status
  mkdir -p "$folder/corpus"
  local options=(-max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -malloc_limit_mb=512 -print_final_stats=1
    -artifact_prefix="$folder/")
  [ ! -f "$dictionary" ] || options+=(-dict="$dictionary")
  { time "$programs/fuzz_$target" "${options[@]}" "$folder/corpus" "$corpus/$target"; } >"$folder/log" 2>&1
  status=$?
  local runs cpu coverage
  runs=$(awk '/stat::number_of_executed_units/ { print $2 }' "$folder/log")
  cpu=$(awk '/^(user|sys)/ { split($2, t, /[ms]/); sum += 60 * t[1] + t[2] } END { printf "%d", sum }' "$folder/log")
  coverage=$(grep -oE 'cov: [0-9]+' "$folder/log" | awk 'NR == 1 { first = $2 } { last = $2 } END { print first " -> " last }')
  printf '%-14s %10s runs %6s CPU s   coverage %s   %s\n' "$target" "${runs:-?}" "$cpu" "$coverage" \
    "$([ $status = 0 ] && echo 'nothing found' || echo "FOUND: $folder/log")"
  return $status
}

failed=0 running=0
for target in "$@"; do
  if [ "$running" -ge "$jobs" ]; then
    wait -n || failed=1
    running=$((running - 1))
  fi
  run_one "$target" &
  running=$((running + 1))
done
while [ "$running" -gt 0 ]; do
  wait -n || failed=1
  running=$((running - 1))
done
exit $failed
