"""Keras's preprocessing layers for images inside a model. Layers that draw numbers get Plimsoll's numbers in Keras as inputs."""

import keras
import numpy as np
import pytest

import compare
import keras_side
import philox
import program
import runs
from test_layers import ODD, check, stem

L = keras.layers
TALL, WIDE = (12, 5, 3), (7, 16, 4)

CASES = {
    "center_crop": (ODD, lambda: L.CenterCrop(4, 3)),
    "center_crop_same": (ODD, lambda: L.CenterCrop(9, 7)),
    "center_crop_up": (ODD, lambda: L.CenterCrop(12, 5)),
    "center_crop_channels_first": ((4, 9, 7), lambda: L.CenterCrop(5, 5, data_format="channels_first")),
    "resizing_down": (ODD, lambda: L.Resizing(4, 3)),
    "resizing_up": (ODD, lambda: L.Resizing(13, 17)),
    "resizing_far_down": (WIDE, lambda: L.Resizing(2, 3)),
    "resizing_rows": (ODD, lambda: L.Resizing(5, 7)),
    "resizing_nearest": (ODD, lambda: L.Resizing(4, 10, interpolation="nearest")),
    "resizing_bicubic": (ODD, lambda: L.Resizing(4, 10, interpolation="bicubic")),
    "resizing_lanczos3": (WIDE, lambda: L.Resizing(5, 20, interpolation="lanczos3")),
    "resizing_lanczos5": (WIDE, lambda: L.Resizing(11, 7, interpolation="lanczos5")),
    "resizing_antialias": (WIDE, lambda: L.Resizing(3, 20, antialias=True)),
    "resizing_bicubic_antialias": (WIDE, lambda: L.Resizing(3, 5, interpolation="bicubic", antialias=True)),
    "resizing_lanczos3_antialias": (WIDE, lambda: L.Resizing(3, 5, interpolation="lanczos3", antialias=True)),
    "resizing_nearest_antialias": (WIDE, lambda: L.Resizing(3, 5, interpolation="nearest", antialias=True)),
    "resizing_crop_tall": (TALL, lambda: L.Resizing(6, 6, crop_to_aspect_ratio=True)),
    "resizing_crop_wide": (WIDE, lambda: L.Resizing(5, 6, crop_to_aspect_ratio=True)),
    "resizing_pad_tall": (TALL, lambda: L.Resizing(6, 6, pad_to_aspect_ratio=True)),
    "resizing_pad_wide": (WIDE, lambda: L.Resizing(6, 5, pad_to_aspect_ratio=True, fill_value=2.5)),
    "resizing_channels_first": ((4, 9, 7), lambda: L.Resizing(6, 5, data_format="channels_first")),
}


@pytest.mark.parametrize("name", CASES)
def test_layer(name, tmp_path, rng):
    shape, make = CASES[name]
    i = keras.Input(shape)
    check(tmp_path, rng, name, i, make()(stem(i, "stem")))


# ---- layers that change images at random, in training only

SHAPE = (6, 5, 4)
ONE = (1, 1, 1)  # one number per sample


class Flip(keras.layers.Layer):
    """What RandomFlip does with its number."""

    def __init__(self, axes, **named):
        super().__init__(**named)
        self.axes = axes

    def call(self, x, u):
        return keras.ops.where(u <= 0.5, keras.ops.flip(x, self.axes), x)


class Changed(keras.layers.Layer):
    """A Keras layer with a given transformation instead of one that it draws."""

    def __init__(self, layer, name_of_number, to_number, **named):
        super().__init__(**named)
        self.layer, self.name_of_number, self.to_number = layer, name_of_number, to_number

    def call(self, x, u):
        return self.layer.transform_images(x, {self.name_of_number: self.to_number(u)}, training=True)


