#!/usr/bin/env bash
# Builds wheels in build/wheel that run without our Debian packages (scripts/bundle_wheel.py). The library is compiled once.
#
#   scripts/wheel.sh [PYTHON...]       interpreters from 3.10 to 3.13; default: that of .venv/wheel
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/build.sh plimsoll plimsoll_library
prefix=$PWD/build/wheel-library
cmake --install build --prefix "$prefix" >/dev/null
[ $# -gt 0 ] || set -- .venv/wheel/bin/python
for python; do
  "$python" -c 'import sys; sys.exit(0 if (3, 10) <= sys.version_info[:2] <= (3, 13) else "error: %s is Python %d.%d; wheels are made for 3.10 to 3.13" % (sys.executable, *sys.version_info[:2]))'
  name=$("$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
  if [ "$python" != .venv/wheel/bin/python ]; then  # an environment for the two packages that build it
    "$python" -m venv "build/wheel-$name"
    python=build/wheel-$name/bin/python
    "$python" -m pip install --quiet --disable-pip-version-check $(grep -E '^(nanobind|scikit-build-core)==' scripts/requirements-wheel.txt)
  fi
  rm -rf "build/wheel-built-$name"
  "$python" -m pip wheel . --quiet --disable-pip-version-check --no-build-isolation --no-deps --no-index -w "build/wheel-built-$name" \
    --config-settings "build-dir=build/wheel-build-$name" --config-settings "cmake.define.plimsoll_DIR=$prefix/lib/cmake/plimsoll"
  .venv/wheel/bin/python scripts/bundle_wheel.py "build/wheel-built-$name"/*.whl -o build/wheel
done
