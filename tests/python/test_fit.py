"""plimsoll.fit of a live model does what model.fit does."""

import keras
import numpy as np
import pytest
from models import assert_same_history, assert_same_state, cnn, dense, images, two_ends, two_ends_data

import plimsoll

QUIET = {"verbose": 0, "shuffle": False}


def both(make, *arguments, **named):
    theirs, ours = make(), make()
    expected = theirs.fit(*arguments, **named, **QUIET)
    found = plimsoll.fit(ours, *arguments, **named, **QUIET, budget="4GiB")
    assert_same_history(found, expected)
    assert_same_state(ours, theirs)
    assert ours.history is found
    return ours, theirs, found


@pytest.mark.parametrize("optimizer", ["sgd", "rmsprop", keras.optimizers.AdamW(epsilon=1e-2), "lion", keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True)])
def test_history_weights_and_optimizer_state_are_keras_s(optimizer):
    config = keras.optimizers.serialize(keras.optimizers.get(optimizer))
    both(lambda: cnn(keras.optimizers.deserialize(config)), *images(100), batch_size=32, epochs=2)


def test_training_can_go_on_in_keras_and_back():
    x, y = images(96)
    theirs, ours = cnn(), cnn()
    theirs.fit(x, y, batch_size=32, epochs=3, **QUIET)
    plimsoll.fit(ours, x, y, batch_size=32, epochs=1, **QUIET)
    ours.fit(x, y, batch_size=32, epochs=1, **QUIET)
    plimsoll.fit(ours, x, y, batch_size=32, epochs=1, **QUIET)
    assert_same_state(ours, theirs)


def test_validation_with_evaluate_and_predict():
    x, y = images(150)
    ours, theirs, found = both(cnn, x, y, batch_size=32, epochs=2, validation_split=0.2)
    assert "val_accuracy" in found.history
    np.testing.assert_allclose(plimsoll.evaluate(ours, x, y, verbose=0), theirs.evaluate(x, y, verbose=0), rtol=2e-4)
    np.testing.assert_allclose(plimsoll.predict(ours, x, verbose=0), theirs.predict(x, verbose=0), rtol=2e-3, atol=2e-4)
    logs = plimsoll.evaluate(ours, x, y, verbose=0, return_dict=True)
    assert list(logs) == list(theirs.evaluate(x, y, verbose=0, return_dict=True))


def test_several_inputs_and_outputs_by_name():
    x, y = two_ends_data()
    ours, theirs, _ = both(two_ends, x, y, batch_size=16, epochs=2, validation_data=(x, y), validation_batch_size=20)
    found, expected = plimsoll.predict(ours, x, verbose=0), theirs.predict(x, verbose=0)
    assert found.keys() == expected.keys()
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=2e-3, atol=2e-4)


def test_class_weight_and_sample_weight():
    x, y = images(70)
    both(cnn, x, y, batch_size=32, epochs=2, class_weight={i: 1 + i / 4 for i in range(10)})
    weights = np.linspace(0.1, 2, 70, dtype="float32")
    both(cnn, x, y, batch_size=32, epochs=2, sample_weight=weights, validation_data=(x[:20], y[:20], weights[:20]))


def test_initial_epoch_steps_per_epoch_and_validation_freq():
    x, y = images(100)
    both(cnn, x, y, batch_size=20, epochs=4, initial_epoch=2, steps_per_epoch=3, validation_data=(x, y), validation_steps=2, validation_freq=2)


@pytest.mark.parametrize("dtype", ["float64", "uint8", "float16", ">f4"])
def test_other_dtypes(dtype):
    rng = np.random.default_rng(1)
    x = rng.integers(0, 5, (40, 4)).astype(dtype)
    both(dense, x, rng.random((40, 1)).astype(dtype), batch_size=16, epochs=2)


def test_a_shuffled_epoch_sees_every_sample_once():
    x = np.arange(50, dtype="float32").reshape(50, 1)
    seen = []
    model = dense(inputs=1)
    from plimsoll import feed

    for _, _, rows, _, _ in feed.Feed(x, x, None, 8, shuffle=True).batches():
        seen += rows.ravel().tolist()
    assert sorted(seen) == list(range(50)) and seen != list(range(50))
    assert len(plimsoll.fit(model, x, x, batch_size=8, epochs=2, verbose=0).history["loss"]) == 2


