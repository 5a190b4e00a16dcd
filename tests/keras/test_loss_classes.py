"""Every loss class with its options: value and gradients of one step, with and without sample weights."""

import keras
import numpy as np
import pytest

import compare
import keras_side
import program
from one_step import check_step
from test_losses import CLASSES, N, binary, network, onehot, segmenter, soft, sparse

L, K, R = keras.layers, keras.losses, keras.regularizers


def numbers(rng, columns=3):
    return rng.standard_normal((N, columns)).astype(np.float32)


def positive(rng):
    return rng.random((N, 3), np.float32) * 3


def signs(rng):
    return rng.choice([-1.0, 1.0], (N, 3)).astype(np.float32)


def linear():
    return network(None, 3)


def probabilities(classes=CLASSES):
    """A Reshape hides the softmax: Keras then has no logits."""
    return network("softmax", classes, [L.Reshape((classes,))])


# name: (model, targets, loss)
CASES = {
    "binary_focal": (lambda: network("sigmoid", 3), binary, lambda: "binary_focal_crossentropy"),
    "binary_focal_logits": (
        linear,
        binary,
        lambda: K.BinaryFocalCrossentropy(from_logits=True, gamma=1.5, label_smoothing=0.1),
    ),
    "binary_focal_balanced": (
        lambda: network("sigmoid", 3, [L.Reshape((3,))]),
        binary,
        lambda: K.BinaryFocalCrossentropy(apply_class_balancing=True, alpha=0.3, gamma=3.0),
    ),
    "categorical_focal": (lambda: network("softmax"), onehot, lambda: "categorical_focal_crossentropy"),
    "categorical_focal_logits": (
        lambda: network(None),
        onehot,
        lambda: K.CategoricalFocalCrossentropy(from_logits=True, alpha=0.4, gamma=1.5, label_smoothing=0.1),
    ),
    "generalized": (
        lambda: network("softmax"),
        sparse,
        lambda: K.CategoricalGeneralizedCrossEntropy(q=0.7),
    ),
    "categorical_hinge": (lambda: network(None), onehot, lambda: "categorical_hinge"),
    "hinge_signs": (linear, signs, lambda: "hinge"),
    "hinge_binary": (linear, binary, lambda: K.Hinge()),
    "squared_hinge": (linear, binary, lambda: "squared_hinge"),
    "cosine_similarity": (linear, numbers, lambda: "cosine_similarity"),
    "huber": (linear, numbers, lambda: "huber"),
    "log_cosh": (linear, numbers, lambda: K.LogCosh()),
    "kl_divergence": (lambda: network("softmax"), soft, lambda: "kld"),
    "kl_divergence_zeros": (lambda: network("sigmoid"), onehot, lambda: K.KLDivergence()),
    "poisson": (lambda: network("sigmoid", 3), positive, lambda: "poisson"),
    "percentage": (linear, lambda rng: 1 + positive(rng), lambda: "mape"),
    "squared_log": (linear, positive, lambda: "MSLE"),
    "dice": (lambda: network("sigmoid", 3), binary, lambda: "dice"),
    "dice_per_sample": (lambda: network("sigmoid", 3), binary, lambda: K.Dice(axis=-1)),
    "dice_sum": (lambda: network("sigmoid", 3), binary, lambda: K.Dice(reduction="sum")),
    "dice_sum_per_sample": (lambda: network("sigmoid", 3), binary, lambda: K.Dice(axis=-1, reduction="sum")),
    "tversky": (lambda: network("sigmoid", 3), binary, lambda: K.Tversky(alpha=0.3, beta=0.8)),
    "tversky_sum": (lambda: network("sigmoid", 3), binary, lambda: K.Tversky(alpha=0.3, beta=0.8, reduction="sum")),
    "circle": (
        lambda: network("sigmoid", 4),
        lambda rng: rng.integers(0, 3, N),
        lambda: K.Circle(gamma=8.0),
    ),
    "circle_options": (
        lambda: network("tanh", 4),
        lambda rng: rng.integers(0, 4, N),
        lambda: K.Circle(gamma=2.0, margin=0.25, remove_diagonal=False),
    ),
    "sum": (linear, numbers, lambda: K.MeanSquaredError(reduction="sum")),
    "sum_cross_entropy": (
        lambda: network("softmax"),
        sparse,
        lambda: K.SparseCategoricalCrossentropy(reduction="sum"),
    ),
    "weighted_mean": (linear, numbers, lambda: K.MeanAbsoluteError(reduction="mean_with_sample_weight")),
    "weighted_mean_huber": (linear, numbers, lambda: K.Huber(reduction="mean_with_sample_weight")),
    "ignored_class": (
        lambda: network("softmax"),
        lambda rng: np.where(rng.random(N) < 0.4, 3, sparse(rng)),
        lambda: K.SparseCategoricalCrossentropy(ignore_class=3),
    ),
    "ignored_class_sum": (
        lambda: network("softmax"),
        lambda rng: np.where(rng.random(N) < 0.4, 3, sparse(rng)),
        lambda: K.SparseCategoricalCrossentropy(ignore_class=3, reduction="sum"),
    ),
    "ignored_class_logits": (
        lambda: network(None),
        lambda rng: np.where(rng.random(N) < 0.4, -1, sparse(rng)),
        lambda: K.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1),
    ),
}


