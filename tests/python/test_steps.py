"""Training steps of the user's own in a tf.function: run here if they can be traced, else in TensorFlow, with the reason."""

import pathlib
import subprocess

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


def halved(model, loss, optimizer):
    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            value = loss(y, model(x)) / 2
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


def reported(model, loss, optimizer):
    mean, accuracy = keras.metrics.Mean(), keras.metrics.SparseCategoricalAccuracy()

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            predicted = model(x, training=True)
            value = loss(y, predicted)
        optimizer.apply_gradients(zip(tape.gradient(value, model.trainable_variables), model.trainable_variables))
        mean.update_state(value)
        accuracy.update_state(y, predicted)
        return mean.result()

    return train_step


def scaled_gradients(model, loss, optimizer):
    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            value = loss(y, model(x))
        gradients = [g / 2 for g in tape.gradient(value, model.trainable_variables)]
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return value

    return train_step


def with_predictions(model, loss, optimizer):
    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            predicted = model(x)
            value = loss(y, predicted)
        optimizer.apply_gradients(zip(tape.gradient(value, model.trainable_variables), model.trainable_variables))
        return value + 0 * predicted[0, 0]

    return train_step


@pytest.mark.parametrize("make, model", [(plain, {}), (in_training, {}), (clipped, {}), (halved, {}), (of_some, {}), (scaled_input, {}),
                                         (reported, {}), (plain, {"dropout": True})])
def test_steps_that_run_here(make, model, capfd):
    """A model that is called without training=True does not drop out, in TensorFlow and here."""
    expected, theirs, other = losses_of(make, False, **model)
    found, ours, optimizer = losses_of(make, True, **model)
    assert "the training step of 'sequential" in capfd.readouterr().err
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    for a, b in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)
    assert int(optimizer.iterations) == int(other.iterations) == 6
    np.testing.assert_allclose(ours(X[:4]), theirs(X[:4]), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("make, reason", [(scaled_gradients, "changes the gradients"), (with_predictions, "joins the samples")])
def test_steps_that_cannot_be_traced_run_in_tensorflow_with_the_reason(make, reason, capfd):
    expected = losses_of(make, False)[0]
    found = losses_of(make, True)[0]
    text = capfd.readouterr().err
    assert "runs in TensorFlow" in text and reason in text and "test_steps.py:" in text, text
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_two_networks_in_one_step(capfd):
    """As TensorFlow's tutorial writes a GAN: two tapes, two networks, two optimizers, random numbers as input."""
    def losses(live):
        keras.utils.set_random_seed(1)
        maker = keras.Sequential([keras.Input((3,)), keras.layers.Dense(6, activation="relu"), keras.layers.Dense(5)])
        critic = keras.Sequential([keras.Input((5,)), keras.layers.Dense(4, activation="tanh"), keras.layers.Dense(1)])
        maker_optimizer, critic_optimizer = keras.optimizers.Adam(0.01, epsilon=1e-3), keras.optimizers.Adam(0.01, epsilon=1e-3)
        crossentropy = keras.losses.BinaryCrossentropy(from_logits=True)

        @tf.function
        def train_step(real, noise):
            with tf.GradientTape() as maker_tape, tf.GradientTape() as critic_tape:
                made = maker(noise, training=True)
                of_real, of_made = critic(real, training=True), critic(made, training=True)
                maker_loss = crossentropy(tf.ones_like(of_made), of_made)
                critic_loss = crossentropy(tf.ones_like(of_real), of_real) + crossentropy(tf.zeros_like(of_made), of_made)
            maker_gradients = maker_tape.gradient(maker_loss, maker.trainable_variables)
            critic_gradients = critic_tape.gradient(critic_loss, critic.trainable_variables)
            maker_optimizer.apply_gradients(zip(maker_gradients, maker.trainable_variables))
            critic_optimizer.apply_gradients(zip(critic_gradients, critic.trainable_variables))
            return maker_loss, {"critic": critic_loss}

        random = np.random.default_rng(0)
        data = [[tf.constant(random.normal(size=(16, n)).astype("float32")) for n in (5, 3)] for _ in range(4)]
        with plimsoll.live(fallback=False) if live else tf.name_scope("tensorflow"):
            made = [train_step(*batch) for batch in data]
        return [(float(a), float(b["critic"])) for a, b in made], maker.get_weights() + critic.get_weights()

    expected, theirs = losses(False)
    found, ours = losses(True)
    assert "2 updates per step" in capfd.readouterr().err
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


def test_check_of_a_script_stops_at_its_step(tmp_path, python):
    script = tmp_path / "loop.py"
    script.write_text("""
import keras, tensorflow as tf
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
optimizer = keras.optimizers.SGD(0.1)
@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x) - y))
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    return loss
train_step(tf.ones((8, 4)), tf.zeros((8, 2)))
print("trained")
""")
    program = pathlib.Path(python).parent / "plimsoll"
    ended = subprocess.run([program, "check", script], capture_output=True, text=True)
    assert ended.returncode == 0 and "loss of step 3" in ended.stdout and "trained" not in ended.stdout, ended.stderr


def test_without_fallback_such_a_step_raises():
    network = fresh()
    step = scaled_gradients(network, keras.losses.SparseCategoricalCrossentropy(), keras.optimizers.SGD())
    with plimsoll.live(fallback=False), pytest.raises(plimsoll.Unsupported, match="changes the gradients"):
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
