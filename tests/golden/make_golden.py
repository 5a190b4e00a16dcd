"""Makes the golden files beside this script, so that tests without Keras can still compare with Keras's numbers.

    .venv/bin/python tests/golden/make_golden.py

Of each model NAME: NAME.keras (compiled, untrained), NAME_x.npy, NAME_y.npy, and NAME_expected.npz:
  losses            float64 [5]: train_on_batch of five batches in order (BATCH samples each)
  predictions       of the untrained model for the first batch
  before/I, after/I weight I of model.weights, untrained and after the five steps
  path/I            its Keras path as bytes
  state/I           optimizer variable I after the five steps (iteration, learning rate or none, moments)
oldest.keras, oldest_x.npy, oldest_y.npy: a file of Keras 3.0.0, trained for five steps (tests/keras/oldest.py make).
Keras runs in float32 on TensorFlow without oneDNN."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

os.environ.update(
    KERAS_BACKEND="tensorflow", CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="3", TF_ENABLE_ONEDNN_OPTS="0"
)
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "keras"))

import keras
import numpy as np

import keras_side

L, O = keras.layers, keras.optimizers
BATCH, STEPS = 4, 5


def cnn():
    model = keras.Sequential(
        [
            keras.Input((10, 10, 2)),
            L.Conv2D(4, 3, activation="relu"),
            L.MaxPooling2D(),
            L.Flatten(),
            L.Dense(3, activation="softmax"),
        ],
        name="cnn",
    )
    model.compile(O.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def resnet():
    i = keras.Input((8, 8, 2))
    x = L.ReLU()(L.BatchNormalization()(L.Conv2D(4, 3, padding="same", use_bias=False)(i)))
    y = L.BatchNormalization()(L.Conv2D(4, 3, padding="same", use_bias=False)(x))
    x = L.ReLU()(L.Add()([x, y]))
    model = keras.Model(i, L.Dense(3)(L.GlobalAveragePooling2D()(x)), name="resnet")
    model.compile(O.SGD(0.05, momentum=0.9), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def mlp():
    r = keras.regularizers.L2(0.01)
    model = keras.Sequential(
        [keras.Input((6,)), L.Dense(8, activation="tanh", kernel_regularizer=r), L.Dense(2)], name="mlp"
    )
    model.compile(
        O.AdamW(O.schedules.ExponentialDecay(0.02, 2, 0.8), weight_decay=0.01, global_clipnorm=0.3),
        "mse",
        metrics=["mae"],
    )
    return model


def targets(rng, name):
    if name == "mlp":
        return rng.standard_normal((BATCH * STEPS, 2)).astype(np.float32)
    return rng.integers(0, 3, BATCH * STEPS).astype(np.int32)


def make(build):
    keras.backend.clear_session()
    keras.utils.set_random_seed(5)
    rng = np.random.default_rng(5)
    model = keras_side.randomize(build())
    name = model.name
    x, y = rng.standard_normal((BATCH * STEPS,) + model.input_shape[1:]).astype(np.float32), targets(rng, name)
    model.save(HERE / f"{name}.keras")
    np.save(HERE / f"{name}_x.npy", x)
    np.save(HERE / f"{name}_y.npy", y)
    out = {f"path/{k}": np.bytes_(w.path) for k, w in enumerate(model.weights)}
    out.update({f"before/{k}": w for k, w in enumerate(keras_side.values(model))})
    out["predictions"] = np.array(model(x[:BATCH], training=False))
    out["losses"] = keras_side.train(model, x, y, BATCH)
    out.update({f"after/{k}": w for k, w in enumerate(keras_side.values(model))})
    out.update({f"state/{k}": v.numpy() for k, v in enumerate(model.optimizer.variables)})
    np.savez(HERE / f"{name}_expected.npz", **out)


def make_oldest():
    with tempfile.TemporaryDirectory() as folder:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("KERAS_", "TF_"))}
        subprocess.run(
            [
                HERE.parents[1] / ".venv" / "oldest" / "bin" / "python",
                HERE.parent / "keras" / "oldest.py",
                "make",
                folder,
            ],
            check=True,
            env=environment,
        )
        for source, target in (("start.keras", "oldest.keras"), ("x.npy", "oldest_x.npy"), ("y.npy", "oldest_y.npy")):
            shutil.copy(f"{folder}/{source}", HERE / target)


if __name__ == "__main__":
    for build in (cnn, resnet, mlp):
        make(build)
    make_oldest()