@pytest.mark.parametrize("weights", ("plain", "sample_weights"))
@pytest.mark.parametrize("name", CASES)
def test_loss(name, weights, tmp_path, rng):
    model, target, loss = CASES[name]
    x = rng.standard_normal((N, 6)).astype(np.float32)
    sample_weight = rng.random(N, np.float32) * 2 if weights != "plain" else None
    check_step(tmp_path, model(), x, target(rng), loss(), sample_weight, predictions=False)


PIXELS = {
    "dice_of_images": ("sigmoid", lambda: K.Dice(axis=(1, 2, 3))),
    "dice_of_classes": ("sigmoid", lambda: K.Dice(axis=(0, 1, 2))),
    "tversky_of_classes": ("sigmoid", lambda: K.Tversky(axis=[1, 2])),
    "categorical_axis": (None, lambda: K.CategoricalCrossentropy(from_logits=True, axis=1, label_smoothing=0.1)),
    "binary_axis": (None, lambda: K.BinaryCrossentropy(from_logits=True, axis=2)),
    "categorical_focal_axis": (None, lambda: K.CategoricalFocalCrossentropy(from_logits=True, axis=1)),
    "binary_focal_axis": (None, lambda: K.BinaryFocalCrossentropy(from_logits=True, axis=1)),
    "huber_of_pixels": (None, lambda: "huber"),
}


@pytest.mark.parametrize("name", PIXELS)
def test_loss_of_images(name, tmp_path, rng):
    activation, loss = PIXELS[name]
    x = rng.standard_normal((N, 6, 5, 3)).astype(np.float32)
    check_step(tmp_path, segmenter(activation), x, onehot(rng, (N, 6, 5)), loss(), predictions=False)


def test_ignored_pixels_in_micro_batches(tmp_path, rng):
    """The mean is over the pixels of the whole batch that count."""
    x, y = rng.standard_normal((N, 6, 5, 3)).astype(np.float32), sparse(rng, (N, 6, 5))
    y[:, :3] = 2
    y[: N // 2, :5] = 2
    loss = K.SparseCategoricalCrossentropy(ignore_class=2)
    check_step(tmp_path, segmenter("softmax"), x, y, loss, predictions=False, flags=("--micro-batch", "5"))


@pytest.mark.parametrize("name", ["dice", "hinge"])
def test_losses_over_the_batch_refuse_micro_batches(name, tmp_path, rng):
    model = network("sigmoid", 3)
    model.compile("sgd", name)
    file = tmp_path / "model.keras"
    model.save(file)
    ended = program.run("plan", file, "--batch-size", "8", "--micro-batch", "4", expect=None)
    assert ended.code != 0 and name in ended.stderr, ended.stderr


@pytest.mark.parametrize("mode", ("rows", "columns"))
def test_orthogonal_regularizer(mode, tmp_path, rng):
    i = keras.Input((6,))
    h = L.Dense(5, activation="tanh", kernel_regularizer=R.OrthogonalRegularizer(0.3, mode))(i)
    model = keras.Model(i, L.Dense(3, kernel_regularizer="l2")(h), name="orthogonal")
    check_step(tmp_path, model, numbers(rng, 6), numbers(rng), "mse", predictions=False)


def test_loss_by_flag(tmp_path, rng):
    model = keras_side.randomize(network("softmax"))
    model.compile("sgd", "mse")
    file = tmp_path / "model.keras"
    model.save(file)
    x, y = numbers(rng, 6), soft(rng)
    data = program.arrays(tmp_path, x=x, y=y)
    for name, loss in (("kl_divergence", "kld"), ("Huber", K.Huber()), ("msle", "msle")):
        model.compile("sgd", loss)
        want = model.evaluate(x, y, verbose=0)
        got = program.evaluate(file, data, "--loss", name, batch_size=32)
        compare.close("evaluate loss", name, got["loss"], want, compare.LOSS)