# (the layer, the same with its number as an input)
RANDOM = [
    (lambda: L.RandomFlip("horizontal"), lambda: Flip([2])),
    (lambda: L.RandomFlip("vertical"), lambda: Flip([1])),
    (lambda: L.RandomFlip(), lambda: Flip([1, 2])),
    (lambda: L.RandomFlip(data_format="channels_first"), lambda: Flip([2, 3])),
    (
        lambda: L.RandomBrightness(0.3, value_range=(-1, 1)),
        lambda: Changed(L.RandomBrightness(0.3, value_range=(-1, 1)), "rgb_delta", lambda u: (0.6 * u - 0.3) * 2),
    ),
    (
        lambda: L.RandomBrightness([-0.1, 0.2], value_range=(-2, 3)),
        lambda: Changed(L.RandomBrightness(0.2, value_range=(-2, 3)), "rgb_delta", lambda u: (0.3 * u - 0.1) * 5),
    ),
    (
        lambda: L.RandomContrast(0.4, value_range=(-2, 2)),
        lambda: Changed(L.RandomContrast(0.4, value_range=(-2, 2)), "contrast_factor", lambda u: 0.4 * u + 1),
    ),
    (
        lambda: L.RandomContrast((0.5, 0.2), value_range=(-2, 2)),
        lambda: Changed(L.RandomContrast(0.4, value_range=(-2, 2)), "contrast_factor", lambda u: CONTRAST(u)),
    ),
]


def CONTRAST(u):  # the factor is sorted: (0.2, 0.5)
    return 0.8 + (1.5 - 0.8) * u


def random_network(injected):
    i = keras.Input(SHAPE)
    numbers = []
    x = L.Conv2D(4, 1, name="stem")(i)
    for k, (make, apply) in enumerate(RANDOM):
        if injected:
            numbers.append(keras.Input(ONE, name=f"number{k}"))
            x = apply()(x, numbers[-1])
        else:
            x = make()(x)
    return keras.Model([i] + numbers, L.Dense(2, name="head")(L.Flatten()(x)), name="random")


@pytest.mark.parametrize("micro", (None, 3))
def test_random_layers_with_given_numbers(micro, tmp_path, rng):
    seed, batch, steps = 0x1234567890, 8, 3
    model, oracle = random_network(False), random_network(True)
    oracle.set_weights(model.get_weights())
    for one in (model, oracle):
        one.compile(keras.optimizers.SGD(0.05), "mse")
    x = rng.standard_normal((batch * steps - 3,) + SHAPE).astype(np.float32)
    y = rng.standard_normal((len(x), 2)).astype(np.float32)
    model.save(tmp_path / "model.keras")
    trained = program.fit(
        tmp_path,
        tmp_path / "model.keras",
        program.arrays(tmp_path, x=x, y=y),
        batch_size=batch,
        micro_batch=micro,
        seed=seed,
        epochs=1,
        steps=steps,
    )
    losses = []
    for step, (bx, by) in enumerate(keras_side.batches(x, y, batch)):
        drawn = [philox.units(seed, step, k + 1, len(bx), 1).reshape((-1,) + ONE) for k in range(len(RANDOM))]
        losses.append(float(oracle.train_on_batch([bx] + drawn, by)))
    for step, (a, b) in enumerate(zip(trained.losses, losses, strict=True)):
        compare.close("run loss", f"random images: step {step + 1}", a, b, compare.RUN_LOSS)
    after = keras_side.values(keras_side.load(trained.saved))
    runs.check_weights("random images", after, keras_side.values(oracle), model.weights)
    got = program.predict(tmp_path, trained.saved, program.arrays(tmp_path, prefix="only_", x=x), batch_size=8)
    want = np.array(keras_side.load(trained.saved)(x, training=False))
    compare.close("output", "random images outside training", got, want, compare.OUTPUT)


# ---- rotations, zooms, translations and shears. They stand before any weight, because TensorFlow's gradient of them is
# an approximation; the harness of ops compares ours with finite differences.


class Moved(keras.layers.Layer):
    """A Keras layer with the transformation that `to_transformation(layer, numbers, image shape)` makes of given numbers."""

    def __init__(self, layer, to_transformation, **named):
        super().__init__(**named)
        self.layer, self.to_transformation = layer, to_transformation

    def call(self, x, u):
        columns = [u[:, k : k + 1] for k in range(u.shape[1])]
        size = keras.ops.shape(x)
        if self.layer.data_format == "channels_first":
            size = (size[0], size[2], size[3], size[1])
        given = self.to_transformation(self.layer, columns, (size[1], size[2]))
        return self.layer.transform_images(x, {"input_shape": keras.ops.shape(x)} | given, training=True)


