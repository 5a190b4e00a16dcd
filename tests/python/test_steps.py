"""Training steps of the user's own in a tf.function: run here if they are what the engine does, else in TensorFlow, with the reason."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from models import images

import plimsoll

X, Y = images(64)


def fresh(training=False, dropout=False):
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Input((16, 16, 3)), keras.layers.Conv2D(4, 3, activation="tanh"), keras.layers.Flatten()]
    layers += [keras.layers.Dropout(0.5)] if dropout else []
    return keras.Sequential([*layers, keras.layers.Dense(10, activation="softmax")])


def plain(model, loss, optimizer):
    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            value = loss(y, model(x))
        gradients = tape.gradient(value, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return value

    return train_step


def in_training(model, loss, optimizer):
    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            value = loss(y, model(x, training=True))
        optimizer.apply(tape.gradient(value, model.trainable_weights), model.trainable_weights)
        return value

    return train_step


def clipped(model, loss, optimizer):
    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            value = loss(y, model(x))
        gradients = [tf.clip_by_norm(g, 0.1) for g in tape.gradient(value, model.trainable_variables)]
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return value

    return train_step


def doubled(model, loss, optimizer):
    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            value = 2 * loss(y, model(x))
        optimizer.apply_gradients(zip(tape.gradient(value, model.trainable_variables), model.trainable_variables))
        return value

    return train_step


def of_some(model, loss, optimizer):
    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            value = loss(y, model(x))
        some = model.trainable_variables[:2]
        optimizer.apply_gradients(zip(tape.gradient(value, some), some))
        return value

    return train_step


def scaled_input(model, loss, optimizer):
    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            value = loss(y, model(x / 2))
        optimizer.apply_gradients(zip(tape.gradient(value, model.trainable_variables), model.trainable_variables))
        return value

    return train_step


def losses_of(make, live, **model):
    network, optimizer = fresh(**model), keras.optimizers.SGD(0.1, momentum=0.9)
    step = make(network, keras.losses.SparseCategoricalCrossentropy(), optimizer)
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(24)
    with plimsoll.live(fallback=True) if live else tf.name_scope("tensorflow"):
        losses = [float(step(x, y)) for _ in range(2) for x, y in data]
    return losses, network, optimizer


@pytest.mark.parametrize("make", [plain, in_training])
def test_steps_that_run_here(make, capfd):
    expected, theirs, other = losses_of(make, False)
    found, ours, optimizer = losses_of(make, True)
    assert "the training step of 'sequential" in capfd.readouterr().err
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    for a, b in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)
    assert int(optimizer.iterations) == int(other.iterations) == 6
    np.testing.assert_allclose(ours(X[:4]), theirs(X[:4]), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    "make, model, reason",
    [
        (clipped, {}, "a gradient"),
        (doubled, {}, "the loss"),
        (of_some, {}, "other variables"),
        (scaled_input, {}, "an argument"),
        (plain, {"dropout": True}, "without training=True"),
    ],
)
def test_steps_that_do_more_run_in_tensorflow_with_the_reason(make, model, reason, capfd):
    expected = losses_of(make, False, **model)[0]
    found = losses_of(make, True, **model)[0]
    text = capfd.readouterr().err
    assert "runs in TensorFlow" in text and reason in text, text
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_without_fallback_such_a_step_raises():
    network = fresh()
    step = clipped(network, keras.losses.SparseCategoricalCrossentropy(), keras.optimizers.SGD())
    with plimsoll.live(fallback=False), pytest.raises(plimsoll.Unsupported, match="gradient"):
        step(tf.constant(X[:8]), tf.constant(Y[:8]))


def test_functions_that_do_not_train_are_left_alone(capfd):
    @tf.function
    def total(a, b):
        return tf.reduce_sum(a) + tf.reduce_sum(b)

    with plimsoll.live(fallback=False):
        assert float(total(tf.ones(3), tf.ones(2))) == 5
    assert "plimsoll" not in capfd.readouterr().err


def test_fit_after_a_step_continues_from_its_weights():
    network = fresh()
    step = plain(network, keras.losses.SparseCategoricalCrossentropy(), keras.optimizers.SGD(0.1))
    with plimsoll.live():
        step(tf.constant(X[:32]), tf.constant(Y[:32]))
        after = [np.array(w) for w in network.get_weights()]
        network.compile(keras.optimizers.SGD(0.0), "sparse_categorical_crossentropy")
        network.fit(X, Y, verbose=0)
    for a, b in zip(network.get_weights(), after, strict=True):
        np.testing.assert_array_equal(a, b)
