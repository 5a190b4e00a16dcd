"""TensorFlow's half of the benchmark. Each call runs in a separate process.

    tensorflow_side.py prepare FOLDER BYTES MODEL...     MODEL.keras (compiled with Adam), MODEL_x.npy, MODEL_y.npy of about BYTES
    tensorflow_side.py time MODEL BATCH SECONDS          one JSON line: steps, peak, seconds until the first step

The step is a bare tf.function with oneDNN switched on, and its batch is already a tensor. This is the fastest way to use TensorFlow on
a CPU."""

import time

START = time.time()
import json
import os
import pathlib
import sys

THREADS = int(os.environ.get("BENCH_THREADS", "2"))
os.environ.update(
    KERAS_BACKEND="tensorflow", TF_CPP_MIN_LOG_LEVEL="3", TF_ENABLE_ONEDNN_OPTS="1", CUDA_VISIBLE_DEVICES=""
)
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "keras"))
import numpy as np

import models


def prepare(folder, size, *names):
    import keras

    for name in names:
        keras.utils.set_random_seed(0)
        model = models.bench_model(keras, name)
        model.compile("adam", "sparse_categorical_crossentropy")
        model.save(f"{folder}/{name}.keras")
        samples = max(256, min(8192, int(size) // (4 * int(np.prod(model.input_shape[1:]))) // 128 * 128))
        x, y = models.bench_data(np.random.default_rng(0), samples, model)
        np.save(f"{folder}/{name}_x.npy", x)
        np.save(f"{folder}/{name}_y.npy", y.astype(np.int32))


def bare_step(keras, tf, model):
    loss_fn, optimizer = keras.losses.SparseCategoricalCrossentropy(), keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(x, training=True))
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        return loss

    return lambda x, y: float(step(x, y))


def time_steps(name, batch, seconds):
    import keras
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(THREADS)
    tf.config.threading.set_inter_op_parallelism_threads(THREADS)
    model = models.bench_model(keras, name)
    x, y = (tf.constant(a) for a in models.bench_data(np.random.default_rng(0), int(batch), model))
    step = bare_step(keras, tf, model)
    step(x, y)
    first, times, end = time.time() - START, [], time.time() + float(seconds)
    while time.time() < end or len(times) < 4:
        t = time.time()
        step(x, y)
        times.append(time.time() - t)
    peak = next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print(json.dumps({"times": times, "peak_bytes": peak, "first_step_seconds": first}))


if __name__ == "__main__":
    {"prepare": prepare, "time": time_steps}[sys.argv[1]](*sys.argv[2:])
