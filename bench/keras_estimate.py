#!/usr/bin/env python3
"""Compares the estimate of what Keras would need with measured steps; writes the tables of bench/keras_estimate.md.

    bench/keras_estimate.py [--models fashion,seed_2] [--batches 32,128]
    bench/keras_estimate.py --layers          what a layer costs TensorFlow beside its tensors: chains of 1 and 60 tiny layers

Each case is a process of its own that runs a bare tf.function step with oneDNN switched on (tensorflow_side.py), 6 times. Its memory is
the peak resident memory less that of TensorFlow itself: the peak of the same process with a model of one small Dense layer.
Plimsoll's estimate is `keras.step_bytes` of `plimsoll plan --json`. Text below the marker in keras_estimate.md is written by hand and
kept: it compares with measurements on GPUs that are not here."""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests" / "keras")]

import models
import program

STEPS = 6
MARKER = "<!-- below this line by hand; bench/keras_estimate.py keeps it -->"
# Whole networks. The constants of the estimate come from chains of tiny layers and from other networks.
NETWORKS = {"MobileNetV2": (96, 32), "DenseNet121": (96, 16), "ResNet50": (96, 16), "VGG16": (96, 16)}


# Chains of tiny layers show what TensorFlow keeps per layer beside its tensors.
CHAINS = {
    "dense": lambda L, k: L.Dense(8),
    "dense of other sizes": lambda L, k: L.Dense(8 + k),
    "convolution": lambda L, k: L.Conv2D(8, 3, padding="same", use_bias=False),
    "convolution of other sizes": lambda L, k: L.Conv2D(8 + k, 3, padding="same", use_bias=False),
    "depthwise convolution": lambda L, k: L.DepthwiseConv2D(3, padding="same", use_bias=False),
    "batch normalization": lambda L, k: L.BatchNormalization(),
    "layer normalization": lambda L, k: L.LayerNormalization(),
    "relu": lambda L, k: L.ReLU(),
    "dropout": lambda L, k: L.Dropout(0.1),
    "attention": lambda L, k: L.MultiHeadAttention(2, 4),
    "lstm": lambda L, k: L.LSTM(8, return_sequences=True),
}


def chain(keras, kind, count):
    L = keras.layers
    shape = (8,) if kind.startswith("dense") else (8, 8) if kind in ("attention", "lstm") else (8, 8, 8)
    x = i = keras.Input(shape)
    for k in range(count):
        layer = CHAINS[kind](L, k)
        x = layer(x, x) if kind == "attention" else layer(x)
    return keras.Model(i, L.Dense(10, activation="softmax")(L.Flatten()(x) if len(shape) == 2 else L.GlobalAveragePooling2D()(x) if len(shape) == 3 else x))


def network(keras, name):
    px, _ = NETWORKS[name]
    return getattr(keras.applications, name)(weights=None, input_shape=(px, px, 3), classes=10)


def step_peak(name, batch, folder):
    """In a process of its own: saves the model, runs the steps, prints the peak."""
    import numpy as np
    import tensorflow_side

    import keras
    import tensorflow as tf

    threads = tensorflow_side.THREADS
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    if name == "tiny":
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(10, activation="softmax")])
    elif ":" in name:
        kind, count = name.split(":")
        model = chain(keras, kind, int(count))
    else:
        model = network(keras, name) if name in NETWORKS else models.bench_model(keras, name)
    model.compile("adam", "sparse_categorical_crossentropy")
    pathlib.Path(folder, "model.json").write_text(model.to_json())
    x, y = (tf.constant(a) for a in models.labelled(np.random.default_rng(0), batch, model.input_shape[1:]))
    step = tensorflow_side.bare_step(keras, tf, model)
    for _ in range(STEPS):
        step(x, y)
    peak = next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print(json.dumps(peak))


def measured(name, batch, folder):
    done = subprocess.run([sys.executable, __file__, "--step", name, str(batch), folder], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{name}, batch {batch}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def estimated(batch, folder):
    flags = ("--optimizer", "adam", "--loss", "sparse_categorical_crossentropy", "--batch-size", batch, "--device", "cpu")
    plan = program.run("plan", f"{folder}/model.json", *flags, "--json", expect=None).json()
    return plan["keras"]


def mib(number):
    return f"{number / 2**20:.0f}"


def rows(cases, own, folder):
    worst = 0
    yield "| model | batch | measured, MiB | of it the step, MiB | estimate of the step, MiB | error | whole process, error |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for name, batch in cases:
        peak = measured(name, batch, folder)
        keras = estimated(batch, folder)
        error = keras["step_bytes"] / (peak - own) - 1
        whole = keras["peak_bytes"] / peak - 1
        worst = max(worst, abs(error))
        print(name, batch, mib(peak - own), mib(keras["step_bytes"]), f"{100 * error:+.1f} %", flush=True)
        yield (
            f"| {name} | {batch} | {mib(peak)} | {mib(peak - own)} | {mib(keras['step_bytes'])} "
            f"| {100 * error:+.1f} % | {100 * whole:+.1f} % |"
        )
    yield ""
    yield f"The largest error of a step is {100 * worst:.1f} %."


def print_layers(folder):
    for kind in CHAINS:
        more = 10 if kind in ("attention", "lstm") else 60
        few, many = (measured(f"{kind}:{count}", 4, folder) for count in (1, more))
        print(f"{kind}: {(many - few) / (more - 1) / 2**20:.2f} MiB per layer", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(models.BENCH_NAMES))
    parser.add_argument("--batches", default="32,128")
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--layers", action="store_true")
    parser.add_argument("--step", nargs=3)
    o = parser.parse_args()
    if o.step:
        return step_peak(o.step[0], int(o.step[1]), o.step[2])
    if o.layers:
        with tempfile.TemporaryDirectory() as folder:
            return print_layers(folder)
    page = HERE / "keras_estimate.md"
    kept = page.read_text().split(MARKER, 1)[1] if page.exists() else "\n"
    with tempfile.TemporaryDirectory() as folder:
        own = measured("tiny", 32, folder)
        cases = [(name, int(batch)) for batch in o.batches.split(",") for name in o.models.split(",")]
        text = [
            "# What Keras would need: estimate and measurement",
            "",
            f"Made by `bench/keras_estimate.py`. TensorFlow's own memory in these processes is {mib(own)} MiB.",
            "",
            "## The seven models of this folder",
            "",
            *rows(cases, own, folder),
            "",
            "## Whole networks",
            "",
            *rows([(name, NETWORKS[name][1]) for name in o.networks.split(",") if name], own, folder),
        ]
    page.write_text("\n".join(text) + f"\n\n{MARKER}{kept}")


if __name__ == "__main__":
    main()
