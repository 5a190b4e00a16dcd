"""Layers, models, losses and metrics that are written in Python train here with Keras's losses, or are refused with their line."""

import keras
import numpy as np
import own_code
import pytest
from keras import ops
from models import assert_same_history

import plimsoll

L = keras.layers
rng = np.random.default_rng(0)
OPTIONS = {"batch_size": 16, "epochs": 2, "shuffle": False, "verbose": 0}


def floats(*shape):
    return rng.standard_normal(shape).astype("float32")


def with_layer(layer, shape, loss="mse", out=1, activation=None, metrics=None):
    def make():
        model = keras.Sequential([keras.Input(shape), layer(), L.Flatten(), L.Dense(out, activation=activation)])
        model.compile(keras.optimizers.Adam(1e-2, epsilon=1e-3), loss, metrics=metrics)
        return model

    return make


def subclassed():
    model = own_code.Subclassed()
    model.compile(keras.optimizers.Adam(1e-2, epsilon=1e-3), own_code.Focal(), metrics=["accuracy"])
    return model


def trained(make, fit, x, y, **options):
    keras.utils.set_random_seed(3)
    model = make()
    return model, fit(model, x, y, **{**OPTIONS, **options})


def assert_same_training(make, x, y, **options):
    ours, history = trained(make, plimsoll.fit, x, y, **options)
    theirs, expected = trained(make, lambda model, *data, **named: model.fit(*data, **named), x, y, **options)
    assert_same_history(history, expected)
    for a, b in zip(ours.weights, theirs.weights, strict=True):
        np.testing.assert_allclose(np.array(a), np.array(b), rtol=2e-3, atol=1e-4, err_msg=a.path)
    return ours, theirs


@pytest.mark.parametrize(
    "layer, shape",
    [
        (own_code.SqueezeExcite, (8, 8, 16)),
        (own_code.CausalAttention, (10, 16)),
        (lambda: own_code.WeightNormDense(8), (12,)),
        (lambda: own_code.Patches(8), (9, 12)),
        (own_code.InTensorFlow, (12,)),
        (lambda: L.Lambda(lambda t: ops.concatenate([ops.flip(t, axis=2), t / 127.5 - 1], axis=-1)), (6, 6, 3)),
    ],
)
def test_layers_train_as_in_keras(layer, shape):
    ours, theirs = assert_same_training(with_layer(layer, shape), floats(40, *shape), floats(40, 1), validation_split=0.2)
    x = floats(5, *shape)
    np.testing.assert_allclose(plimsoll.predict(ours, x, verbose=0), theirs.predict(x, verbose=0), rtol=2e-3, atol=1e-3)


def test_a_mask_that_a_layer_is_given_is_kept():
    def make():
        model = keras.Sequential([keras.Input((7,), dtype="int32"), own_code.MaskedSequence(), L.Dense(1)])
        model.compile(keras.optimizers.Adam(1e-2, epsilon=1e-3), "mse")
        return model

    ids = np.where(np.arange(7) < rng.integers(2, 8, (40, 1)), rng.integers(1, 20, (40, 7)), 0)
    assert_same_training(make, ids, floats(40, 1))


def test_a_subclassed_model_trains_and_goes_on_in_keras():
    x, y = floats(48, 12), rng.integers(0, 4, 48)
    ours, theirs = assert_same_training(subclassed, x, y)
    found = ours.fit(x, y, **OPTIONS)
    assert_same_history(found, theirs.fit(x, y, **OPTIONS))
    assert plimsoll.check(ours, x, y, batch_size=16).largest_loss_difference < 1e-4
    np.testing.assert_allclose(plimsoll.predict(ours, x, verbose=0), ours.predict(x, verbose=0), rtol=1e-3, atol=1e-5)
    found, expected = plimsoll.evaluate(ours, x, y, verbose=0), ours.evaluate(x, y, verbose=0)
    np.testing.assert_allclose(found, expected, rtol=1e-3)


@pytest.mark.parametrize(
    "loss, metrics, out, labels",
    [
        (own_code.huber, ["mae", own_code.near], 3, False),
        (own_code.one_number, None, 3, False),
        (own_code.weighted_in_tensorflow, None, 3, False),
        (own_code.Focal(), ["accuracy"], 4, True),
        (own_code.soft_dice, None, 3, False),
    ],
)
def test_losses_and_metrics_are_keras_s(loss, metrics, out, labels):
    x = floats(40, 6)
    y = rng.integers(0, out, 40) if labels else rng.random((40, out)).astype("float32")
    make = with_layer(lambda: L.Dense(8, activation="tanh"), (6,), loss, out, "softmax", metrics)
    assert_same_training(make, x, y, validation_split=0.2)


