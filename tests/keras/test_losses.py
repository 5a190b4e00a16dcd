"""Losses and regularizers: value and gradients, with logits and probabilities, smoothing, sample and class weights."""

import keras
import numpy as np
import pytest

from one_step import check_step

L, K = keras.layers, keras.losses
N, CLASSES = 12, 5


def network(activation, classes=CLASSES, then=()):
    i = keras.Input((6,))
    x = L.Dense(classes, activation=activation)(L.Dense(9, activation="tanh")(i))
    for layer in then:
        x = layer(x)
    return keras.Model(i, x, name="network")


def segmenter(activation):
    i = keras.Input((6, 5, 3))
    return keras.Model(
        i,
        L.Conv2D(CLASSES, 1, activation=activation)(L.Conv2D(7, 3, padding="same", activation="tanh")(i)),
        name="segmenter",
    )


def sparse(rng, shape=(N,)):
    return rng.integers(0, CLASSES, shape)


def onehot(rng, shape=(N,)):
    return np.eye(CLASSES, dtype=np.float32)[sparse(rng, shape)]


def soft(rng):
    p = rng.random((N, CLASSES), np.float32) + 0.05
    return p / p.sum(-1, keepdims=True)


def binary(rng, columns=3):
    return rng.integers(0, 2, (N, columns)).astype(np.float32)


# name: (model, targets, loss)
CASES = {
    "sparse_logits": (lambda: network(None), sparse, lambda: K.SparseCategoricalCrossentropy(from_logits=True)),
    "sparse_softmax": (lambda: network("softmax"), sparse, lambda: "sparse_categorical_crossentropy"),
    "sparse_softmax_layer": (
        lambda: network(None, then=[L.Softmax()]),
        sparse,
        lambda: "sparse_categorical_crossentropy",
    ),
    "sparse_probabilities": (
        lambda: network("softmax", then=[L.Reshape((CLASSES,))]),
        sparse,
        lambda: "sparse_categorical_crossentropy",
    ),
    "sparse_column_of_labels": (
        lambda: network("softmax"),
        lambda rng: sparse(rng, (N, 1)),
        lambda: "sparse_categorical_crossentropy",
    ),
    "categorical_logits": (lambda: network(None), onehot, lambda: K.CategoricalCrossentropy(from_logits=True)),
    "categorical_softmax": (lambda: network("softmax"), onehot, lambda: "categorical_crossentropy"),
    "categorical_soft_targets": (lambda: network("softmax"), soft, lambda: "categorical_crossentropy"),
    "categorical_probabilities": (lambda: network("sigmoid"), onehot, lambda: "categorical_crossentropy"),
    "categorical_smoothing": (
        lambda: network("softmax"),
        onehot,
        lambda: K.CategoricalCrossentropy(label_smoothing=0.1),
    ),
    "categorical_smoothing_logits": (
        lambda: network(None),
        onehot,
        lambda: K.CategoricalCrossentropy(from_logits=True, label_smoothing=0.2),
    ),
    "categorical_smoothing_probabilities": (
        lambda: network("softmax", then=[L.Reshape((CLASSES,))]),
        onehot,
        lambda: K.CategoricalCrossentropy(label_smoothing=0.1),
    ),
    "binary_logits": (lambda: network(None, 3), binary, lambda: K.BinaryCrossentropy(from_logits=True)),
    "binary_sigmoid": (lambda: network("sigmoid", 3), binary, lambda: "binary_crossentropy"),
    "binary_one_column": (lambda: network("sigmoid", 1), lambda rng: binary(rng, 1), lambda: "binary_crossentropy"),
    "binary_flat_labels": (
        lambda: network("sigmoid", 1),
        lambda rng: binary(rng, 1)[:, 0],
        lambda: "binary_crossentropy",
    ),
    "binary_probabilities": (lambda: network("sigmoid", 3, [L.Reshape((3,))]), binary, lambda: "binary_crossentropy"),
    "binary_smoothing": (lambda: network("sigmoid", 3), binary, lambda: K.BinaryCrossentropy(label_smoothing=0.1)),
    "binary_smoothing_logits": (
        lambda: network(None, 3),
        binary,
        lambda: K.BinaryCrossentropy(from_logits=True, label_smoothing=0.3),
    ),
    "mse": (lambda: network(None, 3), lambda rng: rng.standard_normal((N, 3)).astype(np.float32), lambda: "mse"),
    "mse_class": (
        lambda: network("tanh", 3),
        lambda rng: rng.standard_normal((N, 3)).astype(np.float32),
        lambda: K.MeanSquaredError(),
    ),
}


