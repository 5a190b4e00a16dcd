#!/usr/bin/env bash
# Shows what Plimsoll does in three minutes. `make demo` runs it after the build.
#
# 1. A model that "can potentially trigger an OOM error" runs twice in a memory cgroup of the same size. Without levers, the kernel kills
#    it. With a plan for that size, it finishes with the same losses as a run with enough memory.
# 2. A CNN trains on Fashion-MNIST inside a budget for the whole process, and real Keras loads the saved file.
#
# The script checks everything it claims, and exits with 1 if a check fails. Its output files are in build/demo.
# DEMO_SIZE and DEMO_BATCH (part 1; a smaller batch is faster), DEMO_BUDGET and DEMO_EPOCHS (part 2) replace the default values.
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
wrong() { printf '\n%sThe demo failed: %s%s\n' "$bold" "$*" "$plain" >&2; exit 1; }
type_out() { printf '\n$ %s\n' "$*"; }
show() { type_out "$@"; "$@"; }
# Runs a command in a memory cgroup of size $1, or without one if none can be created. Messages go to a file.
limited() {
  local size=$1 within=()
  shift
  type_out "$@"
  if [ "$cgroup" = yes ]; then within=(scripts/in_cgroup.sh --report "$out/cgroup.txt" "$size" --); fi
  "${within[@]}" "$@" 2>"$out/stderr.txt"
}
size() { "${numbers[@]}" size "$1"; }

[ -x $plimsoll ] || wrong "$plimsoll does not exist; run 'make demo', which builds it first"
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
say "The best plan without levers needs $(size "$needs") for the whole process. The demo gives it only $limit."

rm -f "$out"/{free,killed,planned}.jsonl
title "   With as much memory as it needs"
show "${fit[@]}" "${no_levers[@]}" --budget "$((2 * needs))" --log "$out/free.jsonl" || wrong "the run with enough memory failed"
say "Measured peak of the process: $(size "$("${numbers[@]}" 'done' "$out/free.jsonl" process_peak_bytes)")."

if [ "$cgroup" = yes ]; then
  title "   The same in a memory cgroup of $limit"
  limited "$limit" "${fit[@]}" "${no_levers[@]}" --budget "$((2 * needs))" --log "$out/killed.jsonl"
  status=$?
  grep -qx oom_killed=yes "$out/cgroup.txt" || wrong "the run without levers was not killed in $limit (exit status $status; its messages: $out/stderr.txt)"
  say "Killed by the kernel, exit status $status: it needed more than $limit."
else
  title "   No memory cgroup can be created here"
  say "${reason#in_cgroup: }"
  say "So the kernel does not kill the run; the demo shows the measured peaks instead."
fi

title "   Planned by Plimsoll for $limit"
limited "$limit" "${fit[@]}" --budget "$limit" --log "$out/planned.jsonl" ||
  { cat "$out/stderr.txt" >&2; wrong "the run planned for $limit failed"; }
say "Finished. Levers used: $("${numbers[@]}" levers "$out/planned.jsonl")."
say
"${numbers[@]}" losses "$out/free.jsonl" "$out/planned.jsonl" || wrong "the losses differ"
"${numbers[@]}" peaks "$out/planned.jsonl" || wrong "the run went over its budget"

# ---------------------------------------------------------------------------------------------------------------- part 2
budget=${DEMO_BUDGET:-64MiB}
title "2. Fashion-MNIST inside $budget for the whole process"
train=$fashion/train-images-idx3-ubyte.gz,$fashion/train-labels-idx1-ubyte.gz
test=$fashion/t10k-images-idx3-ubyte.gz,$fashion/t10k-labels-idx1-ubyte.gz
[ -d $fashion ] || wrong "$fashion does not exist: scripts/setup.sh installs the package dataset-fashion-mnist"

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
    { cat "$out/stderr.txt" >&2; wrong "Keras computes another score"; }
else
  say
  say "$out/fashion.keras is an ordinary Keras file. To load it in real Keras and compare the score:"
  say "  scripts/venv.sh newest && .venv/bin/python scripts/score_with_keras.py $out/fashion.keras ${test/,/ } $out/evaluate.json"
fi

title "Next steps: README.md, docs/fits.md, and 'build/plimsoll plan YOUR_MODEL.keras --batch-size 32'"
