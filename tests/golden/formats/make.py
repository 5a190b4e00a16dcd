"""Makes the files beside this script. Run it once with each Keras version that the tests use, 3.15.1 last:

    python-with-keras-3.0.0  make.py
    python-with-keras-3.15.1 make.py

Every run writes sequential-VERSION.keras, functional-VERSION.keras and expected-VERSION.json; the arrays are written by
every run alike.
"""

import gzip
import json
import os
import pathlib
import struct

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import keras
import numpy as np

HERE = pathlib.Path(__file__).parent
layers = keras.layers


def sequential():
    model = keras.Sequential(
        [
            layers.Input((6, 6, 1)),
            layers.Conv2D(2, 3, name="first"),
            layers.BatchNormalization(name="norm"),
            layers.Dropout(0.5),
            layers.Conv2D(2, 3, name="second"),
            layers.Flatten(),
            layers.Dense(3, activation="softmax", name="classes"),
        ],
        name="digits",
    )
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "sparse_categorical_crossentropy", metrics=["accuracy"])
    x = np.linspace(0, 1, 4 * 36, dtype="float32").reshape(4, 6, 6, 1)
    model.fit(x, np.arange(4) % 3, batch_size=2, epochs=1, shuffle=False, verbose=0)
    return model


def functional():
    inner = keras.Input((4,))
    backbone = keras.Model(inner, layers.Dense(4, name="b2")(layers.Dense(3, name="b1")(inner)), name="backbone")
    tail = keras.Sequential(
        [layers.Input((4,)), layers.Dense(2, use_bias=False, name="t1"), layers.Dense(4, use_bias=False, name="t2")],
        name="tail",
    )
    a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b")
    left, right = backbone(a), backbone(b)
    mixed = tail(keras.ops.relu(left + right))
    mixed = layers.Add(name="sum")([layers.Dense(4, use_bias=False, name="middle")(mixed), left])
    model = keras.Model([a, b], layers.Dense(2, name="out")(mixed), name="twins")
    model.compile(keras.optimizers.Adam(0.01), "mse")
    x = np.linspace(-1, 1, 16, dtype="float32").reshape(4, 4)
    model.fit([x, x[::-1]], x[:, :2], batch_size=2, epochs=1, shuffle=False, verbose=0)
    return model


def weights_of(model, prefix=()):
    """Returns the name of every layer, from the outermost model inwards, with its own weights."""
    for layer in model.layers:
        names = (*prefix, layer.name)
        if isinstance(layer, keras.Model):
            yield from weights_of(layer, names)
        else:
            yield "/".join(names), [np.asarray(w).ravel().tolist() for w in layer.get_weights()]


def make_models():
    expected = {}
    for name, model in (("sequential", sequential()), ("functional", functional())):
        model.save(HERE / f"{name}-{keras.__version__}.keras")
        variables = [np.asarray(v).ravel().tolist() for v in model.optimizer.variables]
        expected[name] = {"layers": dict(weights_of(model)), "optimizer": variables}
    (HERE / f"expected-{keras.__version__}.json").write_text(json.dumps(expected))


def make_arrays():
    ramp = np.arange(12, dtype="<f4").reshape(3, 4)
    np.save(HERE / "float32.npy", ramp)
    np.save(HERE / "uint8.npy", np.arange(6, dtype="u1").reshape(2, 3))
    np.save(HERE / "scalar.npy", np.float64(1.5))
    np.save(HERE / "empty.npy", np.zeros((0, 3), "i8"))
    np.save(HERE / "fortran.npy", np.asfortranarray(ramp))
    np.save(HERE / "big-endian.npy", ramp.astype(">f4"))
    np.save(HERE / "objects.npy", np.array([None, 1], dtype=object), allow_pickle=True)
    np.save(HERE / "text.npy", np.array(["a", "bc"]))
    np.save(HERE / "complex.npy", np.zeros(2, "c8"))
    np.save(HERE / "structure.npy", np.zeros(2, [("a", "<f4"), ("b", "<i4")]))
    for version in ((2, 0), (3, 0)):
        with open(HERE / f"version{version[0]}.npy", "wb") as file:
            np.lib.format.write_array(file, ramp, version=version)
    np.savez(HERE / "stored.npz", x=ramp, y=np.arange(3, dtype="i8"))
    np.savez_compressed(HERE / "compressed.npz", x=ramp, y=np.arange(3, dtype="i8"))


def idx(code, array):
    head = bytes([0, 0, code, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.astype(array.dtype.newbyteorder(">")).tobytes()


def make_idx():
    images = idx(0x08, np.arange(24, dtype="u1").reshape(2, 3, 4))
    (HERE / "ubyte.idx").write_bytes(images)
    (HERE / "ubyte.idx.gz").write_bytes(gzip.compress(images, mtime=0))
    for code, name in ((0x09, "i1"), (0x0B, "i2"), (0x0C, "i4"), (0x0D, "f4"), (0x0E, "f8")):
        (HERE / f"{name}.idx").write_bytes(idx(code, np.arange(-2, 4).astype(name).reshape(3, 2)))


if __name__ == "__main__":
    make_models()
    make_arrays()
    make_idx()
