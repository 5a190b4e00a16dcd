"""Makes seeds for the fuzz targets from the golden files, and adds other files to them.

    python3 tests/corpus/make.py [--plimsoll build/plimsoll] [FILE...]

Seeds are small and valid, except those whose name begins with bad. A FILE (.keras, .json, .plan, .plimsoll, .npy, .npz, .safetensors,
.idx) is something that once broke a parser: of a .keras whose name begins with h5 the weights are taken, of a plan its graphs too.
"""

import argparse
import io
import json
import pathlib
import struct
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


def saved_model(folder, metadata=None, index=None, data=None):
    """The parts of a SavedModel folder one after the other, as the fuzz target takes them."""
    variables = folder / "variables"
    metadata = (folder / "keras_metadata.pb").read_bytes() if metadata is None else metadata
    index = (variables / "variables.index").read_bytes() if index is None else index
    data = (variables / "variables.data-00000-of-00001").read_bytes() if data is None else data
    return b"".join((struct.pack("<I", len(metadata)), metadata, struct.pack("<I", len(index)), index, data))


def put_keras2():
    """Whole models in .h5, weights in .h5, and SavedModel folders."""
    folder = GOLDEN / "keras2"
    for name in ("momentum.h5", "weights.h5", "sequential.weights.h5"):
        put("legacy_h5", name, (folder / name).read_bytes())
    put("architecture", "keras2.json", (folder / "sequential.json").read_bytes())
    whole = (folder / "momentum.h5").read_bytes()
    for name, (old, new) in {
        "no-lists": (b"layer_names", b"layer_nameZ"),
        "no-model": (b"model_config", b"model_confiG"),
        "list-of-a-missing-layer": (b"separable", b"separablZ"),
        "list-of-a-missing-weight": (b"depthwise_kernel:0", b"depthwise_kernel:Z"),
        "layer-without-list": (b"weight_names", b"weight_nameZ"),
        "json-cut": (b'{"class_name": "Functional"', b'{"class_name": "Functional}'),
        "nodes-of-another-kind": (b'"inbound_nodes": [[["image", 0', b'"inbound_nodes": [[["image",-9'),
        "no-heap": (b"GCOL", b"GCOl"),
    }.items():
        assert old in whole, name
        put("legacy_h5", f"bad-{name}.h5", whole.replace(old, new))
    model, old = folder / "saved-model", folder / "old-saved-model"
    put("saved_model", "adam", saved_model(model))
    put("saved_model", "old-adam", saved_model(old))
    index = (model / "variables" / "variables.index").read_bytes()
    for name, parts in {
        "no-metadata": {"metadata": b""},
        "metadata-cut": {"metadata": (model / "keras_metadata.pb").read_bytes()[:-7]},
        "no-index": {"index": b""},
        "footer-only": {"index": index[-48:]},
        "footer-beyond-the-file": {"index": index[:-48] + b"\xff" * 9 + b"\x01" + b"\xff" * 9 + b"\x01" + bytes(20) + index[-8:]},
        "compressed": {"index": index.replace(b"\x00\x00\x00\x00\x01\x00\x00\x00\x00", b"\x00\x00\x00\x00\x01\x00\x00\x00\x01")},
        "no-data": {"data": b""},
    }.items():
        put("saved_model", f"bad-{name}", saved_model(model, **parts))


