"""fit on a folder of JPEGs: a small CNN in Plimsoll and in Keras with image_dataset_from_directory.

    .venv/bin/python bench/pictures.py [--pictures 800] [--epochs 4] [--write]     prints the table; --write: also bench/pictures.md

The pictures have 500 x 375 pixels, the model takes 112 x 112. Both sides begin with the same weights, train with the same batch
size, and have the machine's cores. Pictures per second are those of the first epoch and the mean of the later ones; the
peak is that of the whole process. CPU time is user and system time of all threads per picture of all epochs: of `fit` in Keras, of the
whole process in Plimsoll. It changes least with what else the machine does. Keras reads with its defaults (`prefetch` by AUTOTUNE is part of
image_dataset_from_directory) and, in a second row, with `cache()` in memory.
"""

import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
SIZE, BATCH = 112, 32


def make(folder, pictures):
    import keras
    import numpy as np
    import tensorflow as tf

    sys.path.insert(0, str(ROOT / "bench"))
    from data import smooth

    rng = np.random.default_rng(1)
    for k in range(100):
        data = tf.io.encode_jpeg(smooth(rng, 375, 500), quality=90).numpy()
        for copy in range(max(1, pictures // 100)):
            path = folder / "jpeg" / "ab"[k % 2] / f"{k}_{copy}.jpeg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    L = keras.layers
    layers = [keras.Input((SIZE, SIZE, 3)), L.Rescaling(1 / 255)]
    for filters in (16, 32, 64):
        layers += [L.Conv2D(filters, 3, padding="same", activation="relu"), L.MaxPooling2D()]
    model = keras.Sequential([*layers, L.GlobalAveragePooling2D(), L.Dense(2, "softmax")])
    model.compile("adam", "sparse_categorical_crossentropy")
    model.save(folder / "cnn.keras")


def keras_side(folder, epochs, cache):
    import keras

    data = keras.utils.image_dataset_from_directory(folder / "jpeg", image_size=(SIZE, SIZE), batch_size=BATCH, verbose=False)
    if cache:
        data = data.cache()
    seconds = []

    class Clock(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.start = time.perf_counter()

        def on_epoch_end(self, epoch, logs=None):
            seconds.append(time.perf_counter() - self.start)

    model = keras.models.load_model(folder / "cnn.keras")
    before = resource.getrusage(resource.RUSAGE_SELF)
    model.fit(data, epochs=epochs, verbose=0, callbacks=[Clock()])
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps([seconds, after.ru_maxrss * 1024, cpu]))


def plimsoll_side(folder, epochs, flags):
    log = folder / "log.jsonl"
    child = subprocess.Popen(
        [ROOT / "build" / "plimsoll", "fit", folder / "cnn.keras", "--data", folder / "jpeg", "--batch-size", str(BATCH), "--epochs",
         str(epochs), "--log", log, "--save", folder / "out.keras", "--quiet", *flags],
        stderr=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(child.pid, 0)
    assert status == 0
    events = [json.loads(line) for line in log.read_text().splitlines()]
    seconds, now = [], 0.0
    for event in events:
        if event["event"] == "step":
            now += event["seconds"]
        if event["event"] == "epoch":
            seconds.append(now)
            now = 0.0
    return seconds, events[-1]["process_peak_bytes"], used.ru_utime + used.ru_stime


def apart(*arguments):
    done = subprocess.run([sys.executable, __file__, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    text = done.stdout.decode().strip()
    return json.loads(text.splitlines()[-1]) if text else None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pictures", type=int, default=800)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--side")
    parser.add_argument("--folder", type=pathlib.Path)
    options = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ["PLIMSOLL_CALIBRATION"] = "none"
    if options.side == "files":
        return make(options.folder, options.pictures)
    if options.side:
        return keras_side(options.folder, options.epochs, options.side == "cache")
    lines = ["| | first epoch | later epochs | CPU time | peak |", "| --- | --- | --- | --- | --- |"]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        common = ("--folder", folder, "--epochs", options.epochs)
        apart("--side", "files", "--folder", folder, "--pictures", options.pictures)
        pictures = len(list((folder / "jpeg").glob("*/*")))
        ours = lambda *flags: plimsoll_side(folder, options.epochs, flags)
        for row, measure in {
            "Keras": lambda: apart("--side", "plain", *common),
            "Plimsoll, `--cache-images off`": lambda: ours("--cache-images", "off"),
            "Keras with `cache()`": lambda: apart("--side", "cache", *common),
            "Plimsoll, `--cache-images 4GiB`": lambda: ours("--cache-images", "4GiB"),
            "Plimsoll, the same with `--cache-pixels uint8`": lambda: ours("--cache-images", "4GiB", "--cache-pixels", "uint8"),
        }.items():
            seconds, peak, cpu = measure()
            per = 1e3 * cpu / pictures / options.epochs
            later = sum(seconds[1:]) / max(len(seconds) - 1, 1)
            lines.append(f"| {row} | {pictures / seconds[0]:.0f} pictures/s | {pictures / later:.0f} pictures/s | {per:.2f} ms | {peak / 2**20:.0f} MiB |")
            print(lines[-1], flush=True)
    if options.write:
        cpu = next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
        head = __doc__.split("\n\n", 2)
        note = f"{pictures} pictures, batch {BATCH}, {options.epochs} epochs. Two cores of an {cpu}, with other work beside the run: compare rows, not runs."
        table = "\n".join(lines)
        (ROOT / "bench" / "pictures.md").write_text(f"# {head[0]}\n\n{head[2].strip()}\n\n{note}\n\n{table}\n")


if __name__ == "__main__":
    main()