@pytest.mark.parametrize("weights", ("plain", "sample_weights"))
@pytest.mark.parametrize("name", CASES)
def test_loss(name, weights, tmp_path, rng):
    model, target, loss = CASES[name]
    x = rng.standard_normal((N, 6)).astype(np.float32)
    sample_weight = rng.random(N, np.float32) * 2 if weights != "plain" else None
    check_step(tmp_path, model(), x, target(rng), loss(), sample_weight, predictions=weights == "plain")


@pytest.mark.parametrize("weights", ("plain", "sample_weights"))
def test_loss_of_every_pixel(weights, tmp_path, rng):
    x = rng.standard_normal((N, 6, 5, 3)).astype(np.float32)
    sample_weight = rng.random(N, np.float32) * 2 if weights != "plain" else None
    check_step(
        tmp_path, segmenter("softmax"), x, sparse(rng, (N, 6, 5)), "sparse_categorical_crossentropy", sample_weight
    )


def test_saturated_logits(tmp_path, rng):
    """With logits of several hundred, the loss from logits stays exact, although a softmax would round to 0."""
    x = 400 * rng.standard_normal((N, 6)).astype(np.float32)
    i = keras.Input((6,))
    check_step(
        tmp_path,
        keras.Model(i, L.Dense(CLASSES, activation="softmax")(i), name="saturated"),
        x,
        sparse(rng),
        "sparse_categorical_crossentropy",
    )


def test_zero_sample_weights(tmp_path, rng):
    """Samples with weight zero count only in the denominator."""
    x = rng.standard_normal((N, 6)).astype(np.float32)
    check_step(
        tmp_path,
        network("softmax"),
        x,
        sparse(rng),
        "sparse_categorical_crossentropy",
        (np.arange(N) % 3 == 0).astype(np.float32),
    )


@pytest.mark.parametrize("target", (sparse, onehot))
def test_class_weights(target, tmp_path, rng):
    x = rng.standard_normal((N, 6)).astype(np.float32)
    loss = "sparse_categorical_crossentropy" if target is sparse else "categorical_crossentropy"
    check_step(tmp_path, network("softmax"), x, target(rng), loss, class_weight={0: 1, 1: 5, 2: 0.25, 3: 1, 4: 2})


@pytest.mark.parametrize("name", ("l1", "l2", "l1_l2"))
def test_regularizer(name, tmp_path, rng):
    r = {
        "l1": keras.regularizers.L1(0.01),
        "l2": keras.regularizers.L2(0.02),
        "l1_l2": keras.regularizers.L1L2(0.01, 0.02),
    }[name]
    i = keras.Input((8, 8, 2))
    x = L.Conv2D(4, 3, kernel_regularizer=r, bias_regularizer=r, activation="relu")(i)
    x = L.DepthwiseConv2D(3, depthwise_regularizer=r)(x) if name == "l2" else x
    model = keras.Model(i, L.Dense(3, kernel_regularizer=r, bias_regularizer=r)(L.Flatten()(x)), name=name)
    check_step(
        tmp_path,
        model,
        rng.standard_normal((N, 8, 8, 2)).astype(np.float32),
        rng.standard_normal((N, 3)).astype(np.float32),
        "mse",
    )


def test_string_regularizer(tmp_path, rng):
    i = keras.Input((6,))
    model = keras.Model(
        i,
        L.Dense(3, kernel_regularizer="l2")(L.Dense(4, kernel_regularizer="l1", activation="relu")(i)),
        name="strings",
    )
    check_step(
        tmp_path,
        model,
        rng.standard_normal((N, 6)).astype(np.float32),
        rng.standard_normal((N, 3)).astype(np.float32),
        "mse",
    )
