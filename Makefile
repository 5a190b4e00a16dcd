# Everything one types. Each target installs what it misses first (scripts/packages.txt), so a fresh machine needs no other step.
.DEFAULT_GOAL := help
.PHONY: help setup build demo test fuzz sanitize bench check format tidy clean

nvcc = $(shell command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
sources = $(shell find src include tests examples bench -name '*.cpp' -o -name '*.h' -o -name '*.inl' -o -name '*.cu' -o -name '*.cuh' 2>/dev/null)

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup:
	@scripts/setup.sh

build: setup  ## leaves build/plimsoll, with the GPU backend where nvcc is
	@if [ -n "$(nvcc)" ]; then scripts/cuda_deps.sh || echo "building without the GPU backend" >&2; fi
	@mkdir -p build && cmake --preset release >build/configure.log 2>&1 || { cat build/configure.log; exit 1; }
	cmake --build --preset release

demo: build  ## a model that the kernel kills trains in the same memory; then Fashion-MNIST in a stated budget
	@scripts/demo.sh

test: build  ## all tests: unit tests, checks of the tree, comparisons with Keras
	@scripts/test.sh

fuzz:  ## every parser of files under libFuzzer: FUZZ_SECONDS=60 each, FUZZ_TARGETS="npy zip" (default: all)
	@scripts/fuzz.sh $(or $(FUZZ_SECONDS),60) $(FUZZ_TARGETS)

sanitize: setup  ## the unit tests under AddressSanitizer, LeakSanitizer and UndefinedBehaviorSanitizer
	cmake --preset sanitize
	cmake --build --preset sanitize
	ctest --preset sanitize

bench: build  ## step time and memory beside TensorFlow's
	@scripts/venv.sh newest
	.venv/bin/python bench/run.py

check:  ## folder order, docs, format
	@scripts/setup.sh build tests tools
	@python3 scripts/check_folders.py --self-test
	@python3 scripts/check_folders.py
	@python3 scripts/check_docs.py
	@clang-format --dry-run --Werror $(sources)

format:  ## clang-format, in place
	@scripts/setup.sh tools
	clang-format -i $(sources)

tidy: build  ## clang-tidy over src
	@scripts/setup.sh tools
	@find src -name '*.cpp' -print0 | xargs -0 -r -n 1 -P "$$(nproc)" clang-tidy -p build --quiet --extra-arg=-Wno-unknown-warning-option

clean:  ## removes what was built; keeps .venv
	rm -rf build build-debug build-sanitize build-reference build-fuzz
