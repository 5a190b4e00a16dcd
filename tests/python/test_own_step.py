"""Training steps of the user's own (train_step, compute_loss, add_loss): in the engine with Keras's numbers, or refused with the line."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

import plimsoll

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(64, 12)).astype("float32"), RNG.integers(0, 3, 64)
LOSSES = keras.losses.sparse_categorical_crossentropy
QUIET = {"batch_size": 24, "epochs": 2, "shuffle": False, "verbose": 0}


def with_step(loss, gradients=lambda tape, value, variables: tape.gradient(value, variables), variables=lambda model: model.trainable_variables,
              result=lambda predicted, value: {"l": value}):
    class Own(keras.Model):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                predicted = self(x, training=True)
                value = loss(self, x, y, predicted)
            chosen = variables(self)
            self.optimizer.apply_gradients(zip(gradients(tape, value, chosen), chosen))
            return result(predicted, value)

    return Own


def network(kind, **options):
    keras.utils.set_random_seed(3)
    inputs = keras.Input((12,))
    hidden = layers.Dense(16, activation="relu", **options)(inputs)
    model = kind(inputs, layers.Dense(3, activation="softmax")(hidden))
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "sparse_categorical_crossentropy")
    return model


def mean_loss(model, x, y, predicted):
    return ops.mean(LOSSES(y, predicted))


def assert_same(theirs, ours, expected, found, rtol=1e-4):
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=rtol, atol=1e-5, err_msg=name)
    for a, b in zip(theirs.variables, ours.variables, strict=True):
        if "seed" not in a.path:
            np.testing.assert_allclose(b, a, rtol=1e-3, atol=2e-5, err_msg=a.path)


RIGHT = {
    "a factor": with_step(lambda *a: 2 * mean_loss(*a)),
    "a sum": with_step(lambda model, x, y, predicted: ops.sum(LOSSES(y, predicted))),
    "a mean by TensorFlow": with_step(lambda model, x, y, predicted: tf.reduce_mean(tf.keras.losses.sparse_categorical_crossentropy(y, predicted))),
    "a loss per sample": with_step(lambda model, x, y, predicted: LOSSES(y, predicted), result=lambda _, value: {"l": ops.mean(value)}),
    "clipped by norm": with_step(mean_loss, lambda tape, value, v: [tf.clip_by_norm(g, 0.01) for g in tape.gradient(value, v)]),
    "clipped together": with_step(mean_loss, lambda tape, value, v: tf.clip_by_global_norm(tape.gradient(value, v), 0.01)[0]),
    "some weights": with_step(mean_loss, variables=lambda model: model.trainable_variables[2:]),
    "stopped gradients": with_step(lambda model, x, y, p: ops.mean(ops.square(p - ops.stop_gradient(p) + 1) + p * ops.stop_gradient(p))),
    "more results": with_step(mean_loss, result=lambda predicted, value: {"l": value, "mean": tf.reduce_mean(predicted), "three": 3.0}),
}


@pytest.mark.parametrize("case", RIGHT)
def test_steps_that_run_here(case):
    theirs, ours = network(RIGHT[case]), network(RIGHT[case])
    expected = theirs.fit(X, Y, **QUIET).history
    found = plimsoll.fit(ours, X, Y, **QUIET, budget="4GiB")
    assert_same(theirs, ours, expected, found.history)
    assert int(ours.optimizer.iterations) == int(theirs.optimizer.iterations) == 6


def drawn(model, x, y, predicted):
    return ops.mean(LOSSES(y, predicted) * np.random.rand())


REFUSED = {
    "changes the gradients": with_step(mean_loss, lambda tape, value, v: [g * 0.5 for g in tape.gradient(value, v)]),
    "gets another number each time": with_step(drawn),
    "joins the samples of a batch by Max": with_step(lambda model, x, y, predicted: ops.max(LOSSES(y, predicted))),
    "all samples with all samples": with_step(lambda model, x, y, predicted: ops.mean(ops.matmul(predicted, ops.transpose(predicted)))),
    "has no value": with_step(lambda model, x, y, predicted: ops.mean(tf.custom_gradient(lambda z: (z, lambda d: d * 3))(predicted))),
    "with the value of variable": with_step(lambda *a: mean_loss(*a) + 0.1 * ops.sum(ops.square(a[0].layers[1].kernel))),
    "it would couple the samples": with_step(lambda model, x, y, p: mean_loss(model, x, y, model(0.5 * x + 0.5 * ops.flip(x, axis=0), training=True))),
    "for something else than variables": with_step(mean_loss, lambda tape, value, v: tape.gradient(value, [tf.zeros(3)])),
    "sgd[_0-9]*/iteration'": with_step(lambda *a: mean_loss(*a) * ops.cast(a[0].optimizer.iterations + 1, "float32")),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_steps_that_are_refused_with_file_and_line(reason):
    with pytest.raises(plimsoll.Unsupported, match=reason) as refused:
        plimsoll.fit(network(REFUSED[reason]), X, Y, **QUIET)
    assert "test_own_step.py:" in str(refused.value)


def test_regularizers_that_the_loss_leaves_out_are_refused():
    with pytest.raises(plimsoll.Unsupported, match="regularizers"):
        plimsoll.fit(network(RIGHT["a factor"], kernel_regularizer="l2"), X, Y, **QUIET)


class Reporting(keras.Model):
    """As Keras's guide writes a train_step, with compile()'s loss and metrics."""

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            predicted = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=predicted)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, predicted)
        return {metric.name: metric.result() for metric in self.metrics}


class Adding(layers.Layer):
    def __init__(self):
        super().__init__()
        self.inner = layers.Dense(8, activation="tanh", kernel_regularizer="l2")

    def build(self, shape):
        self.inner.build(shape)

    def call(self, x):
        made = self.inner(x)
        self.add_loss(0.1 * ops.mean(ops.square(made)))
        return made


class OwnLoss(keras.Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return ops.mean(ops.square(y_pred[:, 0] - ops.mean(x, axis=1))) + sum(self.losses)


def compiled(make, *metrics):
    keras.utils.set_random_seed(3)
    inputs = keras.Input((12,))
    model = make(inputs)
    model.compile(keras.optimizers.Adam(1e-2, epsilon=1e-3), "sparse_categorical_crossentropy", metrics=list(metrics))
    return model


def classes(x):
    return layers.Dense(3, activation="softmax")(x)


MODELS = {
    "as in Keras's guide": lambda x: Reporting(x, classes(layers.BatchNormalization()(layers.Dense(16, kernel_regularizer="l2")(x)))),
    "add_loss": lambda x: keras.Model(x, classes(Adding()(x))),
    "compute_loss": lambda x: OwnLoss(x, classes(layers.Dense(8)(x))),
}


@pytest.mark.parametrize("case", MODELS)
def test_models_with_validation_and_evaluate(case):
    theirs, ours = (compiled(MODELS[case], "accuracy") for _ in range(2))
    data = {**QUIET, "validation_split": 0.25}
    expected = theirs.fit(X, Y, **data).history
    assert_same(theirs, ours, expected, plimsoll.fit(ours, X, Y, **data, budget="4GiB").history)
    np.testing.assert_allclose(plimsoll.evaluate(ours, X, Y, verbose=0), theirs.evaluate(X, Y, verbose=0), rtol=1e-4)
    np.testing.assert_allclose(plimsoll.predict(ours, X, verbose=0), theirs.predict(X, verbose=0), rtol=1e-3, atol=1e-5)


def test_callbacks_see_this_batch_s_weights_and_check_compares_steps():
    theirs, ours = (compiled(MODELS["as in Keras's guide"]) for _ in range(2))
    seen = {}
    for model in (theirs, ours):
        sums = seen[model] = []
        watch = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs, m=model, s=sums: s.append(float(ops.sum(m.layers[1].kernel))))
        (plimsoll.fit if model is ours else keras.Model.fit)(model, X, Y, **QUIET, callbacks=[watch])
    np.testing.assert_allclose(seen[ours], seen[theirs], rtol=1e-3, atol=1e-4)
    before = [np.array(w) for w in ours.get_weights()]
    assert plimsoll.check(ours, X, Y, batch_size=32).largest_loss_difference < 1e-4
    for a, b in zip(before, ours.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(plimsoll.Unsupported, match="planned with its data"):
        plimsoll.plan(ours)


class Gan(keras.Model):
    """Two updates per step. `together`: both losses are computed before the first update."""

    def __init__(self, together, critic_statistics=False):
        super().__init__()
        self.together = together
        self.seeds = keras.random.SeedGenerator(7)
        self.maker = keras.Sequential([keras.Input((4,)), layers.Dense(8, activation="relu"), layers.Dense(12)], name="maker")
        middle = [layers.BatchNormalization()] if critic_statistics else []
        self.critic = keras.Sequential([keras.Input((12,)), layers.Dense(8, activation="tanh"), *middle, layers.Dense(1)], name="critic")

    def compile(self, first, second):
        super().compile()
        self.first, self.second = first, second
        self.loss_of = keras.losses.BinaryCrossentropy(from_logits=True)
        self.critic_loss = keras.metrics.Mean(name="critic_loss")

    @property
    def metrics(self):
        return [self.critic_loss]

    def made(self, batch):
        return self.maker(keras.random.normal((batch, 4), seed=self.seeds), training=True)

    def train_step(self, real):
        batch = ops.shape(real)[0]
        with tf.GradientTape() as critic_tape, tf.GradientTape() as maker_tape:
            made = self.made(batch)
            both = ops.concatenate([made, real], axis=0)
            labels = ops.concatenate([ops.ones((batch, 1)), ops.zeros((batch, 1))], axis=0)
            labels += 0.05 * keras.random.uniform(ops.shape(labels), seed=self.seeds)
            critic_loss = self.loss_of(labels, self.critic(both, training=True))
            maker_loss = self.loss_of(ops.zeros((batch, 1)), self.critic(made, training=True)) if self.together else None
        critic = self.critic.trainable_weights
        gradients = critic_tape.gradient(critic_loss, critic)
        if self.together:
            maker_gradients = maker_tape.gradient(maker_loss, self.maker.trainable_weights)
        self.first.apply_gradients(zip(gradients, critic))
        if not self.together:
            with tf.GradientTape() as maker_tape:
                maker_loss = self.loss_of(ops.zeros((batch, 1)), self.critic(self.made(batch), training=True))
            maker_gradients = maker_tape.gradient(maker_loss, self.maker.trainable_weights)
        self.second.apply_gradients(zip(maker_gradients, self.maker.trainable_weights))
        self.critic_loss.update_state(critic_loss)
        return {"critic_loss": self.critic_loss.result(), "maker_loss": maker_loss}


def gan(*arguments):
    keras.utils.set_random_seed(3)
    model = Gan(*arguments)
    model.compile(keras.optimizers.Adam(1e-2, epsilon=1e-3), keras.optimizers.SGD(0.1, momentum=0.9))
    return model


@pytest.mark.parametrize("together", [False, True])
def test_two_updates_per_step_draw_keras_s_numbers(together):
    """Keras's own random numbers are drawn, in the step's order, so that even a GAN's losses are Keras's."""
    theirs, ours = gan(together), gan(together)
    expected = theirs.fit(X, **QUIET).history
    history = plimsoll.fit(ours, X, **QUIET, budget="4GiB")
    assert_same(theirs, ours, expected, history.history)
    assert len(history.plan.plans) == 2 and "2 updates per step" in history.plan.summary()
    for a, b in ((theirs.first, ours.first), (theirs.second, ours.second)):
        for p, q in zip(a.variables, b.variables, strict=True):
            np.testing.assert_allclose(q, p, rtol=1e-3, atol=1e-5, err_msg=p.path)


def test_a_budget_that_two_updates_do_not_fit():
    with pytest.raises(plimsoll.DoesNotFit):
        plimsoll.fit(gan(False), X, **QUIET, budget="200MiB")


def test_statistics_that_two_updates_move_are_refused():
    with pytest.raises(plimsoll.Unsupported, match="batch_normalization.* is called on several batches|moves its statistics"):
        plimsoll.fit(gan(False, True), X, **QUIET)
