#!/usr/bin/env bash
# The story of Plimsoll in three minutes; `make demo` runs it after the build.
#
# 1. A model that "can potentially trigger an OOM error" runs twice in a memory cgroup of one size: without levers the kernel
#    kills it, planned for that size it finishes, with the losses of a run that had all the memory it wanted.
# 2. A CNN trains on Fashion-MNIST inside a stated budget for the whole process, and real Keras loads what it saved.
#
# Everything it claims is checked: it exits 1 when something did not hold. What it writes stands in build/demo.
# DEMO_SIZE and DEMO_BATCH (of part 1; a smaller batch is quicker), DEMO_BUDGET and DEMO_EPOCHS (of part 2) replace what is
# chosen here.
set -u
cd "$(dirname "$0")/.." || exit 1

plimsoll=build/plimsoll
out=build/demo
fashion=/usr/share/datasets/fashion-mnist
numbers=(python3 scripts/demo_numbers.py)
mkdir -p "$out"

bold='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR-}" ]; then bold=$'\e[1m' plain=$'\e[0m'; fi
title() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
say() { printf '%s\n' "$*"; }
wrong() { printf '\n%sThe demo did not hold: %s%s\n' "$bold" "$*" "$plain" >&2; exit 1; }
type_out() { printf '\n$ %s\n' "$*"; }
show() { type_out "$@"; "$@"; }
# Inside a memory cgroup of size $1, or without one where none can be made; messages go to a file.
limited() {
  local size=$1 within=()
  shift
  type_out "$@"
  if [ "$cgroup" = yes ]; then within=(scripts/in_cgroup.sh --report "$out/cgroup.txt" "$size" --); fi
  "${within[@]}" "$@" 2>"$out/stderr.txt"
}
size() { "${numbers[@]}" size "$1"; }

[ -x $plimsoll ] || wrong "$plimsoll is not there; run 'make demo', which builds it first"
cgroup=no
if reason=$(scripts/in_cgroup.sh 64MiB -- true 2>&1); then cgroup=yes; fi

# ---------------------------------------------------------------------------------------------------------------- part 1
title "1. The example that runs out of memory"
batch=${DEMO_BATCH:-128}
say "128 x 128 pixels, batch $batch, two convolutions: \"This can potentially trigger an OOM error on GPUs with limited memory.\""

python3 scripts/make_data.py "$out/seed" --samples "$((2 * batch))"
model=(seed-2 --batch-size "$batch")
fit=("$plimsoll" fit "${model[@]}" --data "$out/seed/x.npy,$out/seed/y.npy" --epochs 2 --shuffle false --seed 1 --quiet)
no_levers=(--forbid "micro-batch,recompute")

"$plimsoll" plan "${model[@]}" "${no_levers[@]}" --json >"$out/free.json" || wrong "plan failed"
needs=$("${numbers[@]}" get "$out/free.json" peak_bytes)
"$plimsoll" plan "${model[@]}" --json >"$out/any.json" || wrong "plan failed"
least=$("${numbers[@]}" get "$out/any.json" least_bytes)
limit=${DEMO_SIZE:-$("${numbers[@]}" limit "$needs" "$least")}
say "The best plan without levers needs $(size "$needs") for the whole process. This machine shall have $limit."

rm -f "$out"/{free,killed,planned}.jsonl
title "   With all the memory it wants"
show "${fit[@]}" "${no_levers[@]}" --budget "$((2 * needs))" --log "$out/free.jsonl" || wrong "the run with memory free failed"
say "Measured peak of the process: $(size "$("${numbers[@]}" 'done' "$out/free.jsonl" process_peak_bytes)")."

if [ "$cgroup" = yes ]; then
  title "   The same in a memory cgroup of $limit"
  limited "$limit" "${fit[@]}" "${no_levers[@]}" --budget "$((2 * needs))" --log "$out/killed.jsonl"
  status=$?
  grep -qx oom_killed=yes "$out/cgroup.txt" || wrong "the run without levers was not killed in $limit (exit status $status; its messages: $out/stderr.txt)"
  say "Killed by the kernel, exit status $status: it asked for more than $limit."
else
  title "   No memory cgroup can be made here"
  say "${reason#in_cgroup: }"
  say "So nothing is killed; the measured peaks are shown instead."
fi

title "   Planned by Plimsoll for $limit"
limited "$limit" "${fit[@]}" --budget "$limit" --log "$out/planned.jsonl" ||
  { cat "$out/stderr.txt" >&2; wrong "the run planned for $limit failed"; }
say "Finished. Levers it pulled: $("${numbers[@]}" levers "$out/planned.jsonl")."
say
"${numbers[@]}" losses "$out/free.jsonl" "$out/planned.jsonl" || wrong "the losses differ"
"${numbers[@]}" peaks "$out/planned.jsonl" || wrong "the run went over its budget"

# ---------------------------------------------------------------------------------------------------------------- part 2
budget=${DEMO_BUDGET:-64MiB}
title "2. Fashion-MNIST inside $budget, the whole process counted"
train=$fashion/train-images-idx3-ubyte.gz,$fashion/train-labels-idx1-ubyte.gz
test=$fashion/t10k-images-idx3-ubyte.gz,$fashion/t10k-labels-idx1-ubyte.gz
[ -d $fashion ] || wrong "$fashion is not there: scripts/setup.sh installs the package dataset-fashion-mnist"

rm -f "$out/fashion.jsonl"
show "$plimsoll" plan fashion-cnn --batch-size 128 --budget "$budget" || wrong "plan failed"
show "$plimsoll" fit fashion-cnn --batch-size 128 --budget "$budget" --epochs "${DEMO_EPOCHS:-10}" --seed 1 \
  --data "$train" --validation-data "$test" --save "$out/fashion.keras" --log "$out/fashion.jsonl" || wrong "fit failed"
"${numbers[@]}" peaks "$out/fashion.jsonl" || wrong "the run went over its budget"

evaluate=("$plimsoll" evaluate "$out/fashion.keras" --batch-size 128 --budget "$budget" --data "$test" --json)
type_out "${evaluate[@]}"
"${evaluate[@]}" >"$out/evaluate.json" || wrong "evaluate failed"
"${numbers[@]}" accuracy "$out/evaluate.json" 0.88 || wrong "test accuracy is below 88 %"

if [ -x .venv/bin/python ] && .venv/bin/python -c 'import keras' 2>/dev/null; then
  title "   Real Keras loads $out/fashion.keras"
  .venv/bin/python scripts/score_with_keras.py "$out/fashion.keras" "${test%,*}" "${test#*,}" "$out/evaluate.json" 2>"$out/stderr.txt" ||
    { cat "$out/stderr.txt" >&2; wrong "Keras does not score the same"; }
else
  say
  say "$out/fashion.keras is an ordinary Keras file. To see real Keras load it and score the same:"
  say "  scripts/venv.sh newest && .venv/bin/python scripts/score_with_keras.py $out/fashion.keras ${test/,/ } $out/evaluate.json"
fi

title "Where next: README.md, docs/fits.md, and 'build/plimsoll plan YOUR_MODEL.keras --batch-size 32'"
