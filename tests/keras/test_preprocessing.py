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
