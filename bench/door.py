"""Time of a step of plimsoll.fit against the command on the same model and files, and the time until the first step.

    PYTHONPATH=build/python .venv/bin/python bench/door.py [--rounds 5] [--steps 20]

The models are those of the articles' CNNs. Both sides run in turn, in one run of this script, with the same plan; a step's time is the
median over all rounds. The first step is timed from the call of fit() to the end of the first batch.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = ""
ROOT = pathlib.Path(__file__).resolve().parents[1]
# name: shape of a picture, batch
CASES = {"seed-1": ((32, 32, 3), 64), "seed-2": ((128, 128, 3), 16)}


def model_of(name):
    import keras

    L = keras.layers
    keras.utils.set_random_seed(1)
    shape, _ = CASES[name]
    model = keras.Sequential([keras.Input(shape), L.Conv2D(32, 3, activation="relu"), L.MaxPooling2D(), L.Conv2D(64, 3, activation="relu"), L.MaxPooling2D(),
                              L.Conv2D(64, 3, activation="relu"), L.Flatten(), L.Dense(64, activation="relu"), L.Dense(10)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def by_command(folder, batch, epochs):
    log = folder / "log.jsonl"
    log.unlink(missing_ok=True)
    subprocess.run([os.environ.get("PLIMSOLL", ROOT / "build" / "plimsoll"), "fit", folder / "model.keras", "--data", f"{folder}/x.npy,{folder}/y.npy",
                    "--batch-size", str(batch), "--epochs", str(epochs), "--shuffle", "false", "--log", log, "--save", folder / "out.keras", "--quiet"],
                   check=True, capture_output=True)
    events = [json.loads(line) for line in log.read_text().splitlines()]
    return [event["seconds"] for event in events if event["event"] == "step"][1:]


def in_python(model, x, y, batch, epochs):
    import keras

    import plimsoll

    class Clock(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.ends, self.times = [], []

        def on_train_batch_begin(self, batch, logs=None):
            self.began = time.perf_counter()

        def on_train_batch_end(self, batch, logs=None):
            self.ends.append(time.perf_counter())
            self.times.append(self.ends[-1] - self.began)

    clock = Clock()
    called = time.perf_counter()
    plimsoll.fit(model, x, y, batch_size=batch, epochs=epochs, shuffle=False, verbose=0, callbacks=[clock])
    return clock.times[1:], clock.ends[0] - called, clock.times[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    given = parser.parse_args()
    import numpy as np

    for name, (shape, batch) in CASES.items():
        rng = np.random.default_rng(1)
        x, y = rng.random((4 * batch, *shape), dtype="float32"), rng.integers(0, 10, 4 * batch).astype("int32")
        epochs = max(1, given.steps // 4)
        with tempfile.TemporaryDirectory() as made:
            folder = pathlib.Path(made)
            model = model_of(name)
            model.save(folder / "model.keras")
            np.save(folder / "x.npy", x)
            np.save(folder / "y.npy", y)
            command, python, first, alone, ratios = [], [], [], [], []
            for _ in range(given.rounds):
                ours = by_command(folder, batch, epochs)
                times, until, step = in_python(model, x, y, batch, epochs)
                command += ours
                python += times
                first.append(until)
                alone.append(until - step)
                ratios.append(statistics.median(times) / statistics.median(ours))
            print(f"{name}, batch {batch}: command {1e3 * statistics.median(command):.1f} ms per step (least {1e3 * min(command):.1f}), Python "
                  f"{1e3 * statistics.median(python):.1f} (least {1e3 * min(python):.1f}), ratio of the medians {statistics.median(python) / statistics.median(command):.3f}, "
                  f"of the least {min(python) / min(command):.3f}, of the rounds {', '.join(f'{r:.3f}' for r in ratios)}; first step ended "
                  f"{statistics.median(first):.2f} s after the call (least {min(first):.2f}), {statistics.median(alone):.2f} s of it before the step", flush=True)


if __name__ == "__main__":
    sys.exit(main())
