#!/usr/bin/env python3
"""Loads a .keras file with real Keras, evaluates it on IDX data and compares with the output of `plimsoll evaluate --json`.

    .venv/bin/python scripts/score_with_keras.py MODEL.keras IMAGES.gz LABELS.gz [EVALUATE.json]
"""

import gzip
import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras
import numpy as np

# Float32 sums in another order agree to 1e-5. A sample whose two best classes are equal up to rounding may get either class.
LOSS_BOUND = 1e-5
SAMPLES_THAT_MAY_TIE = 1


def read_idx(path):
    with gzip.open(path, "rb") as file:
        data = file.read()
    rank = data[3]
    shape = [int.from_bytes(data[4 + 4 * i:8 + 4 * i], "big") for i in range(rank)]
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(shape)


def main(model_path, images_path, labels_path, evaluate_path=None):
    model = keras.saving.load_model(model_path)
    images, labels = read_idx(images_path), read_idx(labels_path)
    images = images.reshape(len(images), *model.input_shape[1:])
    scores = model.evaluate(images, labels.astype("int32"), batch_size=128, verbose=0, return_dict=True)
    theirs = next(value for name, value in scores.items() if "accuracy" in name)
    print(f"  Keras {keras.__version__}  loss {scores['loss']:.6f}  accuracy {100 * theirs:.2f} %  "
          f"optimizer at iteration {int(model.optimizer.iterations.numpy())}")
    if evaluate_path is None:
        return 0
    with open(evaluate_path, encoding="utf-8") as file:
        ours = json.load(file)
    accuracy = next(value for name, value in ours["metrics"].items() if "accuracy" in name)
    print(f"  Plimsoll      loss {ours['loss']:.6f}  accuracy {100 * accuracy:.2f} %")
    same = (abs(ours["loss"] - scores["loss"]) <= LOSS_BOUND * scores["loss"]
            and abs(accuracy - theirs) <= (SAMPLES_THAT_MAY_TIE + 0.5) / len(labels))
    if not same:
        print("score_with_keras: the scores differ", file=sys.stderr)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
