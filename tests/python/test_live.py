"""model.fit, evaluate and predict under live() and install(); what cannot run here runs in Keras, and says so."""

import keras
import numpy as np
import pytest
from models import assert_same_state, cnn, dense, images

import plimsoll
from plimsoll import _core

QUIET = {"verbose": 0, "shuffle": False, "batch_size": 32}


@pytest.fixture
def engines(monkeypatch):
    """Counts the engines that are made."""
    made = []

    class Counted(_core.Engine):
        def __init__(self, *arguments):
            made.append(arguments)
            super().__init__(*arguments)

    monkeypatch.setattr(_core, "Engine", Counted)
    return made


class Shuffled(keras.layers.Layer):
    """It moves features from sample to sample."""

    def call(self, x):
        return x + 0 * keras.random.shuffle(x, seed=1)


def my_loss(y_true, y_pred):
    """It is no mean or sum over the samples."""
    return keras.ops.sqrt(keras.ops.mean(keras.ops.square(y_true - y_pred)))


def unknown_to_plimsoll():
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), Shuffled(), keras.layers.Dense(1)])
    model.compile("sgd", my_loss)
    return model


def line_data():
    rng = np.random.default_rng(0)
    return rng.random((40, 4)).astype("float32"), rng.random((40, 1)).astype("float32")


def test_live_calls_run_here_and_calls_outside_in_keras(engines):
    x, y = images(64)
    ours, theirs = cnn(), cnn()
    theirs.fit(x, y, epochs=2, **QUIET)
    assert not engines
    with plimsoll.live(budget="4GiB"):
        ours.fit(x, y, epochs=2, **QUIET)
        assert len(engines) == 1 and engines[0][2]["budget"] == "4GiB"
        found = ours.evaluate(x, y, verbose=0), ours.predict(x, verbose=0)
        assert len(engines) == 3
    np.testing.assert_allclose(found[0], theirs.evaluate(x, y, verbose=0), rtol=2e-4)
    np.testing.assert_allclose(found[1], theirs.predict(x, verbose=0), rtol=2e-3, atol=2e-4)
    assert_same_state(ours, theirs)
    assert len(engines) == 3


def test_a_subclass_that_calls_super_runs_here(engines):
    class Mine(keras.Sequential):
        def fit(self, *arguments, **named):
            return super().fit(*arguments, **named)

    x, y = line_data()
    model = Mine([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with plimsoll.live(fallback=False):
        model.fit(x, y, verbose=0)
    assert len(engines) == 1


def test_fallback_names_every_reason_and_keras_trains(engines, capfd):
    x, y = line_data()
    ours, theirs = unknown_to_plimsoll(), unknown_to_plimsoll()
    theirs.fit(x, y, epochs=2, **QUIET)
    with plimsoll.live(budget="4GiB"):
        ours.fit(x, y, epochs=2, **QUIET)
    text = capfd.readouterr().err
    assert "runs in Keras" in text and "shuffle() (test_live.py:" in text and "my_loss (test_live.py:" in text
    assert "budget='4GiB'" in text and not engines
    assert_same_state(ours, theirs)


def test_a_generator_is_not_used_up_by_a_fallback():
    x, y = line_data()

    def batches():
        for i in range(4):
            yield x[i * 10 : (i + 1) * 10], y[i * 10 : (i + 1) * 10]

    ours, theirs = unknown_to_plimsoll(), unknown_to_plimsoll()
    theirs.fit(batches(), epochs=1, verbose=0)
    with plimsoll.live():
        ours.fit(batches(), epochs=1, verbose=0)
    assert_same_state(ours, theirs)


def test_without_fallback_it_raises_with_all_reasons():
    x, y = line_data()
    with plimsoll.live(fallback=False), pytest.raises(plimsoll.Unsupported) as caught:
        unknown_to_plimsoll().fit(x, y, verbose=0)
    assert len(caught.value.facts) == 2
    with pytest.raises(NotImplementedError, match="shuffle"):
        plimsoll.fit(unknown_to_plimsoll(), x, y, verbose=0)


def test_what_does_not_fit_never_falls_back():
    x, y = images(64)
    with plimsoll.live(budget="24MiB"), pytest.raises(MemoryError):
        cnn().fit(x, y, **QUIET)


class OwnStep(keras.Sequential):
    def train_step(self, data):
        return super().train_step(data)


@pytest.mark.parametrize(
    "make, reason",
    [
        (lambda: OwnStep([keras.Input((4,)), keras.layers.Dense(1)]), "train_step"),
        (lambda: keras.Sequential([keras.Input((4,)), keras.layers.Lambda(lambda x: keras.ops.cumsum(x, axis=0))]), "batch.*test_live.py"),
    ],
)
def test_code_of_the_user_s_is_found(make, reason):
    model = make()
    model.compile("sgd", "mse")
    with pytest.raises(plimsoll.Unsupported, match=reason):
        plimsoll.plan(model)


def test_an_optimizer_of_the_user_s_and_a_metric_without_data():
    class Mine(keras.optimizers.SGD):
        pass

    model = dense()
    model.compile(Mine(), "mse")
    with pytest.raises(plimsoll.Unsupported, match="Mine"):
        plimsoll.plan(model)

    def near(y_true, y_pred):
        return keras.ops.mean(keras.ops.abs(y_true - y_pred) < 0.1)

    model.compile("sgd", "mse", metrics=[near])
    with pytest.raises(plimsoll.Unsupported, match="near .*traced with data"):
        plimsoll.plan(model)


def test_check_compares_both_and_leaves_the_model_alone():
    x, y = images(96)
    model = cnn()
    model.fit(x, y, epochs=1, **QUIET)
    before = [np.array(v) for v in (*model.weights, *model.optimizer.variables)]
    found = plimsoll.check(model, x, y, batch_size=32)
    assert found.largest_loss_difference < 1e-4 and max(found.weights.values()) < 1e-2
    assert "loss of step 3" in str(found)
    for a, b in zip(before, (*model.weights, *model.optimizer.variables), strict=True):
        np.testing.assert_array_equal(a, b)


def test_check_shows_a_difference():
    x, y = images(96)
    model = cnn()
    honest = _core.Engine.set_weight
    class Wrong(_core.Engine):
        def set_weight(self, name, value):
            honest(self, name, value * 1.5)
    _core.Engine, kept = Wrong, _core.Engine
    try:
        assert plimsoll.check(model, x, y, batch_size=32).largest_loss_difference > 1e-3
    finally:
        _core.Engine = kept


def test_what_tensorflow_was_told_about_a_gpu_s_memory(monkeypatch):
    import tensorflow as tf

    from plimsoll import settings

    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: ["card"])
    monkeypatch.setattr(tf.config.experimental, "get_memory_growth", lambda card: True)
    part = tf.config.LogicalDeviceConfiguration(memory_limit=2048)
    monkeypatch.setattr(tf.config, "get_logical_device_configuration", lambda card: [part])
    assert settings.complete({}) == {"memory_growth": True, "budget": "2048MiB"}
    assert settings.complete({"budget": "1GiB", "memory_growth": False}) == {"memory_growth": False, "budget": "1GiB"}


def test_install_holds_in_every_thread_until_it_is_undone(engines):
    import threading

    x, y = line_data()
    model = dense()
    plimsoll.install(budget="4GiB", fallback=False)
    try:
        thread = threading.Thread(target=lambda: model.fit(x, y, verbose=0))
        thread.start()
        thread.join()
    finally:
        plimsoll.uninstall()
    assert len(engines) == 1 and engines[0][2]["budget"] == "4GiB"
    model.fit(x, y, verbose=0)
    assert len(engines) == 1
