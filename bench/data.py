"""Reading data beside tf.data: CPU time per item and resident memory, in one run on the same files.

    .venv/bin/python bench/data.py [--items 1.0] [--write]     prints the table; --write: also bench/data.md

Each number is of a process of its own. Plimsoll's is a whole `plimsoll evaluate` (or `fit`) of a tiny model, from its
start to its end, so it also plans and computes. TensorFlow's is one pass over a tf.data pipeline in its best form, after a
pass that is not counted; importing and tracing are not counted either. CPU time is user and system time of all threads:
it says what a machine with idle cores would need, whatever else runs here.
"""

import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
SIZE = 224


# ---- Files


def smooth(rng, height, width):
    """A picture whose JPEG has about the size of a photo's."""
    y, x = np.mgrid[0:height, 0:width]
    waves = sum(
        rng.uniform(5, 40) * np.sin(rng.uniform(0.01, 0.3) * x[..., None] + rng.uniform(0.01, 0.3) * y[..., None] + rng.uniform(0, 7, 3))
        for _ in range(6)
    )
    return np.clip(128 + waves + rng.normal(0, 12, (height, width, 3)), 0, 255).astype(np.uint8)


def make(folder, scale):
    import h5py
    import keras
    import tensorflow as tf

    rng = np.random.default_rng(1)
    rows = int(60000 * scale)
    x, y = rng.integers(0, 256, (rows, 784), np.uint8), rng.integers(0, 2, rows).astype(np.int64)
    np.savez(folder / "rows.npz", x=x, y=y)
    run("convert", folder / "rows.npz", folder / "rows.tfrecord")
    with h5py.File(folder / "rows.h5", "w") as file:
        file.create_dataset("x", data=x, chunks=(256, 784), compression="gzip")
        file.create_dataset("y", data=y)
    for kind, shape, count in (("jpeg", (375, 500), 100), ("png", (SIZE, SIZE), 60)):
        for k in range(count):
            pixels = smooth(rng, *shape)
            data = tf.io.encode_jpeg(pixels, quality=90) if kind == "jpeg" else tf.io.encode_png(pixels)
            for copy in range(max(1, int(8 * scale))):
                path = folder / kind / "ab"[k % 2] / f"{k}_{copy}.{kind}"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data.numpy())
    images = int(320 * scale)
    np.savez(folder / "images.npz", x=rng.integers(0, 256, (images, SIZE, SIZE, 3), np.uint8), y=np.zeros(images))

    L = keras.layers
    flat = [keras.Input((784,)), L.Dense(1)]
    pooled = lambda *before: [keras.Input((SIZE, SIZE, 3)), *before, L.GlobalAveragePooling2D(), L.Dense(1)]
    augment = (L.RandomFlip("horizontal"), L.RandomRotation(0.1), L.RandomZoom(0.1))
    for name, layers in (("flat", flat), ("pooled", pooled()), ("augmented", pooled(*augment))):
        model = keras.Sequential(layers)
        model.compile("sgd", "mse")
        model.save(folder / f"{name}.keras")


# ---- Plimsoll


