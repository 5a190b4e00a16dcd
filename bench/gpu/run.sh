#!/usr/bin/env bash
# Builds, tests and times everything on a machine with a GPU, also PyTorch and JAX, and prints a table of ratios.
#
#   bench/gpu/run.sh [tests] [outside] [memcheck] [ours] [peers] [autotune] [autotune-large] [table]        default: tests outside ours peers table
#
# Does not need oneDNN. If build-bundle has programs (scripts/gpu_bundle.sh makes it on another machine), nothing is built. Models come
# from bench/gpu/make_models.py, which needs Keras; run it on a machine with Keras and copy its files to build-models.
# The JSON lines of all runs are in $OUT (default build-gpu-results), the table is in results.md there. max-autotune takes about three
# minutes for the CNNs, and six for ResNet-50 and GPT-2 (autotune-large).
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
out=${OUT:-build-gpu-results}
mkdir -p "$out"
[ $# -gt 0 ] || set -- tests outside ours peers table

programs=build-bundle
if [ ! -x "$programs/step_bench" ]; then
  programs=build-gpu
  [ -f .deps/cudnn-frontend/include/cudnn_frontend.h ] || scripts/cuda_deps.sh || exit 1
  # The compiler of this machine may be newer than ours and have more warnings.
  cmake -S . -B "$programs" -G Ninja -DPLIMSOLL_WERROR=OFF -DPLIMSOLL_CPU=OFF -DPLIMSOLL_CUDA=ON -DPLIMSOLL_CUDA_ARCHITECTURES=native >"$out/build.log" 2>&1 &&
    cmake --build "$programs" --target all step_bench gpt_bench -- -k 0 >>"$out/build.log" 2>&1 ||
    { grep -A3 "error:\|FAILED" "$out/build.log" | head -30; exit 1; }
  echo "built $(find "$programs" -maxdepth 1 -type f -perm -u+x ! -name '*.so*' | wc -l) programs in $SECONDS s"
fi
[ -f build-models/resnet50.json ] || python3 bench/gpu/make_models.py build-models || exit 1
export LD_LIBRARY_PATH=$PWD/$programs:${LD_LIBRARY_PATH:-}
export PLIMSOLL_CACHE=${PLIMSOLL_CACHE:-$PWD/build-gpu-cache}

ours() {  # name, command...: appends the JSON line to ours.jsonl, or prints what failed
  local name=$1
  shift
  timeout 240 "$@" >>"$out/ours.jsonl" 2>"$out/$name.err" || { failed=1; echo "$name failed:"; tail -3 "$out/$name.err"; }
}

in_shards() {  # count, log, command...: runs a GoogleTest program in `count` processes; prints how many tests passed, skipped, failed
  local shards=$1 log=$2 shard
  shift 2
  for ((shard = 0; shard < shards; ++shard)); do
    GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard "$@" >"$log.$shard" 2>&1 || echo "[ exit code ] $?: $*" >>"$log.$shard" &
  done
  wait
  cat "$log".* >"$log"
  rm "$log".*
  echo "$(basename "$log" .log): $(grep -c '^\[       OK ' "$log") passed, $(grep -c '^\[  SKIPPED ].* ms)' "$log") skipped, $(grep -c '^\[  FAILED  ].* ms)' "$log") failed"
  grep 'ERROR SUMMARY' "$log" | sort | uniq -c
  ! grep '^\[  FAILED  ].* ms)\|^\[ exit code' "$log"
}
failed=0

for part; do
  case $part in
    tests)
      # Some tests measure or take GPU memory, so only test_ops runs in parallel.
      in_shards 6 "$out/test_ops.log" "$programs/test_ops" || failed=1
      for test in "$programs"/test_*; do
        [ "$test" = "$programs/test_ops" ] || in_shards 1 "$out/$(basename "$test").log" "$test" || failed=1
      done ;;
    outside)
      # A project outside the tree and the examples, through the installed C++ library.
      { cmake --install "$programs" --prefix build-gpu-installed &&
        cmake -S tests/outside -B build-gpu-outside -G Ninja -DCMAKE_PREFIX_PATH="$PWD/build-gpu-installed" &&
        cmake --build build-gpu-outside; } >"$out/outside.log" 2>&1 || { failed=1; tail -5 "$out/outside.log"; }
      (cd build-gpu-outside && ./outside gpu) || failed=1
      for example in "$programs"/example_*; do
        [ "$(basename "$example")" != example_seed_2 ] || continue  # its budget is one of the CPU's
        "$example" >"$out/example.log" 2>&1 || { failed=1; echo "$(basename "$example") failed:"; tail -3 "$out/example.log"; }
      done ;;
    memcheck)
      in_shards 12 "$out/memcheck.log" compute-sanitizer --tool memcheck --error-exitcode 1 "$programs/test_ops" --gtest_filter='*gpu*' || failed=1 ;;
    ours)
      : >"$out/ours.jsonl"
      for precision in float32 mixed_bfloat16; do
        ours seed64 "$programs/step_bench" build-models/seed64.json 32 $precision --steps 200
        ours seed128 "$programs/step_bench" build-models/seed128.json 128 $precision --steps 200
      done
      ours resnet50 "$programs/step_bench" build-models/resnet50.json 256 mixed_bfloat16 --profile 1
      ours resnet50-7g "$programs/step_bench" build-models/resnet50.json 256 mixed_bfloat16 --budget 7GiB
      ours gpt2 "$programs/gpt_bench" --profile 1
      # A second start finds compiled kernels and chosen engines in the cache.
      ours resnet50-warm "$programs/step_bench" build-models/resnet50.json 256 mixed_bfloat16
      ours resnet50-7g-warm "$programs/step_bench" build-models/resnet50.json 256 mixed_bfloat16 --budget 7GiB
      ours gpt2-warm "$programs/gpt_bench" ;;
    peers)
      : >"$out/peers.jsonl"
      python3 bench/gpu/peers.py --works seed64,seed128 --precisions fp32,bf16 --peers jax,eager,compile >>"$out/peers.jsonl" 2>"$out/peers.err"
      python3 bench/gpu/peers.py --works resnet50,gpt2 --precisions bf16 --peers eager,compile >>"$out/peers.jsonl" 2>>"$out/peers.err" ;;
    autotune)
      python3 bench/gpu/peers.py --works seed64,seed128 --precisions fp32,bf16 --peers autotune >>"$out/peers.jsonl" 2>>"$out/peers.err" ;;
    autotune-large)
      python3 bench/gpu/peers.py --works resnet50,gpt2 --precisions bf16 --peers autotune-library >>"$out/peers.jsonl" 2>>"$out/peers.err" ;;
    table) python3 bench/gpu/table.py "$out" | tee "$out/results.md" ;;
    *) echo "error: unknown part '$part'; use tests, outside, memcheck, ours, peers, autotune, autotune-large or table" >&2; exit 2 ;;
  esac
done
exit $failed
