#!/usr/bin/env bash
# Copies GPU programs that were built here, with the shared libraries they need, to one folder, so that they run on a GPU machine without
# our packages. NVIDIA's driver and libraries must be installed there.
#
#   scripts/gpu_bundle.sh BUILD-FOLDER [INTO]      default INTO: build-bundle
#
# On the GPU machine: LD_LIBRARY_PATH=build-bundle build-bundle/plimsoll doctor
set -euo pipefail
build=${1:?usage: scripts/gpu_bundle.sh BUILD-FOLDER [INTO]}
into=${2:-build-bundle}

rm -rf "$into"
mkdir -p "$into"
for program in plimsoll step_bench gpt_bench test_ops test_execute test_plan; do
  [ -x "$build/$program" ] || continue
  cp "$build/$program" "$into/"
  strip "$into/$program"
  # Libraries whose version differs between systems, or that only we need; the GPU machine has its own zlib and OpenMP.
  ldd "$build/$program" | awk '$3 ~ /lib(fmt|jpeg|png|isal)/ { print $3 }' | xargs -r cp -Lu -t "$into"
done
# The libraries that test_execute loads into the program to make it fail.
for library in libfail_allocation.so libfail_kernel.so; do
  if [ -e "$build/$library" ]; then cp "$build/$library" "$into/"; fi
done
du -sh "$into"
