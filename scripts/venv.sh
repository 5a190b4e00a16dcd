#!/bin/sh
# Creates the Python environments of the tests: .venv (newest Keras on TensorFlow), .venv/oldest (Keras 3.0.0) and
# .venv/wheel (what makes wheels).
#
#   scripts/venv.sh [newest|oldest|wheel]...        default: all; prints nothing and takes no time if they are up to date
#
# A stamp file contains the hash of the requirements and of the interpreter's version. It is written last, so that an incomplete
# installation is repeated. PYTHON is the interpreter (default python3, at least 3.11).
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}

make_venv() {  # folder, requirements
  want=$( { "$python" -c 'import sys; print(sys.version)'; cat "$2"; } | sha256sum | cut -d' ' -f1)
  if [ -x "$1/bin/python" ] && [ "$(cat "$1/stamp" 2>/dev/null || true)" = "$want" ]; then
    return
  fi
  "$python" -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "error: %s is Python %d.%d; 3.11 or newer is needed" % (sys.executable, *sys.version_info[:2]))'
  echo "installing $2 into $1" >&2
  rm -f "$1/stamp"
  "$python" -m venv "$1"
  "$1/bin/python" -m pip install --quiet --disable-pip-version-check -r "$2"
  echo "$want" > "$1/stamp"
}

[ $# -gt 0 ] || set -- newest oldest wheel
for which; do
  case $which in
    newest) make_venv "$root/.venv" "$root/scripts/requirements.txt" ;;
    oldest) make_venv "$root/.venv/oldest" "$root/scripts/requirements-oldest.txt" ;;
    wheel) make_venv "$root/.venv/wheel" "$root/scripts/requirements-wheel.txt" ;;
    *) echo "error: '$which' is not an environment; use newest, oldest or wheel" >&2; exit 2 ;;
  esac
done