def run(*arguments):
    """Returns (CPU seconds, resident bytes) of the process."""
    child = subprocess.Popen([str(ROOT / "build" / "plimsoll"), *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    message = child.stderr.read()
    _, status, used = os.wait4(child.pid, 0)
    if status != 0:
        raise SystemExit(message.decode())
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def ours(folder, name):
    evaluate = lambda model, *data: run("evaluate", folder / f"{model}.keras", "--data", *data, "--batch-size", 64, "--threads", 2)
    if name == "TFRecord of 784 bytes":
        return evaluate("flat", folder / "rows.tfrecord", "--features", "x=x,y=y")
    if name == "HDF5, gzip in chunks of 256 rows":
        return evaluate("flat", f"{folder / 'rows.h5'}:/x,/y")
    if name == "RandomFlip, RandomRotation, RandomZoom":
        fit = lambda model: run("fit", folder / f"{model}.keras", "--data", folder / "images.npz", "--epochs", 1, "--batch-size", 32,
                                "--save", folder / "out.keras", "--threads", 2)  # fmt: skip
        with_them, without = fit("augmented"), fit("pooled")
        return with_them[0] - without[0], with_them[1]
    return evaluate("pooled", folder / ("jpeg" if "JPEG" in name else "png"))


# ---- TensorFlow


def pipeline(folder, name):
    import h5py
    import keras
    import tensorflow as tf

    auto = tf.data.AUTOTUNE
    if name == "TFRecord of 784 bytes":
        schema = {"x": tf.io.FixedLenFeature([], tf.string), "y": tf.io.FixedLenFeature([1], tf.int64)}

        def parse(batch):
            row = tf.io.parse_example(batch, schema)
            return tf.cast(tf.io.decode_raw(row["x"], tf.uint8), tf.float32), row["y"]

        return tf.data.TFRecordDataset(str(folder / "rows.tfrecord")).batch(64).map(parse, auto).prefetch(auto)
    if name == "HDF5, gzip in chunks of 256 rows":

        def chunks():
            with h5py.File(folder / "rows.h5") as file:
                for first in range(0, len(file["x"]), 256):
                    yield file["x"][first : first + 256].astype(np.float32)

        return chunks
    if name == "RandomFlip, RandomRotation, RandomZoom":
        L = keras.layers
        layers = keras.Sequential([L.RandomFlip("horizontal"), L.RandomRotation(0.1), L.RandomZoom(0.1)])
        x = np.load(folder / "images.npz")["x"]
        data = tf.data.Dataset.from_tensor_slices(x).batch(32)
        return data.map(lambda b: layers(tf.cast(b, tf.float32), training=True), auto).prefetch(auto)
    kind = "jpeg" if "JPEG" in name else "png"
    return keras.utils.image_dataset_from_directory(
        folder / kind, image_size=(SIZE, SIZE), batch_size=64, shuffle=False, verbose=False
    ).prefetch(auto)


def theirs(folder, name):
    data = pipeline(folder, name)
    spent = []
    for _ in range(2):
        before = resource.getrusage(resource.RUSAGE_SELF)
        for _ in data() if callable(data) else data:
            pass
        after = resource.getrusage(resource.RUSAGE_SELF)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    print(json.dumps([spent[1], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024]))


def theirs_apart(folder, name):
    done = subprocess.run([sys.executable, __file__, "--side", name, "--folder", folder], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout.decode().splitlines()[-1])


# ---- The table

WORK = {
    "TFRecord of 784 bytes": 60000,
    "HDF5, gzip in chunks of 256 rows": 60000,
    f"JPEG of 500 x 375 to {SIZE} x {SIZE}": 800,
    f"PNG of {SIZE} x {SIZE}": 480,
    "RandomFlip, RandomRotation, RandomZoom": 320,
}


def table(folder, scale):
    lines = ["| work | tf.data | Plimsoll | ratio | resident: tf.data | Plimsoll |", "| --- | --- | --- | --- | --- | --- |"]
    for name, full in WORK.items():
        items = int(full * scale) if full >= 60000 or full == 320 else full // 8 * max(1, int(8 * scale))
        (their_cpu, their_bytes), (our_cpu, our_bytes) = theirs_apart(folder, name), ours(folder, name)
        per = lambda seconds: f"{1e6 * seconds / items:,.2f} us" if seconds / items < 1e-4 else f"{1e3 * seconds / items:.2f} ms"
        mib = lambda n: f"{n / 2**20:.0f} MiB"
        lines.append(
            f"| {name} | {per(their_cpu)} | {per(our_cpu)} | {their_cpu / our_cpu:.1f} | {mib(their_bytes)} | {mib(our_bytes)} |"
        )
        print(lines[-1], flush=True)
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--items", type=float, default=1.0)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--side")
    parser.add_argument("--folder", type=pathlib.Path)
    options = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ["PLIMSOLL_CALIBRATION"] = "none"
    if options.side:
        return theirs(options.folder, options.side)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        make(folder, options.items)
        text = table(folder, options.items)
    if options.write:
        cpu = next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
        head = __doc__.split("\n\n", 2)
        note = f"Two cores of an {cpu}, with other work beside the run; TensorFlow {version()}."
        (ROOT / "bench" / "data.md").write_text(f"# {head[0]}\n\n{head[2].strip()}\n\n{note}\n\n{text}\n")


def version():
    import tensorflow as tf

    return tf.__version__


if __name__ == "__main__":
    main()
