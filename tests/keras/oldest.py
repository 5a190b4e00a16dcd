"""Runs in the environment of the oldest Keras: creates a trained file, or continues from one.

oldest.py make FOLDER       start.keras (5 steps trained), x.npy, y.npy, all.npz (weights and state after 10 steps)
oldest.py predict FILE FOLDER                predictions of x.npy as predictions.npy
oldest.py continue FILE STEPS FOLDER         continues training from FILE; writes resumed.npz, and the contents of FILE as loaded.npz
"""

import os
import sys

os.environ["KERAS_BACKEND"] = "jax"
os.environ["JAX_PLATFORMS"] = "cpu"
import keras
import numpy as np

BATCH, HALF = 8, 5


def build():
    L = keras.layers
    x = i = keras.Input((10, 10, 3))
    x = L.ReLU()(L.BatchNormalization()(L.Conv2D(6, 3, use_bias=False)(x)))
    x = L.Dense(8, activation="relu")(L.Flatten()(L.MaxPooling2D()(x)))
    model = keras.Model(i, L.Dense(4, activation="softmax")(x))
    model.compile(keras.optimizers.Adam(0.005), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def train(model, x, y, begin, end):
    for step in range(begin, end):
        piece = slice(step * BATCH, (step + 1) * BATCH)
        model.train_on_batch(x[piece], y[piece])


def dump(model, path):
    """Weights in order, then the optimizer's variables in order."""
    arrays = {f"w{k}": np.array(w.numpy()) for k, w in enumerate(model.weights)}
    arrays.update({f"o{k}": np.array(v.numpy()) for k, v in enumerate(model.optimizer.variables)})
    np.savez(path, **arrays)


def main(command, *rest):
    if command == "make":
        (folder,) = rest
        keras.utils.set_random_seed(3)
        rng = np.random.default_rng(3)
        x = rng.standard_normal((2 * HALF * BATCH, 10, 10, 3)).astype(np.float32)
        y = rng.integers(0, 4, len(x))
        np.save(f"{folder}/x.npy", x)
        np.save(f"{folder}/y.npy", y)
        model = build()
        train(model, x, y, 0, HALF)
        model.save(f"{folder}/start.keras")
        train(model, x, y, HALF, 2 * HALF)
        dump(model, f"{folder}/all.npz")
        return
    if command == "predict":
        file, folder = rest
        model = keras.saving.load_model(file)
        np.save(f"{folder}/predictions.npy", np.asarray(model.predict(np.load(f"{folder}/x.npy"), verbose=0)))
        return
    file, begin, folder = rest
    model = keras.saving.load_model(file)
    dump(model, f"{folder}/loaded.npz")
    train(model, np.load(f"{folder}/x.npy"), np.load(f"{folder}/y.npy"), int(begin), 2 * HALF)
    dump(model, f"{folder}/resumed.npz")


if __name__ == "__main__":
    main(*sys.argv[1:])
