"""SpectralNormalization: in training, Keras stores the kernel divided by its largest singular value before each call, and the update
of the step begins there. The vector of the power iteration is a weight that is not trained."""

import h5py
import io
import json
import keras
import numpy as np
import pytest
import zipfile

import compare
import keras_side
import program
import runs
from one_step import check_step
from test_layers import IMAGE, LINE, N, VECTOR, check, frozen, stem

L = keras.layers
VOLUME = (5, 4, 6, 3)
S = L.SpectralNormalization

CASES = {
    "dense": (VECTOR, lambda: S(L.Dense(4))),
    "dense_iterations": (VECTOR, lambda: S(L.Dense(4, activation="tanh"), power_iterations=3)),
    "dense_on_images": (IMAGE, lambda: S(L.Dense(5, use_bias=False))),
    "conv": (IMAGE, lambda: S(L.Conv2D(6, 3, padding="same", activation="relu"))),
    "conv_strides_groups": (IMAGE, lambda: S(L.Conv2D(6, 3, strides=2, groups=2), power_iterations=2)),
    "conv_line": (LINE, lambda: S(L.Conv1D(5, 3, padding="causal"))),
    "conv_volume": (VOLUME, lambda: S(L.Conv3D(4, 2))),
    "conv_transpose": (IMAGE, lambda: S(L.Conv2DTranspose(3, 3, strides=2, padding="same"))),
    "depthwise": (IMAGE, lambda: S(L.DepthwiseConv2D(3, depth_multiplier=2))),
    "einsum": (LINE, lambda: S(L.EinsumDense("abc,cde->abde", (11, 2, 3), bias_axes="de"))),
    "penalties": (VECTOR, lambda: S(L.Dense(4, kernel_regularizer="l2", bias_regularizer="l1"))),
    "orthogonal": (VECTOR, lambda: S(L.Dense(4, kernel_regularizer="orthogonal_regularizer"))),
    "constraint": (VECTOR, lambda: S(L.Dense(4, kernel_constraint=keras.constraints.MaxNorm(0.3)))),
    "inner_activity": (VECTOR, lambda: S(L.Dense(4, activity_regularizer="l2"))),
    "both_activities": (VECTOR, lambda: S(L.Dense(4, activity_regularizer="l2"), activity_regularizer="l1")),
    "frozen": (VECTOR, lambda: frozen(S(L.Dense(4)))),
    "inner_frozen": (VECTOR, lambda: S(frozen(L.Dense(4)))),
}


@pytest.mark.parametrize("name", CASES)
def test_layer(name, tmp_path, rng):
    shape, make = CASES[name]
    i = keras.Input(shape)
    check(tmp_path, rng, name, i, make()(stem(i, "stem")))


def test_kernel_of_zeros_stays(tmp_path, rng):
    i = keras.Input(VECTOR)
    layer = S(L.Dense(4))
    model = keras_side.randomize(keras.Model(i, layer(L.Dense(6, name="stem")(i))))
    layer.layer.kernel.assign(np.zeros((6, 4), np.float32))
    u = layer.vector_u.numpy()
    x, y = rng.standard_normal((N, 6)).astype(np.float32), rng.standard_normal((N, 4)).astype(np.float32)
    model.compile(keras.optimizers.SGD(0.1), "mse")
    runs.check_run(tmp_path, "zeros", model, x, y, N, few=True)
    assert np.array_equal(layer.vector_u.numpy(), u)


def test_layer_called_twice(tmp_path, rng):
    """Each call normalises once more, and the gradients of both calls move the kernel of the last one."""
    a, b = keras.Input(VECTOR, name="a"), keras.Input(VECTOR, name="b")
    shared = S(L.Dense(4, activation="tanh", kernel_regularizer="l2"))
    model = keras.Model([a, b], L.Concatenate()([shared(L.Dense(6)(a)), shared(L.Dense(6)(b))]), name="shared")
    keras_side.randomize(model)
    x = {name: rng.standard_normal((N, 6)).astype(np.float32) for name in "ab"}
    model.compile(keras.optimizers.SGD(0.1), "mse")
    runs.check_run(tmp_path, "shared", model, x, {model.output_names[0]: rng.standard_normal((N, 8)).astype(np.float32)}, N, few=True)


OPTIMIZERS = {
    "adam": lambda: keras.optimizers.Adam(0.01, weight_decay=0.01, clipnorm=0.5),
    "accumulating": lambda: keras.optimizers.SGD(0.05, momentum=0.9, gradient_accumulation_steps=2),
    "overwriting": lambda: keras.optimizers.Adam(0.01, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=2),
    "scaled": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01), initial_scale=256.0),
}


