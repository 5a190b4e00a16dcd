"""What users meet beside the model: losses over a mask, weighted metrics, fixed batches, sessions that are cleared, interrupts."""

import gc
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from models import assert_same_history

import plimsoll
from plimsoll import memory

L = keras.layers
QUIET = {"verbose": 0, "shuffle": False}
RNG = np.random.default_rng(5)


def tokens(samples=40, length=6):
    """Whole numbers, whose zeros are padding."""
    return np.where(np.arange(length) < RNG.integers(2, length + 1, (samples, 1)), RNG.integers(1, 9, (samples, length)), 0)


class OverTheMask(keras.losses.Loss):
    def call(self, y_true, y_pred):
        loss = keras.losses.SparseCategoricalCrossentropy(reduction=None)(y_true, y_pred)
        mask = ops.cast(y_true > 0, "float32")
        return ops.sum(loss * mask) / ops.sum(mask)


def by_hand(y_true, y_pred):
    mask = tf.cast(tf.not_equal(y_true, 0), tf.float32)
    picked = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.cast(y_true, tf.int32), logits=y_pred)
    return tf.math.divide_no_nan(tf.reduce_sum(picked * mask), tf.reduce_sum(mask))


def same_training(make, *data, **named):
    keras.utils.set_random_seed(2)
    theirs = make()
    keras.utils.set_random_seed(2)
    ours = make()
    expected = theirs.fit(*data, **QUIET, **named)
    found = plimsoll.fit(ours, *data, **QUIET, **named)
    assert_same_history(found, expected)
    for a, b in zip(ours.weights, theirs.weights, strict=True):
        np.testing.assert_allclose(np.array(a), np.array(b), rtol=2e-3, atol=1e-4)
    return found


@pytest.mark.parametrize("loss, activation", [(OverTheMask(), "softmax"), (by_hand, None)])
@pytest.mark.parametrize("micro", [None, 4])
def test_a_loss_that_is_divided_by_its_mask(loss, activation, micro):
    def make():
        model = keras.Sequential([keras.Input((6,)), L.Embedding(9, 8), L.Dense(9, activation=activation)])
        model.compile(keras.optimizers.Adam(1e-2), loss, metrics=["accuracy"])
        return model

    x = tokens()
    keras.utils.set_random_seed(2)
    theirs = make()
    keras.utils.set_random_seed(2)
    ours = make()
    expected = theirs.fit(x, x, batch_size=16, epochs=2, validation_data=(x[:20], x[:20]), **QUIET)
    found = plimsoll.fit(ours, x, x, batch_size=16, epochs=2, validation_data=(x[:20], x[:20]), **QUIET, micro_batch=micro)
    assert_same_history(found, expected)
    assert micro is None or found.plan.batch["micro"] == 4


def test_such_a_loss_cannot_be_weighted_and_may_not_divide_by_predictions():
    model = keras.Sequential([keras.Input((6,)), L.Embedding(9, 8), L.Dense(9, activation="softmax")])
    model.compile("adam", OverTheMask())
    with pytest.raises(plimsoll.Unsupported, match="cannot be weighted"):
        plimsoll.fit(model, tokens(16), tokens(16), sample_weight=np.ones(16), verbose=0)
    model.compile("adam", lambda y, p: ops.sum(ops.square(p)) / ops.sum(p))
    with pytest.raises(plimsoll.Unsupported, match="joins the samples"):
        plimsoll.fit(model, tokens(16), tokens(16), verbose=0)


def test_a_metric_with_the_weights_of_the_data():
    class Masked(keras.Model):
        def __init__(self, *arguments, **named):
            super().__init__(*arguments, **named)
            self.tracker = keras.metrics.Mean(name="loss")

        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
            loss = keras.losses.SparseCategoricalCrossentropy(reduction=None)(y, y_pred, sample_weight)
            self.tracker.update_state(loss, sample_weight=sample_weight)
            return ops.sum(loss)

        def compute_metrics(self, x, y, y_pred, sample_weight):
            return {"loss": self.tracker.result()}

        @property
        def metrics(self):
            return [self.tracker]

    def make():
        inputs = keras.Input((6,))
        model = Masked(inputs, L.Dense(9, activation="softmax")(L.Embedding(9, 8)(inputs)))
        model.compile(keras.optimizers.Adam(1e-2))
        return model

    x = tokens()
    with pytest.warns(UserWarning, match="adds up the losses of the samples"):
        same_training(make, x, x, sample_weight=(x > 0).astype("float32"), batch_size=16, epochs=2)


def test_a_step_whose_code_has_the_size_of_the_batch():
    class Fixed(keras.Model):
        def train_step(self, data):
            x, y = data
            noise = keras.random.normal((8, 4), seed=self.seeds)
            with tf.GradientTape() as tape:
                made = ops.reshape(self(x + 0.1 * noise, training=True), (8, 2, 3))
                loss = ops.mean(ops.square(made - ops.reshape(y, (8, 2, 3))))
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
            return {"loss": loss}

    def make():
        inputs = keras.Input((4,))
        model = Fixed(inputs, L.Dense(6)(L.Concatenate()([L.Dense(5, activation="tanh")(inputs), inputs])))
        model.seeds = keras.random.SeedGenerator(3)
        model.compile(keras.optimizers.Adam(1e-2))
        return model

    x, y = RNG.random((32, 4)).astype("float32"), RNG.random((32, 6)).astype("float32")
    same_training(make, x, y, batch_size=8, epochs=2)
    with pytest.raises(plimsoll.Unsupported):
        plimsoll.fit(make(), x[:30], y[:30], batch_size=8, verbose=0)  # the last batch has another size