def safetensors(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else compact(header)
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def put_safetensors():
    def array(dtype, shape, begin, end):
        return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}

    pair = {"__metadata__": {"format": "np"}, "y": array("I64", [2], 0, 16), "x": array("U8", [2, 3], 16, 22)}
    widths = {"BOOL": 1, "I8": 1, "U8": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2, "I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8}
    types, end = {}, 0
    for name, width in widths.items():
        types[name.lower()] = array(name, [1, 2], end, end + 2 * width)
        end += 2 * width
    most = 2**63 - 1
    for name, data in {
        "pair": safetensors(pair, bytes(range(22))),
        "padded": safetensors(compact(pair) + b"   ", bytes(22)),  # as save_file writes it: up to a multiple of 8
        "types": safetensors(types, bytes(end)),
        "scalar": safetensors({"x": array("F32", [], 0, 4)}, bytes(4)),
        "no-elements": safetensors({"x": array("F32", [0, 3], 0, 0)}),
        "no-arrays": safetensors({}),
        "bad-length-beyond-the-file": safetensors(pair, bytes(22), 1 << 20),
        "bad-length-of-64-bits": safetensors(pair, bytes(22), 2**64 - 1),
        "bad-length-0": safetensors(pair, bytes(22), 0),
        "bad-cut-short": safetensors(pair, bytes(20)),
        "bad-offsets-beyond-the-file": safetensors({"x": array("U8", [8], 2**40, 2**40 + 8)}, bytes(8)),
        "bad-offsets-swapped": safetensors({"x": array("U8", [8], 8, 0)}, bytes(8)),
        "bad-offsets-overflow": safetensors({"x": array("U8", [most], 1, most)}, bytes(8)),
        "bad-offsets-negative": safetensors({"x": array("U8", [8], -8, 0)}, bytes(8)),
        "bad-shape-overflow": safetensors({"x": array("F64", [2**32, 2**32, 2**32], 0, 0)}),
        "bad-shape-overflow-with-0": safetensors({"x": array("F64", [0, 2**62, 2**62], 0, 0)}),
        "bad-shape-negative": safetensors({"x": array("F32", [-1, -2], 0, 8)}, bytes(8)),
        "bad-type": safetensors({"x": array("F8_E4M3", [8], 0, 8)}, bytes(8)),
        "bad-entry": safetensors({"x": [], "y": {}, "z": {"dtype": 1, "shape": {}, "data_offsets": "0"}}),
        "bad-nested": safetensors(b"[" * 4096),
        "bad-same-name": safetensors(b'{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"x":{}}', bytes(1)),
    }.items():
        put("safetensors", f"{name}.safetensors", data)


def edited_checkpoint(data, edit):
    """With other JSON in its header; tensors stay where the table says."""
    length = struct.unpack_from("<Q", data, 8)[0]
    header = json.loads(data[24 : 24 + length])
    edit(header)
    text = compact(header).ljust(length)
    assert not any(data[24 + length : 24 + len(text)])  # longer only by the zeros before the first tensor
    start = data[:8] + struct.pack("<Q", len(text))
    return start + struct.pack("<II", zlib.crc32(text, zlib.crc32(start)), 0) + text + data[24 + len(text) :]


def put_checkpoints(data):
    def slot(at):
        def edit(header):
            header["header"]["plan"]["persistent"][-1][-1] = at

        return edit

    def tensor(key, value):
        def edit(header):
            header["tensors"][0][key] = value

        return edit

    put("checkpoint", "mlp.plimsoll", data)
    for name, edit in {
        "bad-slot-outside": slot(2**40),
        "bad-slot-overflow": slot(2**63 - 256),
        "bad-slot-negative": slot(-65536),
        "bad-tensor-outside": tensor("offset", 2**63 - 1),
        "bad-tensor-shape": tensor("shape", [2**32, 2**32]),
        "bad-plan-none": lambda header: header["header"].update(plan=None),
        "bad-header-list": lambda header: header.update(header=[]),
    }.items():
        put("checkpoint", f"{name}.plimsoll", edited_checkpoint(data, edit))


def put_own(plimsoll):
    """Makes plans and checkpoints with Plimsoll."""
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
            put_checkpoints(path.read_bytes())


def put_file(path):
    if path.suffix == ".keras" and path.name.startswith("h5"):
        weights = entry_of(path, "model.weights.h5")
        put(*(("zip", path.name, path.read_bytes()) if len(weights) > LARGEST else ("hdf5", path.stem + ".h5", weights)))
    elif path.suffix == ".plan":
        put_plan(path.name, path.read_bytes())
    else:
        target = {".keras": "zip", ".plimsoll": "checkpoint", ".json": "architecture", ".npy": "npy", ".npz": "npz",
                  ".safetensors": "safetensors", ".idx": "idx", ".gz": "idx"}
        put(target[path.suffix], path.name, path.read_bytes())


def put_texts():
    """Texts with options and a vocabulary before them, and models that begin with strings."""
    text = b"The cat! sat\t on caf\xc3\xa9 \xe2\x82 \xff\xed\xa0\x80 and \xf0\x9f\x98\x80 [UNK] a\x00b"
    for choice in (0, 1, 2, 5, 8, 27, 33, 60, 128, 131, 255):
        put("text", f"{choice}", bytes([choice]) + b"the cat sat caf\xc3\xa9 \xef\xbf\xbd\n" + text)
    put("text", "bad-no-vocabulary", b"\0\nthe cat")
    put("text", "bad-token-twice", b"\1the the\nthe cat")

    def layer(kind, name, source=None, **config):
        tensor = {"class_name": "__keras_tensor__", "config": {"shape": [None, 1], "dtype": "string", "keras_history": [source, 0, 0]}}
        nodes = [{"args": [tensor], "kwargs": {}}] if source else []
        return {"module": "keras.layers", "class_name": kind, "config": {"name": name, **config}, "registered_name": None,
                "name": name, "inbound_nodes": nodes}

    text = layer("InputLayer", "text", batch_shape=[None, 1], dtype="string")
    words = layer("TextVectorization", "words", "text", vocabulary=["a", "b"], output_sequence_length=4, ngrams=2)
    marks = layer("StringLookup", "marks", "text", vocabulary=["a", "b"], output_mode="one_hot", num_oov_indices=3, salt=[1, 2])
    bins = layer("Hashing", "bins", "text", num_bins=5, mask_value="", output_mode="multi_hot")
    weights = layer("TextVectorization", "weights", "text", vocabulary=["a"], output_mode="tf_idf", idf_weights=[0.5], split="character")
    table = layer("Embedding", "table", "words", input_dim=9, output_dim=2)
    dense = [layer("Dense", f"on_{one['name']}", one["name"], units=1) for one in (marks, bins, weights)]
    outputs = [["table", 0, 0]] + [[one["name"], 0, 0] for one in dense]
    put("architecture", "text-functional.json", compact({"class_name": "Functional", "config": {
        "name": "m", "layers": [text, words, marks, bins, weights, table, *dense], "input_layers": {"x": ["text", 0, 0]}, "output_layers": outputs}}))
    put("architecture", "text-sequential.json", compact({"class_name": "Sequential", "config": {"name": "m", "layers": [text, words, table]}}))


def put_logs():
    """The short ones of tests/logs, and lines that no program prints."""
    for path in sorted((HERE.parent / "logs").rglob("*.log")):
        if path.stat().st_size < 2048:
            put("explain", path.name, path.read_bytes())
    for name, text in {
        "sizes-that-overflow": "Limit: 9\nran out of memory trying to allocate 99999999999999999999GiB (rounded to 9223372036854775807)\n"
        "Limit: 9223372036854775807\nInUse: 9223372036854775807\n9223372036854775807 Chunks of size 9223372036854775807 totalling 1B\n",
        "shape-that-overflows": "OOM when allocating tensor with shape[4294967296,4294967296,2] and type float on /job\n",
        "shape-without-end": "OOM when allocating tensor with shape[1,2,3,\nUnable to allocate 1 GiB for an array with shape (((\n",
        "negative": "Tried to allocate -1 GiB (GPU -1; -2 GiB total capacity; nan GiB free)\n",
        "entities": "&#x; &#99999999999; &lt &; &#0; &#27;[31m ran out of memory trying to allocate &#49;&#x47;iB\n",
        "only-escapes": "\x1b[\x1b]\x1b\b\b\b\r\r\n",
        "task-table-cut": "[ 1] uid tgid total_vm rss\n[ 2] 1 2 3 99999999999999999 name\n[ 3] 1 2",
    }.items():
        put("explain", f"bad-{name}.log", text.encode())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll")
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    given = parser.parse_args()
    put_golden()
    put_keras2()
    put_safetensors()
    put_texts()
    put_logs()
    if given.plimsoll:
        put_own(given.plimsoll)
    for path in given.files:
        put_file(path)


if __name__ == "__main__":
    main()
