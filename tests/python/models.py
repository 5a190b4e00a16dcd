"""Small compiled models and data for the tests of the Python package."""

import keras
import numpy as np

L = keras.layers


def images(samples=150, size=16, classes=10, dtype="float32"):
    rng = np.random.default_rng(7)
    x = rng.random((samples, size, size, 3)).astype(dtype)
    return x, rng.integers(0, classes, samples).astype("int32")


def cnn(optimizer=None, metrics=("accuracy",), **compiled):
    keras.utils.set_random_seed(1)
    model = keras.Sequential([
        L.Input((16, 16, 3)),
        L.Conv2D(8, 3, activation="tanh"),  # smooth: rounding does not switch elements on and off
        L.BatchNormalization(),
        L.GlobalAveragePooling2D(),
        L.Dense(10, activation="softmax"),
    ])
    model.compile(optimizer or keras.optimizers.Adam(1e-2, epsilon=1e-2), "sparse_categorical_crossentropy", metrics=list(metrics), **compiled)
    return model


def two_ends():
    """Two inputs of different kinds and two outputs with losses of their own."""
    keras.utils.set_random_seed(2)
    picture, facts = keras.Input((8, 8, 1), name="picture"), keras.Input((5,), name="facts")
    both = L.Concatenate()([L.Flatten()(L.Conv2D(4, 3, activation="relu")(picture)), L.Dense(6)(facts)])
    kind, price = L.Dense(3, activation="softmax", name="kind")(both), L.Dense(1, name="price")(both)
    model = keras.Model({"picture": picture, "facts": facts}, {"kind": kind, "price": price})
    model.compile("adam", {"kind": "sparse_categorical_crossentropy", "price": "mse"}, metrics={"kind": ["accuracy"], "price": ["mae"]})
    return model


def two_ends_data(samples=70):
    rng = np.random.default_rng(3)
    x = {"picture": rng.random((samples, 8, 8, 1)).astype("float32"), "facts": rng.random((samples, 5)).astype("float32")}
    return x, {"kind": rng.integers(0, 3, samples), "price": rng.random((samples, 1)).astype("float32")}


def dense(loss="mse", activation=None, units=1, inputs=4):
    keras.utils.set_random_seed(4)
    model = keras.Sequential([L.Input((inputs,)), L.Dense(8, activation="relu"), L.Dense(units, activation=activation)])
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), loss)
    return model


def values(model):
    return {v.path: np.array(keras.ops.convert_to_numpy(v)) for v in (*model.weights, *model.optimizer.variables)}


def assert_same_state(ours, theirs, rtol=2e-4, atol=2e-5):
    """Both models are copies of one, so their variables pair in order."""
    ours, theirs = list(values(ours).items()), list(values(theirs).items())
    assert len(ours) == len(theirs)
    for (name, a), (_, b) in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, err_msg=name)


def assert_same_history(ours, theirs, rtol=2e-4):
    assert list(ours.history) == list(theirs.history)
    assert ours.epoch == theirs.epoch
    for name, numbers in theirs.history.items():
        np.testing.assert_allclose(ours.history[name], numbers, rtol=rtol, atol=1e-6, err_msg=name)