def test_several_inputs_that_are_declared_without_their_length():
    def make():
        a, b = keras.Input((None, 5)), keras.Input((None, 3))
        _, *state = L.LSTM(4, return_state=True)(a)
        model = keras.Model([a, b], L.Dense(2)(L.LSTM(4, return_sequences=True)(b, initial_state=state)))
        model.compile("adam", "mse")
        return model

    same_training(make, [RNG.random((24, 7, 5)), RNG.random((24, 4, 3))], RNG.random((24, 4, 2)), batch_size=8, epochs=2)


def test_a_pipeline_is_read_once_from_its_beginning():
    reads = []

    def numbers():
        for i in range(6):
            reads.append(i)
            yield np.full((4, 2), i, "float32"), np.zeros((4, 1), "float32")

    data = tf.data.Dataset.from_generator(numbers, output_signature=(tf.TensorSpec((4, 2)), tf.TensorSpec((4, 1))))
    model = keras.Sequential([keras.Input((2,)), L.Dense(1)])
    model.compile("sgd", "mse")
    plimsoll.fit(model, data, verbose=0)
    assert reads == list(range(6))


class Held:
    def __init__(self):
        self.x, self.y = np.ones((64, 64, 64, 3), "float32"), np.zeros((64, 1), "float32")

    def model(self):
        model = keras.Sequential([keras.Input((64, 64, 3)), L.Conv2D(32, 3, activation="relu"), L.GlobalAveragePooling2D(), L.Dense(1)])
        model.compile("sgd", "mse")
        return model


def test_an_interrupt_gives_the_memory_back_although_its_traceback_is_kept():
    held, kept = Held(), []

    class Interrupted(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise KeyboardInterrupt

    def one(keep):
        model = held.model()
        try:
            plimsoll.fit(model, held.x, held.y, batch_size=64, verbose=0, callbacks=[Interrupted()], forbid=["micro-batch", "split"])
        except KeyboardInterrupt as stop:
            keep.append(stop)

    one([])
    gc.collect()
    before = memory.resident_bytes()
    for _ in range(3):
        one(kept)
    assert kept[0].__traceback__ is not None
    assert memory.resident_bytes() - before < 40 << 20  # the arena takes about 60 MiB


def test_clear_session_gives_the_memory_of_a_loop_back_and_the_loop_goes_on():
    held = Held()
    model = held.model()
    loss, optimizer = keras.losses.MeanSquaredError(), keras.optimizers.SGD(1e-3)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            value = loss(y, model(x, training=True))
        optimizer.apply_gradients(zip(tape.gradient(value, model.trainable_variables), model.trainable_variables))
        return value

    with plimsoll.live(fallback=False):
        first = float(step(held.x, held.y))
        weights = [np.array(w) for w in model.weights]
        before = memory.resident_bytes()
        keras.backend.clear_session()
        gc.collect()
        assert before - memory.resident_bytes() > 30 << 20
        for a, b in zip(weights, model.weights, strict=True):
            np.testing.assert_array_equal(a, np.array(b))
        assert float(step(held.x, held.y)) < first


def test_more_replicas_run_as_one_with_keras_s_losses():
    code = """
import tensorflow as tf, numpy as np, keras, plimsoll
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
x, y = np.random.default_rng(1).random((64, 12)).astype("float32"), np.random.default_rng(2).integers(0, 3, 64)
found = []
for fit in (lambda m, *d, **n: m.fit(*d, **n), plimsoll.fit):
    keras.utils.set_random_seed(3)
    with strategy.scope():
        model = keras.Sequential([keras.Input((12,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(3)])
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    found.append(fit(model, tf.data.Dataset.from_tensor_slices((x, y)).batch(16), epochs=2, verbose=0).history["loss"])
np.testing.assert_allclose(*found, rtol=1e-5)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300,
                           env={**os.environ, "PYTHONPATH": ":".join(sys.path)})
    assert ended.returncode == 0, ended.stderr
    assert "trains as one replica of the whole batch, not as 2" in ended.stderr


def test_openmp_does_not_spin_and_the_environment_is_left_alone():
    code = "import os; before = dict(os.environ); import plimsoll; assert dict(os.environ) == before"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60,
                           env={**os.environ, "PYTHONPATH": ":".join(sys.path), "OMP_DISPLAY_ENV": "VERBOSE"})
    assert ended.returncode == 0, ended.stderr
    assert "GOMP_SPINCOUNT = '2000'" in ended.stderr, ended.stderr


def test_what_a_callback_takes_above_the_budget_is_told(capfd):
    class Takes(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.taken = np.ones((memory.resident_bytes() // 8,))  # as much again

    held = Held()
    budget = memory.resident_bytes() + (300 << 20)
    history = plimsoll.fit(held.model(), held.x, held.y, verbose=0, callbacks=[Takes()], budget=budget)
    told = capfd.readouterr().err
    assert history.process_peak_bytes > budget and "more than the budget" in told
    plimsoll.fit(held.model(), held.x, held.y, verbose=0, budget="6GiB")
    assert "more than the budget" not in capfd.readouterr().err
