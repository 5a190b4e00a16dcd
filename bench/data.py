"""Reading data beside tf.data: CPU time per item and resident memory, in one run on the same files.

    .venv/bin/python bench/data.py [--items 1.0] [--write]     prints the table; --write: also bench/data.md

Each number is of a process of its own. Plimsoll's is `plimsoll convert` of rows to an .npz, which it also writes, or `plimsoll
evaluate` on pictures of a model that looks at one of their pixels, less the same on a few items; resident memory is that of the
whole process. The augmentation is `fit` with these layers less `fit` without them. TensorFlow's is one pass over a tf.data pipeline in its best form, after a pass that is not counted; importing
and tracing are not counted either, but are in its resident memory. CPU time is user and system time of all threads:
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


FEW = 8
EPOCHS = 10  # that read the cache


def make(folder, scale):
    """Runs in a process of its own: resident memory of a child begins with that of its parent."""
    import h5py
    import keras
    import tensorflow as tf

    rng = np.random.default_rng(1)
    rows = int(60000 * scale)
    x = rng.integers(0, 256, (rows, 784), np.uint8) * (rng.random((rows, 784)) < 0.2)  # four fifths are zero, as in MNIST
    y = rng.integers(0, 2, rows).astype(np.int64)
    np.savez(folder / "rows.npz", x=x, y=y)
    for name, count in (("rows", rows), ("few", FEW)):
        np.savez(folder / "rows.npz", x=x[:count], y=y[:count])
        run("convert", folder / "rows.npz", folder / f"{name}.tfrecord")
        with h5py.File(folder / f"{name}.h5", "w") as file:
            file.create_dataset("x", data=x[:count], chunks=(min(256, count), 784), compression="gzip")
            file.create_dataset("y", data=y[:count])
    for kind, shape, count in (("jpeg", (375, 500), 100), ("png", (SIZE, SIZE), 60)):
        for k in range(count):
            pixels = smooth(rng, *shape)
            data = tf.io.encode_jpeg(pixels, quality=90) if kind == "jpeg" else tf.io.encode_png(pixels)
            if k < FEW:
                path = folder / f"few_{kind}" / "ab"[k % 2] / f"{k}.{kind}"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data.numpy())
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
    one_pixel = [keras.Input((SIZE, SIZE, 3)), L.Cropping2D(((0, SIZE - 1), (0, SIZE - 1))), L.Flatten(), L.Dense(1)]
    for name, layers in (("flat", flat), ("pooled", pooled()), ("augmented", pooled(*augment)), ("pixel", one_pixel)):
        model = keras.Sequential(layers)
        model.compile("sgd", "mse")
        model.save(folder / f"{name}.keras")
    print(json.dumps(keras.__version__))


# ---- Plimsoll


def run(*arguments):
    """Returns (CPU seconds, resident bytes) of the process."""
    child = subprocess.Popen([str(ROOT / "build" / "plimsoll"), *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    message = child.stderr.read()
    _, status, used = os.wait4(child.pid, 0)
    if status != 0:
        raise SystemExit(message.decode())
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def ours(folder, name, items):
    """Returns (CPU seconds per item, resident bytes)."""

    def on_all(command, few, all_of_them):
        (least, _), (most, held) = command(few), command(all_of_them)
        return (most - least) / (items - FEW), held

    convert = lambda data: run("convert", data, folder / "out.npz", "--features", "x=x,y=y")
    if name == "TFRecord of 784 bytes":
        return on_all(convert, folder / "few.tfrecord", folder / "rows.tfrecord")
    if name == "HDF5, gzip in chunks of 256 rows":
        return on_all(convert, f"{folder / 'few.h5'}:/x,/y", f"{folder / 'rows.h5'}:/x,/y")
    if name == "RandomFlip, RandomRotation, RandomZoom":
        data = ("--data", folder / "images.npz", "--epochs", 1, "--batch-size", 32, "--threads", 2)
        fit = lambda model: run("fit", folder / f"{model}.keras", *data, "--save", folder / "out.keras")
        (most, held), (least, _) = fit("augmented"), fit("pooled")
        return (most - least) / items, held
    kind = "jpeg" if "JPEG" in name or "cache" in name else "png"
    if "cache" in name:
        cache = ("--cache-images", "8GiB", "--cache-pixels", "uint8" if "bytes" in name else "exact")
        data = ("--data", folder / kind, "--batch-size", 64, "--threads", 2, *cache)
        fit = lambda epochs: run("fit", folder / "pixel.keras", *data, "--epochs", epochs, "--save", folder / "out.keras")
        (least, _), (most, held) = fit(2), fit(2 + EPOCHS)
        return (most - least) / items / EPOCHS, held
    evaluate = lambda data: run("evaluate", folder / "pixel.keras", "--data", data, "--batch-size", 64, "--threads", 2)
    return on_all(evaluate, folder / f"few_{kind}", folder / kind)


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
    kind = "jpeg" if "JPEG" in name or "cache" in name else "png"
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


def apart(folder, name, *more):
    command = [sys.executable, __file__, "--side", name, "--folder", folder, *map(str, more)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    return json.loads(done.stdout.decode().splitlines()[-1])


# ---- The table

WORK = {
    "TFRecord of 784 bytes": 60000,
    "HDF5, gzip in chunks of 256 rows": 60000,
    f"JPEG of 500 x 375 to {SIZE} x {SIZE}": 800,
    f"PNG of {SIZE} x {SIZE}": 480,
    "the same JPEGs from the second epoch on, from the cache": 800,
    "the same, kept as bytes in the cache": 800,
    "RandomFlip, RandomRotation, RandomZoom": 320,
}


def table(folder, scale):
    lines = ["| work | tf.data | Plimsoll | ratio | resident: tf.data | Plimsoll |", "| --- | --- | --- | --- | --- | --- |"]
    for name, full in WORK.items():
        items = int(full * scale) if full >= 60000 or full == 320 else full // 8 * max(1, int(8 * scale))
        (their_seconds, their_bytes), (our_cpu, our_bytes) = apart(folder, name), ours(folder, name, items)
        their_cpu = their_seconds / items
        per = lambda seconds: f"{1e6 * seconds:,.2f} us" if seconds < 1e-4 else f"{1e3 * seconds:.2f} ms"
        mib = lambda n: f"{n / 2**20:.0f} MiB"
        lines.append(
            f"| {name} | {per(their_cpu)} | {per(our_cpu)} | {their_cpu / our_cpu:.1f} | {mib(their_bytes)} | {mib(our_bytes)} |"
        )
        print(lines[-1], flush=True)
    return "\n".join(lines)


NOTES = """\
A ratio below 1 says that tf.data needs less CPU time. `convert` reads a TFRecord once for its index and once for each
array; HDF5 with gzip is unpacked into the cache first. Pictures include a pass over all headers, and
the pages of the arena, which a run on so few pictures does not make up for. Most of a JPEG's time is libjpeg-turbo's own decoding,
which both sides do with the same settings; the rest is what can be saved.

The rows of the cache are epochs of `fit` after the first two, so they include training steps (of the model that looks at one pixel). tf.data's side of them decodes in each epoch, which is what `image_dataset_from_directory` does. Its `cache()` keeps the decoded
pictures as float32, in memory (588 KiB per picture, which no budget limits) or in a file that stays; `--cache-images` keeps them in
a file without a name, up to a limit, and what the kernel keeps of it lies outside the budget. Exact rows have 588 KiB, rounded ones
147 KiB."""


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
        return make(options.folder, options.items) if options.side == "files" else theirs(options.folder, options.side)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        apart(folder, "files", "--items", options.items)
        text = table(folder, options.items)
    if options.write:
        cpu = next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
        head = __doc__.split("\n\n", 2)
        note = f"Two cores of an {cpu}, with other work beside the run."
        (ROOT / "bench" / "data.md").write_text(f"# {head[0]}\n\n{head[2].strip()}\n\n{note}\n\n{text}\n\n{NOTES}\n")


if __name__ == "__main__":
    main()
