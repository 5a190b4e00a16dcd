#!/bin/sh
# Downloads the headers of cudnn-frontend from its wheel on PyPI to .deps/cudnn-frontend/include. Does nothing if they already have the
# version in scripts/requirements-cuda.txt.
#
#   scripts/cuda_deps.sh
#
# PYTHON is the interpreter whose pip is used (default python3). The stamp is written last, so that an incomplete download is repeated.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
requirements=$root/scripts/requirements-cuda.txt
folder=$root/.deps/cudnn-frontend
want=$(sed -n 's/^\(nvidia-cudnn-frontend==[0-9.]*\)$/\1/p' "$requirements")
[ -n "$want" ] || { echo "error: $requirements names no version of nvidia-cudnn-frontend" >&2; exit 2; }
if [ "$(cat "$folder/stamp" 2>/dev/null || true)" = "$want" ] && [ -f "$folder/include/cudnn_frontend.h" ]; then
  exit 0
fi

echo "fetching $want into $folder" >&2
mkdir -p "$root/.deps"
aside=$(mktemp -d "$root/.deps/fetch.XXXXXX")
trap 'rm -rf "$aside"' EXIT
# The headers are the same in every wheel, so the wheel need not match this machine's Python.
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$aside" "$want" ||
  "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --python-version 3.12 \
    --platform manylinux_2_28_x86_64 --dest "$aside" "$want" ||
  { echo "error: $want could not be downloaded from PyPI (pip's own message is above)" >&2; exit 6; }
"$python" - "$aside" <<'END'
import pathlib, sys, zipfile
aside = pathlib.Path(sys.argv[1])
wheel = next(aside.glob("*.whl"))
found = 0
with zipfile.ZipFile(wheel) as archive:
    names = archive.namelist()
    heads = [name for name in names if name.endswith("/cudnn_frontend.h") or name == "cudnn_frontend.h"]
    if not heads:
        sys.exit(f"error: {wheel.name} does not contain cudnn_frontend.h")
    prefix = min(heads, key=len)[: -len("cudnn_frontend.h")]
    for name in names:
        relative = pathlib.PurePosixPath(name[len(prefix):]) if name.startswith(prefix) else None
        if relative is None or name.endswith("/") or ".." in relative.parts:
            continue
        target = aside / "include" / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(archive.read(name))
        found += 1
print(f"{found} files from {wheel.name}", file=sys.stderr)
END
rm -rf "$folder"
mkdir -p "$folder"
mv "$aside/include" "$folder/include"
echo "$want" > "$folder/stamp"
