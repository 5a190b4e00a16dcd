# All commands for users and developers. Each target first installs the packages that are missing (scripts/packages.txt).
.DEFAULT_GOAL := help
.PHONY: help setup build wheel demo test test-long fuzz sanitize bench reference check format tidy clean

sources = $(shell find src include tests examples bench -name '*.cpp' -o -name '*.h' -o -name '*.inl' -o -name '*.cu' -o -name '*.cuh' 2>/dev/null)

help:  ## prints this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup:
	@scripts/setup.sh

build: setup  ## builds program, examples and tests in build/; includes the GPU backend if nvcc is installed
	@scripts/build.sh

wheel: setup  ## builds the Python wheel in build/wheel, with the libraries that it loads; PYTHONS="python3.10 ..." chooses interpreters
	@scripts/venv.sh wheel
	@scripts/wheel.sh $(PYTHONS)

demo: setup  ## builds build/plimsoll; trains a model in memory in which the kernel kills it without a plan, then Fashion-MNIST in a budget
	@scripts/build.sh --for-demo plimsoll
	@scripts/demo.sh

test: build  ## runs all tests: unit tests, checks of the source tree, comparisons with Keras, 30 s of each fuzz target
	@scripts/test.sh

test-long: build  ## runs the same tests completely: every allocation fails once, 10 minutes per fuzz target, 2,000 mutated files of each kind
	@scripts/test.sh --long

fuzz:  ## runs every file parser under libFuzzer for FUZZ_SECONDS=60 each; FUZZ_TARGETS="npy zip" chooses targets (default: all)
	@scripts/fuzz.sh $(or $(FUZZ_SECONDS),60) $(FUZZ_TARGETS)

sanitize: setup  ## runs the unit tests under AddressSanitizer, LeakSanitizer and UndefinedBehaviorSanitizer
	cmake --preset sanitize
	cmake --build --preset sanitize
	ctest --preset sanitize

bench: setup  ## compares step time and memory with TensorFlow
	@scripts/build.sh plimsoll
	@scripts/venv.sh newest
	.venv/bin/python bench/run.py

reference:  ## the reference of the C++ interface in build/reference/html; fails if a public name has no comment
	@scripts/setup.sh reference
	@scripts/reference.sh

check:  ## checks folder order, docs and code format
	@scripts/setup.sh build tests tools
	@python3 scripts/check_folders.py --self-test
	@python3 scripts/check_folders.py
	@python3 scripts/check_docs.py
	@clang-format --dry-run --Werror $(sources)

format:  ## runs clang-format on all sources
	@scripts/setup.sh tools
	clang-format -i $(sources)

tidy: setup  ## runs clang-tidy on src
	@scripts/setup.sh tools
	@cmake --preset debug >/dev/null  # this preset compiles every source separately
	@find src -name '*.cpp' -print0 | xargs -0 -r -n 1 -P "$$(nproc)" clang-tidy -p build-debug --quiet --extra-arg=-Wno-unknown-warning-option

clean:  ## removes all build folders; keeps .venv
	rm -rf build build-debug build-sanitize build-reference build-fuzz build-dist
