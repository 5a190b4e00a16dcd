"""Keras's callbacks see, save and restore what they would under Keras's own fit."""

import csv
import re

import keras
import numpy as np
import pytest
from models import assert_same_history, assert_same_state, cnn, images, values

import plimsoll

C = keras.callbacks
QUIET = {"verbose": 0, "shuffle": False, "batch_size": 32}


def both(make_callbacks, epochs=3, tmp_path=None, **named):
    x, y = images(96)
    made = []
    for trainer in (lambda m, **k: m.fit(x, y, **k), lambda m, **k: plimsoll.fit(m, x, y, **k)):
        model = cnn()
        callbacks = make_callbacks("keras" if not made else "plimsoll")
        history = trainer(model, epochs=epochs, callbacks=callbacks, **QUIET, **named)
        made.append((model, callbacks, history))
    (theirs, _, expected), (ours, _, found) = made
    assert_same_history(found, expected)
    assert_same_state(ours, theirs)
    return made


class Watches(C.Callback):
    """Notes every call with its logs, and the weights if it is told to."""

    def __init__(self, weights=False):
        super().__init__()
        self.calls, self.weights, self.reads = [], [], weights

    def on_train_batch_end(self, batch, logs=None):
        self.calls.append(("batch", batch, dict(logs)))
        if self.reads:
            self.weights.append([np.array(w) for w in self.model.get_weights()])

    def on_epoch_end(self, epoch, logs=None):
        self.calls.append(("epoch", epoch, dict(logs)))

    def on_test_begin(self, logs=None):
        self.calls.append(("test", 0, {}))


def test_calls_and_their_logs_are_the_same():
    x, y = images(40)
    made = both(lambda _: [Watches()], validation_data=(x, y))
    theirs, ours = made[0][1][0].calls, made[1][1][0].calls
    assert [(kind, at, list(logs)) for kind, at, logs in ours] == [(kind, at, sorted(logs)) for kind, at, logs in theirs]
    for (_, _, a), (_, _, b) in zip(ours, theirs, strict=True):
        np.testing.assert_allclose([a[k] for k in sorted(b)], [b[k] for k in sorted(b)], rtol=2e-4)


def test_weights_read_in_a_batch_are_those_of_this_batch():
    made = both(lambda _: [Watches(weights=True)])
    theirs, ours = made[0][1][0].weights, made[1][1][0].weights
    assert len(ours) == len(theirs) == 9
    for a, b in zip(ours, theirs, strict=True):
        for one, other in zip(a, b, strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)


class Clips(C.Callback):
    def on_train_batch_end(self, batch, logs=None):
        for variable in self.model.trainable_variables:
            variable.assign(keras.ops.clip(variable, -0.1, 0.1))


