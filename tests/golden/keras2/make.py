"""Makes the files beside this script, as Keras 2 writes them. Needs tf_keras (pip install tf_keras), which no test needs.

    python-with-tf_keras make.py

OPTIMIZER.h5 is a whole model after three steps of training, OPTIMIZER.npz its weights after three more, its predictions of x.npy, and
its loss. `adam` and `momentum` are the optimizers from 2.11 on, `old-adam` and `old-momentum` those before. sequential.json is an
architecture with weights in weights.h5 (the legacy layout) and in sequential.weights.h5 (that of Keras 3), sequential.keras the whole. saved-model and
old-saved-model are SavedModel folders of `adam` and `old-adam`, without saved_model.pb, which is large and not read.
functions.h5 and functions.keras are a model that calls functions of TensorFlow on its tensors, functions-x.npz its inputs and targets, and
functions.npz its predictions, and its weights after three steps.
"""

import os
import pathlib
import shutil

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # with oneDNN, predict() of a LeakyReLU after a convolution differs from the model

import numpy as np
import tensorflow as tf
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


def sequences(a, b):
    """Functions on two sequences of 4 steps with 6 features."""
    distance = tf.sqrt(tf.maximum(tf.reduce_sum(tf.square(a - b), axis=1, keepdims=True), 1e-7))
    scores = tf.nn.softmax(tf.matmul(a, b, transpose_b=True) / 2.5, axis=-1)
    mixed = scores @ (1.0 - b)
    first, rest = tf.split(mixed, [2, 4], axis=-1)
    joined = tf.concat([rest, tf.nn.leaky_relu(first), a[:, ::-1, :2]], axis=-1)
    batch = tf.shape(a)[0]
    heads = tf.transpose(tf.reshape(joined, (batch, 4, 2, 4)), (0, 2, 1, 3))
    clipped = tf.clip_by_value(tf.reduce_max(heads, axis=[1, 3]) ** 2, 0.0, 3.0)
    unit = tf.math.l2_normalize(a[:, :, -1], axis=-1)
    chosen = tf.where(a[:, 0] > 0.2, tf.nn.gelu(b[:, 1]), tf.nn.silu(a[:, 2]))
    padded = tf.pad(tf.expand_dims(clipped, -1), [[0, 0], [1, 1], [0, 0]])
    parts = [tf.squeeze(distance, 1), clipped, unit, chosen, tf.reshape(padded, (-1, 6)), tf.gather(a[:, 1], [5, 0], axis=1)]
    parts += [tf.math.squared_difference(a[:, 3], b[:, 3]), tf.reduce_mean(tf.stack([a, b, -a], axis=1), axis=(1, 2)), tf.zeros_like(unit)]
    return tf.concat(parts, -1)


def pictures(x):
    """Functions on images of 6x6 pixels."""
    large = tf.image.resize(x, (12, 12)) + tf.image.resize(tf.image.flip_left_right(x), (12, 12), method="nearest")
    small = tf.nn.max_pool2d(large, 2, 2, "SAME") + tf.nn.avg_pool2d(large, 2, 2, "VALID")
    deep = tf.nn.depth_to_space(tf.nn.space_to_depth(tf.tile(small, [1, 1, 1, 4]), 3), 3)
    return tf.reduce_mean(tf.roll(tf.math.tanh(deep), 1, axis=-1), axis=[1, 2])


def functions():
    a, b, image = keras.Input((4, 6), name="a"), keras.Input((4, 6), name="b"), keras.Input((6, 6, 3), name="image")
    encode = keras.Sequential([L.Dense(6, activation="tanh", input_shape=(4, 6)), L.Dense(6)], name="encode")
    attended = L.MultiHeadAttention(2, 3, name="attention")(encode(a), value=encode(b), key=b)
    x = tf.concat([sequences(encode(a) * 2.0, attended), pictures(L.Conv2D(4, 3, padding="same")(image))], axis=-1)
    return keras.Model([a, b, image], L.Dense(3)(x), name="functions")


def make_functions(rng):
    keras.backend.clear_session()
    keras.utils.set_random_seed(5)
    model = functions()
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse")
    rows = STEPS * BATCH
    inputs = {n: rng.standard_normal((rows, *s)).astype(np.float32) for n, s in (("a", (4, 6)), ("b", (4, 6)), ("image", (6, 6, 3)))}
    y = rng.standard_normal((rows, 3)).astype(np.float32)
    np.savez(HERE / "functions-x.npz", **inputs, y=y)
    for ending in ("h5", "keras"):
        model.save(HERE / f"functions.{ending}")
    predictions = model.predict(inputs, verbose=0)
    losses = [model.train_on_batch({n: v[k : k + BATCH] for n, v in inputs.items()}, y[k : k + BATCH]) for k in range(0, rows, BATCH)]
    weights = {f"w{k}": w for k, w in enumerate(model.get_weights())}
    np.savez(HERE / "functions.npz", predictions=predictions, losses=losses, **weights)


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
    model.save(HERE / "sequential.keras")
    np.savez(HERE / "sequential.npz", predictions=model.predict(x, verbose=0))
    make_functions(rng)


if __name__ == "__main__":
    main()