def between(u, low, high):
    return low + u * (high - low)


def rotated(layer, u, size):
    none, one = keras.ops.zeros_like(u[0][:, 0]), keras.ops.ones_like(u[0][:, 0])
    angle = between(u[0][:, 0], layer.factor[0] * 360, layer.factor[1] * 360)
    matrix = layer._compute_affine_matrix(0.5, 0.5, angle, none, none, one, none, none, float(size[0]), float(size[1]))
    return {"rotation_matrix": matrix}


def zoomed(layer, u, size):
    rows = between(u[0], 1 + layer.height_lower, 1 + layer.height_upper)
    apart = layer.width_factor is not None
    columns = between(u[1], 1 + layer.width_lower, 1 + layer.width_upper) if apart else rows
    return {"height_zoom": rows, "width_zoom": columns}


def translated(layer, u, size):
    rows = between(u[0], layer.height_lower, layer.height_upper) * float(size[0])
    columns = between(u[1], layer.width_lower, layer.width_upper) * float(size[1])
    return {"translations": keras.ops.concatenate([columns, rows], 1)}


def sheared(layer, u, size):
    y, x = between(u[1], *layer.y_factor), between(u[2], *layer.x_factor)
    return {"shear_factor": keras.ops.concatenate([x, y], 1) * keras.ops.where(u[0] > 0.5, -1.0, 1.0)}


# (the layer, its transformation, how many numbers it draws)
AFFINE = [
    (lambda: L.RandomRotation(0.2), rotated, 1),
    (lambda: L.RandomRotation((-0.1, 0.3), fill_mode="constant", fill_value=0.7), rotated, 1),
    (lambda: L.RandomRotation(0.5, fill_mode="wrap", interpolation="nearest"), rotated, 1),
    (lambda: L.RandomZoom(0.3), zoomed, 1),
    (lambda: L.RandomZoom((0.2, 0.7), (-0.5, 0.1), fill_mode="nearest"), zoomed, 2),
    (lambda: L.RandomTranslation(0.4, (-0.2, 0.9)), translated, 2),
    (lambda: L.RandomTranslation(0.9, 0.9, fill_mode="wrap", interpolation="nearest"), translated, 2),
    (lambda: L.RandomTranslation(0.3, 0.3, data_format="channels_first"), translated, 2),
    (lambda: L.RandomShear((0.1, 0.6), (0.0, 0.3), fill_mode="constant"), sheared, 3),
]


def affine_network(injected):
    i = keras.Input((7, 6, 4))
    x, numbers = i, []
    for k, (make, transformation, count) in enumerate(AFFINE):
        if injected:
            numbers.append(keras.Input((count,), name=f"number{k}"))
            x = Moved(make(), transformation)(x, numbers[-1])
        else:
            x = make()(x)
    return keras.Model([i] + numbers, L.Dense(2, name="head")(L.Flatten()(x)), name="affine")


