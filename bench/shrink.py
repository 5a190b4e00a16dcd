#!/usr/bin/env python3
"""Trains a small residual network on Fashion-MNIST, prunes it to half of its multiplications, and trains it on.

    .venv/bin/python bench/shrink.py [FOLDER]     writes the models to FOLDER (default: .), prints the figures of shrink.md

Needs build/plimsoll and the Debian package dataset-fashion-mnist. Takes about 5 minutes on two cores.
"""

import os
import pathlib
import subprocess
import sys

os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras

L = keras.layers
PROGRAM = pathlib.Path(__file__).resolve().parents[1] / "build" / "plimsoll"
IMAGES = "/usr/share/datasets/fashion-mnist/{0}-images-idx3-ubyte.gz,/usr/share/datasets/fashion-mnist/{0}-labels-idx1-ubyte.gz"


def block(x, filters, stride=1):
    x = L.Conv2D(filters, 3, strides=stride, padding="same", use_bias=False)(x)
    return L.Activation("relu")(L.BatchNormalization()(x))


def network():
    inputs = keras.Input((28, 28, 1))
    x = L.MaxPooling2D(2)(block(L.Rescaling(1 / 255)(inputs), 32))
    for filters, stride in ((32, 1), (64, 2)):
        short = x
        if stride != 1:
            short = L.BatchNormalization()(L.Conv2D(filters, 1, strides=stride, use_bias=False)(x))
        y = L.Conv2D(filters, 3, padding="same", use_bias=False)(block(x, filters, stride))
        x = L.Activation("relu")(L.Add()([short, L.BatchNormalization()(y)]))
    x = L.Dropout(0.2)(L.GlobalAveragePooling2D()(x))
    model = keras.Model(inputs, L.Dense(10, activation="softmax")(x))
    model.compile(keras.optimizers.Adam(1e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def plimsoll(folder, *words):
    data = ["--data", IMAGES.format("train"), "--validation-data", IMAGES.format("t10k")]
    line = [str(PROGRAM), *words, *data, "--batch-size", "128", "--budget", "256MiB"]
    print("$", " ".join(["plimsoll", *words, "..."]), flush=True)
    subprocess.run(line, cwd=folder, check=True)


def main(folder):
    keras.utils.set_random_seed(1)
    network().save(folder / "network.keras")
    plimsoll(folder, "fit", "network.keras", "--epochs", "3", "--save", "trained.keras")
    plimsoll(folder, "fit", "trained.keras", "--epochs", "2", "--learning-rate", "0.0003", "--save", "base.keras")
    plimsoll(folder, "shrink", "prune", "base.keras", "--multiplications", "0.5", "--importance", "loss", "--epochs", "3",
             "--learning-rate", "0.001", "-o", "pruned.keras")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "."))
