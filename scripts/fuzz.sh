#!/usr/bin/env bash
# Runs the fuzz targets (docs/internals/fuzzing.md), one per processor at a time, and prints the result of each.
#
#   scripts/fuzz.sh [SECONDS [TARGET...]]    builds the targets and runs each for SECONDS (default 60)
#   scripts/fuzz.sh --bundle DIR             collects programs, corpora and libraries in the folder DIR and in DIR.tar.gz,
#                                            for another machine; there: DIR/run.sh SECONDS JOBS [TARGET...]
#
# New inputs and findings are stored in build-fuzz/found/TARGET/. Exits with 1 if anything was found.
set -u
cd "$(dirname "$0")/.." || exit 1
all="architecture zip hdf5 legacy_h5 saved_model npy npz safetensors idx image tfrecord csv plan checkpoint graph_text explain text tflite"

build() {
  scripts/setup.sh build fuzz || exit
  mkdir -p build-fuzz
  cmake --preset fuzz >build-fuzz/configure.log 2>&1 || { cat build-fuzz/configure.log; exit 1; }
  cmake --build --preset fuzz || exit
}

bundle() {  # folder
  build
  mkdir -p "$1/lib" "$1/corpus" "$1/dictionaries" || exit
  for target in $all; do
    # Debug information is removed, because findings are run again on this machine.
    objcopy --strip-debug "build-fuzz/fuzz_$target" "$1/fuzz_$target" && cp -r "tests/corpus/$target" "$1/corpus/" || exit
    # Copies all linked libraries except the C library, which every machine has.
    ldd "build-fuzz/fuzz_$target" | awk '$3 ~ /^\// { print $3 }' |
      grep -Ev '/(libc|libm|libdl|libpthread|librt|libresolv)\.so' | xargs -r cp -Lut "$1/lib" || exit
  done
  cp tests/fuzz/dictionaries/* "$1/dictionaries/" && cp scripts/fuzz_run.sh "$1/run.sh" || exit
  tar -czf "$1.tar.gz" -C "$(dirname "$1")" "$(basename "$1")" && du -sh "$1" "$1.tar.gz"
}

if [ "${1-}" = --bundle ]; then
  [ $# = 2 ] || { sed -n '2,8p' "$0"; exit 2; }
  bundle "$2"
  exit
fi
seconds=${1-60}
[ $# = 0 ] || shift
build
PROGRAMS=build-fuzz CORPUS=tests/corpus DICTIONARIES=tests/fuzz/dictionaries FOUND=build-fuzz/found \
  exec scripts/fuzz_run.sh "$seconds" "$(nproc)" ${@:-$all}
