"""Makes the files beside this script, as Keras 2 writes them. Needs tf_keras (pip install tf_keras), which no test needs.

    python-with-tf_keras make.py

OPTIMIZER.h5 is a whole model after three steps of training, OPTIMIZER.npz its weights after three more, its predictions of x.npy, and
its loss. `adam` and `momentum` are the optimizers from 2.11 on, `old-adam` and `old-momentum` those before. sequential.json is an
architecture with weights in weights.h5 (the legacy layout) and in sequential.weights.h5 (that of Keras 3). saved-model and
old-saved-model are SavedModel folders of `adam` and `old-adam`, without saved_model.pb, which is large and not read.
"""

import os
import pathlib
import shutil

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # with oneDNN, predict() of a LeakyReLU after a convolution differs from the model

import numpy as np
import tf_keras as keras

HERE = pathlib.Path(__file__).parent
L = keras.layers
STEPS, BATCH = 3, 4
OPTIMIZERS = {
    "adam": lambda: keras.optimizers.Adam(0.01),
    "momentum": lambda: keras.optimizers.SGD(0.05, momentum=0.9),
    "old-adam": lambda: keras.optimizers.legacy.Adam(0.01),
    "old-momentum": lambda: keras.optimizers.legacy.SGD(0.05, momentum=0.9, nesterov=True, decay=0.1),
}


def functional():
    base = keras.Sequential([L.InputLayer(input_shape=(6, 6, 3)), L.Conv2D(3, 3, padding="same", kernel_regularizer="l2"),
                             L.BatchNormalization(), L.ReLU()], name="base")
    head = keras.Sequential([L.Dense(3, activation="relu", input_shape=(4,)), L.Dense(5)], name="head")
    i = keras.Input((6, 6, 3), name="image")
    x = base(i)
    x = L.Add()([L.DepthwiseConv2D(3, padding="same", name="z")(x), base(x)])
    x = L.LeakyReLU(0.1)(L.SeparableConv2D(4, 3, name="separable")(x))
    frozen = L.BatchNormalization(name="frozen", trainable=False)
    return keras.Model(i, head(L.GlobalAveragePooling2D()(frozen(x))), name="functional")


def sequential():
    return keras.Sequential([L.Conv2D(2, 3, activation="relu", input_shape=(6, 6, 3)), L.BatchNormalization(), L.MaxPooling2D(), L.Flatten(),
                             L.Dense(5, activation="softmax")], name="sequential")


def train(model, x, y, begin):
    for step in range(begin, begin + STEPS):
        model.train_on_batch(x[step * BATCH : (step + 1) * BATCH], y[step * BATCH : (step + 1) * BATCH])


def save_folder(model, name):
    shutil.rmtree(HERE / name, ignore_errors=True)
    model.save(HERE / name, save_format="tf")
    for part in ("saved_model.pb", "fingerprint.pb"):
        (HERE / name / part).unlink()
    (HERE / name / "assets").rmdir()


def main():
    rng = np.random.default_rng(3)
    x = rng.random((2 * STEPS * BATCH, 6, 6, 3), dtype=np.float32)
    y = rng.integers(0, 5, 2 * STEPS * BATCH).astype(np.int32)
    np.save(HERE / "x.npy", x)
    np.save(HERE / "y.npy", y)
    for name, optimizer in OPTIMIZERS.items():
        keras.backend.clear_session()
        keras.utils.set_random_seed(5)
        model = functional()
        model.compile(optimizer(), keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
        train(model, x, y, 0)
        model.save(HERE / f"{name}.h5")
        if name.endswith("adam"):
            save_folder(model, name.replace("adam", "saved-model"))
        kept = {"predictions": model.predict(x, verbose=0), "loss": model.evaluate(x, y, verbose=0)[0]}
        train(model, x, y, STEPS)
        np.savez(HERE / f"{name}.npz", **kept, **{f"w{k}": w for k, w in enumerate(model.get_weights())})
    model = sequential()
    (HERE / "sequential.json").write_text(model.to_json())
    model.save_weights(HERE / "weights.h5")
    model.save_weights(HERE / "sequential.weights.h5")
    np.savez(HERE / "sequential.npz", predictions=model.predict(x, verbose=0))


if __name__ == "__main__":
    main()