def test_sample_weights_reach_a_loss_of_the_user_s():
    make = with_layer(lambda: L.Dense(8), (6,), own_code.huber)
    assert_same_training(make, floats(40, 6), floats(40, 1), sample_weight=rng.random(40).astype("float32"))


def test_training_and_inference_differ_where_the_layer_says_so():
    x, y = floats(64, 6), floats(64, 1)
    make = with_layer(own_code.NoiseInTraining, (6,))
    ours, history = trained(make, plimsoll.fit, x, y, epochs=1)
    np.testing.assert_allclose(plimsoll.predict(ours, x, verbose=0), ours.predict(x, verbose=0), rtol=1e-4, atol=1e-5)
    again, repeated = trained(make, plimsoll.fit, x, y, epochs=1)
    assert history.history == repeated.history
    quiet, other = trained(with_layer(lambda: L.Lambda(lambda t: 2 * t), (6,)), plimsoll.fit, x, y, epochs=1)
    assert history.history != other.history


def test_micro_batches_change_nothing():
    x, y = floats(32, 9, 12), floats(32, 1)
    make = with_layer(lambda: own_code.Patches(8), (9, 12), own_code.huber)
    _, whole = trained(make, plimsoll.fit, x, y)
    _, cut = trained(make, plimsoll.fit, x, y, micro_batch=4)
    np.testing.assert_allclose(cut.history["loss"], whole.history["loss"], rtol=1e-5)


class Drawn(L.Layer):
    def call(self, x):
        return x + np.random.normal(size=x.shape[1:]).astype("float32")  # drawn once, when it is traced


class Coupled(L.Layer):
    def call(self, x):
        return x - ops.mean(x, axis=0, keepdims=True)


class Assigning(L.Layer):
    def build(self, shape):
        self.seen = self.add_weight(name="seen", shape=shape[1:], initializer="zeros", trainable=False)

    def call(self, x):
        self.seen.assign(self.seen * 0.9)
        return x + self.seen


class WeightOfAnother(L.Layer):
    """Without care, the transposed weight would be a constant."""

    def build(self, shape):
        self.inner = L.Dense(shape[-1])
        self.inner.build(shape)

    def call(self, x):
        return ops.matmul(self.inner(x), ops.transpose(self.inner.kernel))


@keras.ops.custom_gradient
def doubled_gradient(x):
    def grad(*_, upstream=None):
        return 2 * (_[0] if _ else upstream)

    return x, grad


class OwnGradient(L.Layer):
    def call(self, x):
        return doubled_gradient(x)


class Counting(L.Layer):
    def call(self, x):
        return x / ops.cast(ops.shape(x)[0], "float32")


def coupled_loss(y_true, y_pred):
    return 1 - 2 * ops.sum(y_true * y_pred) / (ops.sum(y_true) + ops.sum(y_pred))


@pytest.mark.parametrize(
    "layer, loss, reason",
    [
        (Drawn, "mse", "other numbers each time"),
        (Coupled, "mse", "couple the samples.*test_own_code.py:"),
        (Assigning, "mse", "assigns to its variable.*test_own_code.py:"),
        (WeightOfAnother, "mse", "value of variable.*test_own_code.py:"),
        (OwnGradient, "mse", "custom_gradient|symbolic.*test_own_code.py:"),
        (Counting, "mse", "number of samples in the batch"),
        (lambda: L.Dense(3), coupled_loss, "joins the samples.*"),
    ],
)
def test_what_would_be_wrong_is_refused_with_its_line(layer, loss, reason):
    x, y = floats(32, 6), floats(32, 1)
    model = with_layer(layer, (6,), loss)()
    before = [np.array(v) for v in model.weights]
    with pytest.raises(plimsoll.Unsupported, match=reason):
        plimsoll.fit(model, x, y, **OPTIONS)
    for value, variable in zip(before, model.weights, strict=True):
        np.testing.assert_array_equal(value, np.array(variable))


def test_no_gradient_flows_through_stop_gradient():
    class Half(L.Layer):
        def build(self, shape):
            self.a, self.b = (self.add_weight(name=n, shape=(shape[-1],), initializer="ones") for n in "ab")

        def call(self, x):
            return x * self.a + ops.stop_gradient(ops.exp(x * self.b))

    ours, _ = assert_same_training(with_layer(Half, (6,)), floats(32, 6), floats(32, 1))
    np.testing.assert_array_equal(np.array(ours.layers[0].b), np.ones(6, "float32"))
