"""Makes seeds for the fuzz targets from the golden files, and adds other files to them.

    python3 tests/corpus/make.py [--plimsoll build/plimsoll] [FILE...]

Seeds are small and valid. A FILE (.keras, .json, .plan, .plimsoll, .npy, .npz, .idx) is something that once broke a parser:
of a .keras whose name begins with h5 the weights are taken, of a plan its graphs too.
"""

import argparse
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import zipfile
import zlib

HERE = pathlib.Path(__file__).parent
GOLDEN = HERE.parent / "golden"
LARGEST = 64 << 10


def put(target, name, data):
    if len(data) > LARGEST:
        print(f"{target}/{name}: {len(data)} bytes are too many for a seed", file=sys.stderr)
        return
    (HERE / target).mkdir(exist_ok=True)
    (HERE / target / name).write_bytes(data)


def compact(value):
    return json.dumps(value, separators=(",", ":")).encode()


def entry_of(path, name):
    """Returns the bytes of a stored entry, even if its checksum is wrong."""
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo(name)
        archive.fp.seek(info.header_offset)
        header = archive.fp.read(30)
        archive.fp.seek(int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little"), 1)
        data = archive.fp.read(info.compress_size)
    return zlib.decompress(data, -15) if info.compress_type == 8 else data


def put_plan(name, text):
    put("plan", name, text)
    try:
        phases = json.loads(text)["phases"]
    except (ValueError, KeyError, TypeError):
        return
    seen = set()
    for phase in phases:
        graph = str(phase.get("graph", "")).encode()
        if 0 < len(graph) <= LARGEST and graph not in seen:
            put("graph_text", f"{pathlib.Path(name).stem}-{len(seen)}.txt", graph)
        seen.add(graph)


def put_golden():
    for path in sorted((GOLDEN / "model").glob("*.json")):
        for item in json.loads(path.read_text()):
            if "config" in item:
                put("architecture", f"{path.stem}-{item['name']}.json", compact(item["config"]))
    for path in sorted(GOLDEN.glob("*.keras")) + sorted((GOLDEN / "formats").glob("*.keras")):
        put("architecture", f"{path.stem}.json", entry_of(path, "config.json"))
        put("hdf5", f"{path.stem}.h5", entry_of(path, "model.weights.h5"))
    smallest = GOLDEN / "mlp.keras"
    put("zip", smallest.name, smallest.read_bytes())
    deflated = io.BytesIO()
    with zipfile.ZipFile(smallest) as source, zipfile.ZipFile(deflated, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            target.writestr(zipfile.ZipInfo(name), source.read(name), zipfile.ZIP_DEFLATED)  # a fixed date
    put("zip", "mlp-deflated.keras", deflated.getvalue())
    for path in sorted((GOLDEN / "formats").iterdir()):
        for suffix, target in {".npy": "npy", ".npz": "npz", ".idx": "idx", ".gz": "idx"}.items():
            if path.suffix == suffix:
                put(target, path.name, path.read_bytes())
                if suffix == ".idx":  # the fuzz target compresses it
                    put("idx", "z-" + path.name, b"z" + path.read_bytes())


def put_own(plimsoll):
    """Makes plans and a checkpoint with Plimsoll."""
    mlp, x, y = GOLDEN / "mlp.keras", GOLDEN / "mlp_x.npy", GOLDEN / "mlp_y.npy"
    common = ["--batch-size", "8", "--budget", "256MiB", "--device", "cpu"]
    with tempfile.TemporaryDirectory() as folder:
        saved = pathlib.Path(folder) / "plan"
        for model in ("mlp", "cnn", "resnet"):
            subprocess.run([plimsoll, "plan", GOLDEN / f"{model}.keras", *common, "--save", saved], check=True, stdout=subprocess.DEVNULL)
            put_plan(f"{model}.plan", saved.read_bytes())
        subprocess.run([plimsoll, "fit", mlp, "--data", f"{x},{y}", *common, "--epochs", "1", "--checkpoint", folder, "--quiet"],
                       check=True, stdout=subprocess.DEVNULL)
        for path in pathlib.Path(folder).glob("*.plimsoll"):
            put("checkpoint", "mlp.plimsoll", path.read_bytes())


def put_file(path):
    if path.suffix == ".keras" and path.name.startswith("h5"):
        weights = entry_of(path, "model.weights.h5")
        put(*(("zip", path.name, path.read_bytes()) if len(weights) > LARGEST else ("hdf5", path.stem + ".h5", weights)))
    elif path.suffix == ".plan":
        put_plan(path.name, path.read_bytes())
    else:
        target = {".keras": "zip", ".plimsoll": "checkpoint", ".json": "architecture", ".npy": "npy", ".npz": "npz", ".idx": "idx", ".gz": "idx"}
        put(target[path.suffix], path.name, path.read_bytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll")
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    given = parser.parse_args()
    put_golden()
    if given.plimsoll:
        put_own(given.plimsoll)
    for path in given.files:
        put_file(path)


if __name__ == "__main__":
    main()