@pytest.mark.parametrize("micro", (None, 3))
def test_affine_layers_with_given_numbers(micro, tmp_path, rng):
    seed, batch, steps = 0x1234567890, 8, 3
    model, oracle = affine_network(False), affine_network(True)
    oracle.set_weights(model.get_weights())
    for one in (model, oracle):
        one.compile(keras.optimizers.SGD(0.05), "mse")
    x = rng.standard_normal((batch * steps - 3, 7, 6, 4)).astype(np.float32)
    y = rng.standard_normal((len(x), 2)).astype(np.float32)
    model.save(tmp_path / "model.keras")
    data = program.arrays(tmp_path, x=x, y=y)
    options = {"batch_size": batch, "micro_batch": micro, "seed": seed, "epochs": 1, "steps": steps}
    trained = program.fit(tmp_path, tmp_path / "model.keras", data, **options)
    for step, (bx, by) in enumerate(keras_side.batches(x, y, batch)):
        drawn = [
            np.concatenate([philox.units(seed, step, k + stream * 2**24, len(bx), 1) for stream in range(count)], 1)
            for k, (_, _, count) in enumerate(AFFINE)
        ]
        want = float(oracle.train_on_batch([bx] + drawn, by))
        compare.close("run loss", f"affine layers: step {step + 1}", trained.losses[step], want, compare.RUN_LOSS)
    after = keras_side.values(keras_side.load(trained.saved))
    runs.check_weights("affine layers", after, keras_side.values(oracle), model.weights)
    got = program.predict(tmp_path, trained.saved, program.arrays(tmp_path, prefix="only_", x=x), batch_size=8)
    want = np.array(keras_side.load(trained.saved)(x, training=False))
    compare.close("output", "affine layers outside training", got, want, compare.OUTPUT)


# ---- categories


def test_categories(tmp_path, rng):
    """One model with every mode, saved with vocabularies and bounds that adapt() found."""
    ids, numbers = keras.Input((3,), dtype="int64", name="ids"), keras.Input((1,), name="numbers")
    small = keras.Input((3,), dtype="int32", name="small")  # Keras's CategoryEncoding fails for negative numbers
    adapted = L.IntegerLookup(mask_token=0, name="adapted")
    adapted.adapt(np.array([5, 5, 7, 9, 9, 9, 0, 700]))
    bins = L.Discretization(num_bins=5, name="bins")
    bins.adapt(rng.standard_normal(100))
    bounds = [-1.0, 0.0, 0.25, 2.0]
    parts = [
        L.Flatten()(L.Embedding(6, 3)(adapted(ids))),
        L.IntegerLookup(vocabulary=[3, -4, 9_000_000], output_mode="multi_hot")(ids),
        L.IntegerLookup(vocabulary=list(range(3, 40)), output_mode="count", max_tokens=50, pad_to_max_tokens=True)(ids),
        L.Flatten()(L.IntegerLookup(vocabulary=[9, 8, 7], output_mode="one_hot")(ids)),
        L.CategoryEncoding(8, output_mode="count")(small),
        L.CategoryEncoding(8)(small),
        L.CategoryEncoding(6, output_mode="one_hot")(bins(numbers)),
        L.Discretization(bounds, output_mode="one_hot")(numbers),
        L.Discretization(bounds, output_mode="multi_hot")(numbers),
        L.Normalization(mean=[0.5], variance=[4.0])(numbers),
    ]
    model = keras.Model([ids, numbers, small], L.Dense(2)(L.Concatenate()(parts)))
    model.compile(keras.optimizers.SGD(0.05), "mse")
    model.save(tmp_path / "model.keras")
    chosen = np.array([0, 3, -4, 5, 7, 9, 38, 39, 700, 9_000_000, 2**40, -1], np.int64)
    i = rng.choice(chosen, (12, 3))
    n = rng.standard_normal((12, 1)).astype(np.float32)
    n[:4, 0] = bounds
    k = rng.integers(0, 12, (12, 3)).astype(np.int32)
    y = rng.standard_normal((12, 2)).astype(np.float32)
    data = tmp_path / "data.npz"
    np.savez(data, ids=i, numbers=n, small=k, **{model.output_names[0]: y})
    got = program.predict(tmp_path, tmp_path / "model.keras", data, batch_size=5)
    compare.close("output", "categories", got, np.array(model([i, n, k])), compare.OUTPUT)
    trained = program.fit(tmp_path, tmp_path / "model.keras", data, batch_size=4, epochs=1)
    parts = [slice(first, first + 4) for first in (0, 4, 8)]
    losses = [float(model.train_on_batch([i[p], n[p], k[p]], y[p])) for p in parts]
    compare.close("run loss", "categories", trained.losses, losses, compare.RUN_LOSS)
    again = keras_side.load(trained.saved)  # with its vocabularies
    runs.check_weights("categories", keras_side.values(again), keras_side.values(model), model.weights)
