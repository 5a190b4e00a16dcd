# Everything one types. Each target installs what it misses first (scripts/packages.txt), so a fresh machine needs no other step.
.DEFAULT_GOAL := help
.PHONY: help setup build demo test test-long fuzz sanitize bench reference check format tidy clean

sources = $(shell find src include tests examples bench -name '*.cpp' -o -name '*.h' -o -name '*.inl' -o -name '*.cu' -o -name '*.cuh' 2>/dev/null)

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup:
	@scripts/setup.sh

build: setup  ## program, examples and tests in build/, with the GPU backend where nvcc is
	@scripts/build.sh

demo: setup  ## a model that the kernel kills trains in the same memory; then Fashion-MNIST in a stated budget. Builds build/plimsoll alone
	@scripts/build.sh --for-demo plimsoll
	@scripts/demo.sh

test: build  ## all tests: unit tests, checks of the tree, comparisons with Keras, a sample of each fuzz target
	@scripts/test.sh

test-long: build  ## the same without samples: every allocation fails once, 10 minutes per fuzz target, 2,000 mutated files of each kind
	@scripts/test.sh --long

fuzz:  ## every parser of files under libFuzzer: FUZZ_SECONDS=60 each, FUZZ_TARGETS="npy zip" (default: all)
	@scripts/fuzz.sh $(or $(FUZZ_SECONDS),60) $(FUZZ_TARGETS)

sanitize: setup  ## the unit tests under AddressSanitizer, LeakSanitizer and UndefinedBehaviorSanitizer
	cmake --preset sanitize
	cmake --build --preset sanitize
	ctest --preset sanitize

bench: setup  ## step time and memory beside TensorFlow's
	@scripts/build.sh plimsoll
	@scripts/venv.sh newest
	.venv/bin/python bench/run.py

reference:  ## the reference of the C++ interface in build/reference/html; fails if a public name has no comment
	@scripts/setup.sh reference
	@scripts/reference.sh

check:  ## folder order, docs, format
	@scripts/setup.sh build tests tools
	@python3 scripts/check_folders.py --self-test
	@python3 scripts/check_folders.py
	@python3 scripts/check_docs.py
	@clang-format --dry-run --Werror $(sources)

format:  ## clang-format, in place
	@scripts/setup.sh tools
	clang-format -i $(sources)

tidy: setup  ## clang-tidy over src
	@scripts/setup.sh tools
	@cmake --preset debug >/dev/null  # there every source is compiled alone
	@find src -name '*.cpp' -print0 | xargs -0 -r -n 1 -P "$$(nproc)" clang-tidy -p build-debug --quiet --extra-arg=-Wno-unknown-warning-option

clean:  ## removes what was built; keeps .venv
	rm -rf build build-debug build-sanitize build-reference build-fuzz build-dist
