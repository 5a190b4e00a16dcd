#!/usr/bin/env bash
# Runs all tests, after `make build`. Continues after a failure, and prints at the end what failed.
#
#   scripts/test.sh [--long]
#
# Some tests try only a sample: 30 s per fuzz target, 50 mutated files of each kind, some of the failing allocations, and no file of
# 5 GiB. With --long they try everything (docs/internals/building.md). FUZZ_SECONDS and MUTATED_FILES replace the numbers.
set -u
cd "$(dirname "$0")/.." || exit 1
if [ "${1-}" = --long ]; then
  : "${FUZZ_SECONDS:=600}" "${MUTATED_FILES:=2000}"
  export PLIMSOLL_ALL_ALLOCATIONS=1 PLIMSOLL_SLOW_TESTS=1
fi
: "${FUZZ_SECONDS:=30}"
export MUTATED_FILES=${MUTATED_FILES:-50}

failed=()
stage() {  # name, command...
  local name=$1 start=$SECONDS
  shift
  printf '\n== %s\n   %s\n' "$name" "$*"
  if "$@"; then
    printf '== %s: passed in %d s\n' "$name" $((SECONDS - start))
  else
    printf '== %s: FAILED after %d s\n' "$name" $((SECONDS - start))
    failed+=("$name")
  fi
}

stage "folder order" sh -c 'python3 scripts/check_folders.py --self-test && python3 scripts/check_folders.py'
stage "docs and error pages" python3 scripts/check_docs.py
stage "memory cgroup" bash scripts/check_cgroup.sh
stage "unit tests" ctest --preset release --no-tests=error
stage "fuzzing, $FUZZ_SECONDS s per target" scripts/fuzz.sh "$FUZZ_SECONDS"
stage "Python environment" scripts/venv.sh
# The comparisons with Keras mostly use one core, so the two other sets run beside them. Their output comes last.
.venv/bin/python -m pytest -q tests/keras >build/keras-tests.log 2>&1 &
keras=$!
trap 'kill "$keras" 2>/dev/null' EXIT
stage "the command line" .venv/bin/python -m pytest -q tests/cli
stage "the Python package" .venv/bin/python -m pytest -q tests/python
against_keras() {
  local status=0
  wait "$keras" || status=$?
  cat build/keras-tests.log
  return "$status"
}
stage "against Keras, beside the two before" against_keras

echo
if [ ${#failed[@]} -gt 0 ]; then
  printf 'FAILED: %s\n' "${failed[@]}"
  exit 1
fi
echo "all passed in $SECONDS s"