class ReadsVariables(C.Callback):
    """Through every door that a script uses."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_epoch_end(self, epoch, logs=None):
        kernel = self.model.layers[0].kernel
        self.seen.append([np.array(kernel).sum(), kernel.numpy().sum(), float(keras.ops.sum(kernel)), self.model.layers[0].get_weights()[0].sum(),
                          int(self.model.optimizer.iterations)])


class ComputesWithTheModel(C.Callback):
    def __init__(self, x, y):
        super().__init__()
        self.x, self.y, self.seen = x, y, []

    def on_epoch_end(self, epoch, logs=None):
        import tensorflow as tf

        graph = tf.function(lambda x: self.model(x, training=False))
        self.seen.append([np.array(self.model(self.x)).sum(), np.array(graph(self.x)).std(), self.model.predict(self.x, verbose=0).std(),
                          self.model.evaluate(self.x, self.y, verbose=0)[0]])


class SetsRate(C.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        self.model.optimizer.learning_rate = 1e-3 * (batch + 1)


def test_assignments_reach_the_next_step():
    both(lambda _: [Clips()])


def test_the_learning_rate_of_each_batch():
    both(lambda _: [SetsRate()])
    both(lambda _: [C.LearningRateScheduler(lambda epoch, rate: rate * 0.5)])
    both(lambda _: [C.ReduceLROnPlateau(monitor="loss", patience=0, min_delta=10, factor=0.5)])


def test_values_are_the_same_through_every_door():
    x, y = images(20)
    for make in (lambda _: [ReadsVariables()], lambda _: [ComputesWithTheModel(x, y)]):
        made = both(make)
        np.testing.assert_allclose(made[1][1][0].seen, made[0][1][0].seen, rtol=1e-3, atol=1e-4)


def test_early_stopping_restores_the_best_weights():
    made = both(lambda _: [C.EarlyStopping(monitor="accuracy", mode="min", patience=1, restore_best_weights=True)], epochs=5)
    assert len(made[0][2].epoch) < 5


@pytest.mark.parametrize("named", [{}, {"save_freq": 2}, {"save_best_only": True, "monitor": "loss"}])
def test_model_checkpoints_load_and_continue(tmp_path, named):
    made = both(lambda who: [C.ModelCheckpoint(tmp_path / (who + "{epoch}.keras"), **named)])
    files = sorted(p.name for p in tmp_path.iterdir())
    assert [f.removeprefix("keras") for f in files if f.startswith("keras")] == [f.removeprefix("plimsoll") for f in files if f.startswith("p")]
    for name in (f for f in files if f.startswith("plimsoll")):
        ours, theirs = (keras.models.load_model(tmp_path / n) for n in (name, name.replace("plimsoll", "keras")))
        assert_same_state(ours, theirs)
    assert made[1][0].optimizer.iterations == 9


def test_weights_alone_and_csv(tmp_path):
    both(lambda who: [C.ModelCheckpoint(tmp_path / f"{who}.weights.h5", save_weights_only=True), C.CSVLogger(tmp_path / f"{who}.csv")])
    rows = [list(csv.reader(open(tmp_path / f"{who}.csv"))) for who in ("plimsoll", "keras")]
    assert rows[0][0] == rows[1][0] and len(rows[0]) == len(rows[1]) == 4
    models = [cnn() for _ in range(2)]
    for model, who in zip(models, ("plimsoll", "keras"), strict=True):
        model.load_weights(tmp_path / f"{who}.weights.h5")
    for a, b in zip(*(m.get_weights() for m in models), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


def test_backup_and_restore_continues(tmp_path):
    class Breaks(C.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 2:
                raise RuntimeError("the power fails")

    x, y = images(96)
    model = cnn()
    with pytest.raises(RuntimeError, match="power"):
        plimsoll.fit(model, x, y, epochs=4, callbacks=[C.BackupAndRestore(tmp_path), Breaks()], **QUIET)
    again = cnn()
    found = plimsoll.fit(again, x, y, epochs=4, callbacks=[C.BackupAndRestore(tmp_path)], **QUIET)
    whole = cnn()
    whole.fit(x, y, epochs=4, **QUIET)
    assert found.epoch == [2, 3]
    assert_same_state(again, whole)


def test_training_stops_at_nan_as_keras_does():
    x, y = images(96)
    for trainer in (lambda m, **k: m.fit(x, y, **k), lambda m, **k: plimsoll.fit(m, x, y, **k)):
        model = cnn(keras.optimizers.SGD(1e38))
        history = trainer(model, epochs=3, callbacks=[C.TerminateOnNaN()], **QUIET)
        assert len(history.epoch) == 1 and not np.isfinite(history.history["loss"][0])


def test_an_interrupt_keeps_the_state():
    class Interrupts(C.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 1:
                raise KeyboardInterrupt

    x, y = images(96)
    model, wanted = cnn(), cnn()
    with pytest.raises(KeyboardInterrupt):
        plimsoll.fit(model, x, y, epochs=2, callbacks=[Interrupts()], **QUIET)
    wanted.fit(x[:64], y[:64], epochs=1, **QUIET)
    assert_same_state(model, wanted)
    plimsoll.fit(model, x, y, epochs=1, **QUIET)  # a cell that is run again


def test_weights_are_copied_only_for_callbacks_that_look():
    from plimsoll import link

    pulls = []
    original = link.Link.__exit__

    def noted(self, *exception):
        pulls.append(self.pulls)
        return original(self, *exception)

    x, y = images(96)
    link.Link.__exit__ = noted
    try:
        plimsoll.fit(cnn(), x, y, epochs=3, callbacks=[Watches(), C.LambdaCallback(on_epoch_end=lambda e, l: None)], **QUIET)
    finally:
        link.Link.__exit__ = original
    model = cnn()
    model.optimizer.build(model.trainable_variables)
    assert pulls == [len(values(model)) - 1]  # once, at the end, and never the learning rate


def test_the_progress_bar_is_keras_s(capsys):
    x, y = images(96)
    cnn().fit(x, y, epochs=2, batch_size=32, shuffle=False, verbose=2)
    theirs = capsys.readouterr().out
    plimsoll.fit(cnn(), x, y, epochs=2, batch_size=32, shuffle=False, verbose=2)
    ours = capsys.readouterr().out
    plain = [re.sub(r"\d+(us|ms|s)(/step)?", "TIME", text) for text in (ours, theirs)]
    assert [line.split(" ")[0] for line in plain[0].splitlines()] == [line.split(" ")[0] for line in plain[1].splitlines()]
    assert plain[0].count("accuracy: ") == plain[1].count("accuracy: ") == 2


@pytest.mark.parametrize("on_epoch", [True, False])
def test_weights_that_are_swapped_for_their_averages(on_epoch):
    x, y = images(64)
    histories = []
    for fit in (lambda model, *data, **named: model.fit(*data, **named), plimsoll.fit):
        model = cnn(keras.optimizers.Adam(1e-2, epsilon=1e-2, use_ema=True, ema_momentum=0.5))
        callbacks = [keras.callbacks.SwapEMAWeights(swap_on_epoch=on_epoch)]
        history = fit(model, x, y, batch_size=16, epochs=3, verbose=0, shuffle=False, validation_split=0.25, callbacks=callbacks)
        histories.append((history.history, [np.array(w) for w in model.weights]))
    (theirs, expected), (ours, found) = histories
    for name in theirs:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=2e-4, atol=1e-4, err_msg=name)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=1e-4)