def discriminator():
    x = i = keras.Input((10, 10, 3))
    for filters in (6, 8):
        x = L.LeakyReLU(negative_slope=0.2)(S(L.Conv2D(filters, 3, strides=2, padding="same"))(x))
    return keras_side.randomize(keras.Model(i, S(L.Dense(1), power_iterations=2)(L.Flatten()(x)), name="discriminator"))


def labelled(rng, n):
    return rng.standard_normal((n, 10, 10, 3)).astype(np.float32), rng.standard_normal((n, 1)).astype(np.float32)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_run(optimizer, tmp_path, rng):
    model = discriminator()
    model.compile(OPTIMIZERS[optimizer](), "mse")
    runs.check_run(tmp_path, f"spectral {optimizer}", model, *labelled(rng, 24), 8, epochs=2)


def test_micro_batches_share_the_normalised_kernel(tmp_path, rng):
    """The kernel is normalised once per window, not once per micro-batch."""
    model = discriminator()
    model.compile(keras.optimizers.SGD(0.05), "mse")
    flags = ("--micro-batch", "3")
    trained, _ = runs.check_run(tmp_path, "spectral micro-batches", model, *labelled(rng, 24), 8, flags, epochs=2)
    assert trained.plan["batch"]["micro"] == 3


def test_file_holds_the_kernel_twice(tmp_path, rng):
    """As Keras's file does: in the group of the wrapper and in that of the layer."""
    model = discriminator()
    model.compile("sgd", "mse")
    model.save(tmp_path / "model.keras")
    trained = program.fit(tmp_path, tmp_path / "model.keras", runs.data_of(tmp_path, *labelled(rng, 8)), batch_size=8, epochs=1)
    with zipfile.ZipFile(trained.saved) as z, h5py.File(io.BytesIO(z.read("model.weights.h5"))) as f:
        group = f["layers/spectral_normalization"]
        assert np.array_equal(group["vars/0"][()], group["layer/vars/0"][()])
        assert group["vars/1"].shape == (1, 6)


@pytest.mark.parametrize("ending", (".h5", ".weights.h5"))
def test_other_files(ending, tmp_path, rng):
    model = discriminator()
    model.compile("sgd", "mse")
    x, y = labelled(rng, 8)
    want = np.array(model(x))
    if ending == ".h5":
        model.save(tmp_path / "model.h5")
        got = program.predict(tmp_path, tmp_path / "model.h5", program.arrays(tmp_path, x=x), batch_size=8)
    else:
        (tmp_path / "model.json").write_text(model.to_json())
        model.save_weights(tmp_path / "model.weights.h5")
        got = program.predict(tmp_path, tmp_path / "model.json", program.arrays(tmp_path, x=x), "--weights", tmp_path / "model.weights.h5", batch_size=8)
    compare.close("output", ending, got, want, compare.OUTPUT)


@pytest.mark.parametrize("inner,reason", (("SpectralNormalization", "kernel"), ("BatchNormalization", "kernel")))
def test_layers_without_a_kernel_are_refused(inner, reason, tmp_path):
    model = keras.Sequential([keras.Input((4,)), S(L.Dense(4, name="d"), name="sn")])
    config = json.loads(model.to_json())
    layer = config["config"]["layers"][-1]["config"]["layer"]
    layer["class_name"] = inner
    layer["config"] = {"name": "d"} if inner == "BatchNormalization" else {"name": "d", "layer": json.loads(json.dumps(layer))}
    if inner == "SpectralNormalization":
        layer["config"]["layer"]["class_name"], layer["config"]["layer"]["config"] = "Dense", {"name": "e", "units": 4}
    (tmp_path / "model.json").write_text(json.dumps(config))
    ended = program.run("plan", tmp_path / "model.json", "--batch-size", 1, "--optimizer", "sgd", "--loss", "mse", expect=2)
    assert "'sn'" in ended.stderr and reason in ended.stderr, ended.stderr


def test_mixed_policies_are_refused(tmp_path):
    """Keras then rounds the stored kernel to half precision in every step."""
    i = keras.Input((4,))
    model = keras.Model(i, S(L.Dense(4, dtype="mixed_bfloat16"), dtype="mixed_bfloat16")(i))
    model.compile("sgd", "mse")
    model.save(tmp_path / "model.keras")
    ended = program.run("plan", tmp_path / "model.keras", "--batch-size", 1, expect=2)
    assert "error P205" in ended.stderr and "mixed_bfloat16" in ended.stderr, ended.stderr