def test_schedules_of_keras_and_of_the_user():
    x, y = images(96)

    class Steps(keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step):
            return 0.01 / (1 + float(step))

        def get_config(self):
            return {}

    both(lambda: cnn(keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(1e-2, 6), epsilon=1e-2)), x, y, batch_size=32, epochs=2)
    ours = cnn(keras.optimizers.SGD(Steps()))
    theirs = cnn(keras.optimizers.SGD(0.01))
    theirs.fit(x, y, batch_size=32, epochs=2, callbacks=[SetRate(Steps())], **QUIET)
    plimsoll.fit(ours, x, y, batch_size=32, epochs=2, **QUIET)
    for a, b in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


class SetRate(keras.callbacks.Callback):
    def __init__(self, schedule):
        super().__init__()
        self.schedule = schedule

    def on_train_batch_begin(self, batch, logs=None):
        self.model.optimizer.learning_rate = self.schedule(int(self.model.optimizer.iterations))


def test_a_float64_array_costs_no_second_array():
    x = np.zeros((40_000, 512))  # 156 MiB
    x[:] = np.random.default_rng(0).random(512)
    from plimsoll import memory

    model = dense(inputs=512)
    plimsoll.fit(model, x[:64], x[:64, :1], batch_size=32, verbose=0)
    assert memory.reset_peak()
    before = memory.resident_bytes()
    plimsoll.fit(model, x, x[:, :1].copy(), batch_size=1000, verbose=0, steps_per_epoch=3)
    assert memory.peak_bytes() - before < x.nbytes / 2


def test_fifty_fits_leave_no_memory_behind():
    from plimsoll import memory

    x, y = np.random.rand(64, 4), np.random.rand(64, 1)
    model = dense()
    for _ in range(10):
        plimsoll.fit(model, x, y, batch_size=32, **QUIET)
    before = memory.resident_bytes()
    for _ in range(50):
        plimsoll.fit(model, x, y, batch_size=32, **QUIET)
    assert memory.resident_bytes() - before < 8 * memory.MIB


def test_the_plan_is_kept_and_names_what_was_held():
    x, y = images(64)
    plan = plimsoll.fit(cnn(), x, y, batch_size=32, **QUIET, budget="3GiB").plan
    assert plan.fits and plan.budget_bytes == 3 << 30
    assert "held by the script when fit was called" in str(plan)


def test_what_does_not_fit_is_a_memory_error_and_nothing_is_trained():
    import tensorflow as tf

    x, y = images(64)
    model = cnn()
    before = model.get_weights()
    with pytest.raises(plimsoll.DoesNotFit) as caught:
        plimsoll.fit(model, x, y, batch_size=32, budget="24MiB")
    error = caught.value
    assert isinstance(error, MemoryError) and isinstance(error, tf.errors.ResourceExhaustedError)
    assert error.code == "P301" and "24" in error.what and error.facts
    assert "--" not in str(error) and "options." not in str(error), str(error)
    for a, b in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(a, b)


def test_mistakes_are_named():
    x, y = images(40)
    with pytest.raises(ValueError, match="compile"):
        plimsoll.fit(keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)]), x, y)
    with pytest.raises(TypeError, match="unexpected argument 'buget'"):
        plimsoll.fit(cnn(), x, y, buget="2GiB")
    with pytest.raises(plimsoll.UsageError, match="budget"):
        plimsoll.fit(cnn(), x, y, budget="much", verbose=0)
    with pytest.raises(plimsoll.DataError):
        plimsoll.fit(cnn(), x[:, :8], y, verbose=0)
    with pytest.raises(plimsoll.DataError):
        plimsoll.fit(cnn(), x, y + 10, verbose=0)


def test_plan_prints_the_table_and_is_data():
    plan = plimsoll.plan(cnn(), batch_size=64, device="cpu", budget="4GiB")
    assert plan.fits and plan["arena_bytes"] == plan.arena_bytes > 0
    assert "Fits:" in str(plan) and "arena" in str(plan) and "<pre" in plan._repr_html_()
    small = plimsoll.plan(cnn(), batch_size=64, budget="1MiB")
    assert not small.fits and small.remedies
