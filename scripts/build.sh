#!/usr/bin/env bash
# Configures build/ (the preset release) and builds in it.
#
#   scripts/build.sh [--for-demo] [TARGET...]      default: all targets (program, examples, tests)
#
# The GPU backend is built if nvcc is installed. With --for-demo, a new build/ includes it only if this machine also has a GPU; otherwise
# compiling CUDA would be wasted time. The next build without --for-demo adds it.
set -euo pipefail
cd "$(dirname "$0")/.."

options=()
if [ "${1-}" = --for-demo ]; then
  shift
  [ -f build/CMakeCache.txt ] || options=(-DPLIMSOLL_CUDA=IF_GPU)
elif grep -qs '^PLIMSOLL_CUDA:STRING=IF_GPU$' build/CMakeCache.txt; then
  options=(-DPLIMSOLL_CUDA=AUTO)
fi

if { command -v nvcc || [ -x /usr/local/cuda/bin/nvcc ]; } >/dev/null &&
  { [ "${options[*]}" != -DPLIMSOLL_CUDA=IF_GPU ] || nvidia-smi -L >/dev/null 2>&1; }; then
  scripts/cuda_deps.sh || echo "building without the GPU backend" >&2
fi
mkdir -p build
cmake --preset release "${options[@]}" >build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
targets=()
[ $# = 0 ] || targets=(--target "$@")
exec cmake --build --preset release "${targets[@]}"
