#!/usr/bin/env python3
"""The figures of bench/shrink.md about .tflite files and distillation, on Fashion-MNIST.

    .venv/bin/python bench/shrink_lite.py FOLDER [teacher|quantize|distill|speed ...]

The parts need those before them. `speed` takes another interpreter with ai-edge-litert: LITERT=/path/to/python.
"""

import gzip
import json
import os
import pathlib
import statistics
import subprocess
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
FASHION = pathlib.Path("/usr/share/datasets/fashion-mnist")
TRAIN = f"{FASHION}/train-images-idx3-ubyte.gz,{FASHION}/train-labels-idx1-ubyte.gz"
TEST = f"{FASHION}/t10k-images-idx3-ubyte.gz,{FASHION}/t10k-labels-idx1-ubyte.gz"
FEW = 2000
SEEDS = int(os.environ.get("SEEDS", "5"))


def plimsoll(*args):
    done = subprocess.run([os.environ.get("PLIMSOLL", ROOT / "build/plimsoll"), *map(str, args)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{args}: {done.stderr}")
    return json.loads(done.stdout) if "--json" in args else done.stdout


def arrays():
    read = lambda name, skip: np.frombuffer(gzip.open(FASHION / name).read(), np.uint8, offset=skip)
    return read("t10k-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28, 1), read("t10k-labels-idx1-ubyte.gz", 8)


def compiled(layers):
    import keras

    model = keras.Sequential([keras.Input((28, 28, 1)), keras.layers.Rescaling(1 / 255), *layers])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def block(filters):
    from keras import layers as L

    return [L.Conv2D(filters, 3, padding="same", use_bias=False), L.BatchNormalization(), L.ReLU()]


def teacher(folder):
    from keras import layers as L

    model = compiled([*block(32), *block(32), L.MaxPooling2D(), *block(64), L.MaxPooling2D(), L.Flatten(), L.Dense(64, activation="relu"), L.Dropout(0.3), L.Dense(10, activation="softmax")])
    model.save(folder / "fresh.keras")
    print("parameters", model.count_params())
    out = plimsoll("fit", folder / "fresh.keras", "--data", TRAIN, "--epochs", 3, "--batch-size", 128, "--save", folder / "teacher.keras", "--json")
    print("trained", out["seconds"], "s")
    print(plimsoll("evaluate", folder / "teacher.keras", "--data", TEST, "--json"))


def quantize(folder):
    for kind in ("--float32", "--float16", "--dynamic", "--int8"):
        r = plimsoll("shrink", "quantize", folder / "teacher.keras", kind, "--data", TRAIN, "--validation-data", TEST, "-o", folder / f"model{kind[1:]}.tflite", "--json")
        keep = {k: r.get(k) for k in ("file_bytes", "float32_bytes", "float32_accuracy", "accuracy", "same_class", "calibrated_samples", "compared_samples", "peak_bytes")}
        print(kind, json.dumps(keep), f"{100 * (r['file_bytes'] / r['float32_bytes'] - 1):+.1f} %")
    for method in ("minmax", "mse", "kl"):
        r = plimsoll("shrink", "quantize", folder / "teacher.keras", "--int8", "--calibration-method", method, "--data", TRAIN, "--validation-data", TEST, "-o", folder / "other.tflite", "--json")
        print(method, r["accuracy"], r["same_class"], r["output_mean_squared_error"])


def distill(folder):
    import keras
    from keras import layers as L

    # Few samples, so that the labels alone teach less than the teacher knows.
    images = np.frombuffer(gzip.open(FASHION / "train-images-idx3-ubyte.gz").read(), np.uint8, offset=16)
    np.save(folder / "few_x.npy", images.reshape(-1, 28, 28, 1)[:FEW])
    np.save(folder / "few_y.npy", np.frombuffer(gzip.open(FASHION / "train-labels-idx1-ubyte.gz").read(), np.uint8, offset=8)[:FEW])
    alone, distilled = [], []
    for seed in range(SEEDS):
        keras.utils.set_random_seed(seed)
        student = folder / f"student{seed}.keras"
        compiled([L.Conv2D(6, 3, strides=2, activation="relu"), L.Conv2D(12, 3, strides=2, activation="relu"), L.Flatten(), L.Dense(10, activation="softmax")]).save(student)
        same = ["--data", f"{folder}/few_x.npy,{folder}/few_y.npy", "--epochs", 60, "--batch-size", 64, "--seed", seed, "--json"]
        plimsoll("fit", student, "--save", folder / "alone.keras", *same)
        alone.append(plimsoll("evaluate", folder / "alone.keras", "--data", TEST, "--json")["metrics"]["accuracy"])
        r = plimsoll("shrink", "distill", folder / "teacher.keras", "--student", student, "--cache", folder / "logits.npy", "--temperature", 2, "--validation-data", TEST, "-o", folder / "distilled.keras", *same)
        distilled.append(r["metrics"]["accuracy"])
        print(seed, alone[-1], distilled[-1], r["teacher_planned_bytes"], r["student_planned_bytes"], r["teacher_logits_reused"], flush=True)
    for name, values in (("alone", alone), ("distilled", distilled)):
        print(name, f"{statistics.mean(values):.4f} +- {statistics.stdev(values):.4f}")


LITE = """
import sys, time, numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType
path, data, kind = sys.argv[1:4]
x = np.load(data)
resolver = OpResolverType.BUILTIN_REF if kind == "ref" else OpResolverType.AUTO
lite = Interpreter(model_path=path, num_threads=2, experimental_op_resolver_type=resolver)
lite.allocate_tensors()
i, o = lite.get_input_details()[0], lite.get_output_details()[0]
if len(x) > 2000 and kind == "ref": x = x[:500]
out = []
for s in x[:50]:
    lite.set_tensor(i["index"], s[None].astype(i["dtype"])); lite.invoke()
t = time.perf_counter()
for s in x:
    lite.set_tensor(i["index"], s[None].astype(i["dtype"])); lite.invoke(); out.append(lite.get_tensor(o["index"])[0].copy())
print((time.perf_counter() - t) / len(x) * 1e6)
np.save(sys.argv[4], np.array(out))
"""


def speed(folder):
    import time

    x, y = arrays()
    np.save(folder / "test.npy", x)
    for kind in ("int8", "float32"):
        path = folder / f"model-{kind}.tflite"
        ours = []
        for _ in range(3):
            start = time.perf_counter()
            plimsoll("predict", path, "--data", folder / "test.npy", "--output", folder / "ours.npy", "--quiet")
            ours.append((time.perf_counter() - start) / len(x) * 1e6)
            lite = subprocess.run([os.environ["LITERT"], "-c", LITE, path, folder / "test.npy", "auto", folder / "lite.npy"], capture_output=True, text=True)
            print(kind, f"ours {ours[-1]:.0f} us per image with start and reading, LiteRT with XNNPACK {lite.stdout.split()[-1]} us", flush=True)
        a, b = np.load(folder / "ours.npy"), np.load(folder / "lite.npy")
        print(kind, "accuracy ours", np.mean(a.argmax(1) == y), "LiteRT", np.mean(b.argmax(1) == y), "largest difference", np.abs(a - b).max(), "same class", np.mean(a.argmax(1) == b.argmax(1)))
        lite = subprocess.run([os.environ["LITERT"], "-c", LITE, path, folder / "test.npy", "ref", folder / "lite.npy"], capture_output=True, text=True)
        b = np.load(folder / "lite.npy")
        a = a[: len(b)]
        print(kind, "reference kernels: largest difference", np.abs(a - b).max(), "same class", np.mean(a.argmax(1) == b.argmax(1)), "of", len(b))


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for part in sys.argv[2:] or ["teacher", "quantize", "distill"]:
        print(f"--- {part}", flush=True)
        globals()[part](folder)
