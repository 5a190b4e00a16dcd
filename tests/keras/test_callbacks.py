"""--early-stopping, --reduce-lr-on-plateau, --save-best and --csv-log do what Keras's callbacks of these names do."""

import csv
import json
import math

import keras
import numpy as np
import pytest

import keras_side
import program
import runs

BATCH, N = 8, 48


def number(value):
    return float(value)  # "nan" and "inf" are strings


def decisions(row):
    """The decisions of Keras's own callbacks for the values of a row."""
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mse", metrics=["mae", "accuracy"])
    model.evaluate(np.zeros((2, 2)), np.zeros((2, 1)), verbose=0)
    metric, patience = row["metric"], row["patience"]
    stopping = keras.callbacks.EarlyStopping(metric, patience=patience, restore_best_weights=True)
    plateau = keras.callbacks.ReduceLROnPlateau(metric, patience=patience, factor=row["factor"])
    saving = keras.callbacks.ModelCheckpoint("best.keras", monitor=metric, save_best_only=True)
    for callback in (stopping, plateau, saving):
        callback.set_model(model)
        callback.on_train_begin()
    saving._set_monitor_op()
    stopped, saved, rates = -1, [], []
    for epoch, value in enumerate(map(number, row["values"])):
        logs = {metric: value}
        if stopped < 0:
            stopping.on_epoch_end(epoch, dict(logs))
            stopped = epoch if model.stop_training else -1
        if saving._should_save_model(epoch, None, logs, "best.keras"):
            saved.append(epoch)
        plateau.on_epoch_end(epoch, dict(logs))
        rates.append(float(model.optimizer.learning_rate.numpy()))
    return dict(stopped=stopped, best_epoch=stopping.best_epoch, saved=saved, rates=rates)


def test_the_table_is_what_keras_does():
    """tests/execute/callbacks_test.cpp compares our decisions with this table."""
    table = json.loads((program.ROOT / "tests" / "golden" / "callbacks.json").read_text())
    for row in table[::9]:  # not all rows, because building a new model for each takes most of the time
        assert decisions(row) == {key: row[key] for key in ("stopped", "best_epoch", "saved", "rates")}, row


def network():
    keras.utils.set_random_seed(3)
    L = keras.layers
    model = keras.Sequential(
        [keras.Input((8, 8, 1)), L.Flatten(), L.Dense(16, activation="relu"), L.Dense(4, activation="softmax")]
    )
    model.compile(keras.optimizers.Adam(0.02), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


@pytest.fixture
def job(tmp_path):
    model, rng = network(), np.random.default_rng(8)
    model.save(tmp_path / "model.keras")
    draw = lambda n: (rng.standard_normal((n, 8, 8, 1)).astype(np.float32), rng.integers(0, 4, n))
    (x, y), (vx, vy) = draw(N), draw(21)
    files = dict(
        data=program.arrays(tmp_path, x=x, y=y), validation_data=program.arrays(tmp_path, prefix="v", x=vx, y=vy)
    )
    theirs = dict(x=x, y=y, validation_data=(vx, vy), batch_size=BATCH, shuffle=False, verbose=0)
    return tmp_path, model, files, theirs


def train(folder, files, *flags, name="out", **named):
    return program.fit(
        folder, folder / "model.keras", files["data"], *flags, name=name, batch_size=BATCH,
        validation_data=files["validation_data"], **named,
    )  # fmt: skip


def rows(path):
    with open(path, newline="") as file:
        return list(csv.reader(file))


def assert_same_rows(got, want):
    assert got[0] == want[0]
    assert len(got) == len(want)
    for a, b in zip(got[1:], want[1:]):
        assert a[0] == b[0]
        for x, y in zip(a[1:], b[1:]):
            assert (x == y == "NA") or math.isclose(float(x), float(y), rel_tol=2e-4, abs_tol=1e-6), (a, b)


@pytest.mark.parametrize("epochs", (40, 3))
def test_restore_best(job, epochs):
    """Restores at the end of training, stopped early or not, as Keras 3.15 does."""
    folder, model, files, theirs = job
    trained = train(folder, files, epochs=epochs, early_stopping="val_loss:3:restore-best")
    stopping = keras.callbacks.EarlyStopping("val_loss", patience=3, restore_best_weights=True)
    history = model.fit(epochs=epochs, callbacks=[stopping], **theirs).history
    assert (len(history["loss"]) < epochs) == (epochs == 40)
    assert len(trained.of("epoch")) == len(history["loss"])
    runs.check_weights("restored", keras_side.values(keras_side.load(trained.saved)), keras_side.values(model), model.weights)
    assert f"restored the weights of epoch {stopping.best_epoch + 1}" in trained.ended.stderr
    assert not [p for p in folder.iterdir() if ".part" in p.name]


def test_restored_weights_survive_a_resume(job):
    folder, _, files, _ = job
    flags = dict(early_stopping="val_accuracy:4:restore-best", save_best=folder / "best.keras", learning_rate=0.01)
    whole = train(folder, files, name="whole", epochs=40, **flags)
    stopped = len(whole.of("epoch"))
    assert 5 < stopped < 40, stopped
    (folder / "best.keras").rename(folder / "best_whole.keras")
    for epochs in (1, 3, stopped - 1, 40, 40):  # the last one only has to restore the weights
        flags["resume"] = True
        saved, log = folder / "out.keras", folder / "out.jsonl"
        program.run(
            "fit", folder / "model.keras", "--data", files["data"], "--validation-data", files["validation_data"],
            "--save", saved, "--log", log, "--checkpoint", folder / "run",
            *program.options(batch_size=BATCH, shuffle="false", threads=2, epochs=epochs, **flags),
        )  # fmt: skip
    assert saved.read_bytes() == whole.saved.read_bytes()
    assert (folder / "best.keras").read_bytes() == (folder / "best_whole.keras").read_bytes()


@pytest.mark.parametrize("flag, metric", (("{}", "val_loss"), ("{}:val_accuracy", "val_accuracy")))
def test_save_best(job, flag, metric):
    folder, model, files, theirs = job
    train(folder, files, epochs=12, save_best=flag.format(folder / "best.keras"))
    saving = keras.callbacks.ModelCheckpoint(folder / "keras_best.keras", monitor=metric, save_best_only=True)
    model.fit(epochs=12, callbacks=[saving], **theirs)
    ours, best = (keras_side.load(folder / name) for name in ("best.keras", "keras_best.keras"))
    assert int(ours.optimizer.iterations.numpy()) == int(best.optimizer.iterations.numpy()) < 12 * N // BATCH
    runs.check_weights("best", keras_side.values(ours), keras_side.values(best), best.weights)


def test_reduce_lr_on_plateau_and_csv_log(job):
    folder, model, files, theirs = job
    trained = train(folder, files, epochs=14, reduce_lr_on_plateau="val_loss:2:0.3", csv_log=folder / "ours.csv")
    callbacks = [
        keras.callbacks.ReduceLROnPlateau("val_loss", patience=2, factor=0.3),
        keras.callbacks.CSVLogger(folder / "theirs.csv"),
    ]
    history = model.fit(epochs=14, callbacks=callbacks, **theirs).history
    assert len(set(history["learning_rate"])) > 2, "the case must reduce the rate"
    assert_same_rows(rows(folder / "ours.csv"), rows(folder / "theirs.csv"))
    assert float(keras_side.load(trained.saved).optimizer.learning_rate.numpy()) == float(
        model.optimizer.learning_rate.numpy()
    )


def test_csv_log_without_validation(job):
    folder, model, files, theirs = job
    program.fit(folder, folder / "model.keras", files["data"], batch_size=BATCH, epochs=2, csv_log=folder / "ours.csv")
    del theirs["validation_data"]
    model.fit(epochs=2, callbacks=[keras.callbacks.CSVLogger(folder / "theirs.csv")], **theirs)
    ours, keras_text = ((folder / name).read_bytes() for name in ("ours.csv", "theirs.csv"))
    assert_same_rows(rows(folder / "ours.csv"), rows(folder / "theirs.csv"))
    assert ours.splitlines()[0] == keras_text.splitlines()[0] and ours.count(b"\r\n") == keras_text.count(b"\r\n")


def test_csv_log_of_a_resumed_run(job):
    """A line that a killed run wrote before its next checkpoint does not appear twice."""
    folder, _, files, _ = job
    train(folder, files, name="whole", epochs=4, csv_log=folder / "whole.csv")
    flags = dict(csv_log=folder / "resumed.csv", checkpoint=folder / "run", resume=True)
    train(folder, files, epochs=2, **flags)
    with open(folder / "resumed.csv", "ab") as file:
        file.write(b"2,0.5,0.5,0.5,0.5\r\n3,0.")
    train(folder, files, epochs=4, **flags)
    assert (folder / "resumed.csv").read_bytes() == (folder / "whole.csv").read_bytes()


def test_a_schedule_and_a_plateau_exclude_each_other(job):
    folder, model, files, _ = job
    rate = keras.optimizers.schedules.ExponentialDecay(0.01, 10, 0.9)
    model.compile(keras.optimizers.Adam(rate), "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.save(folder / "model.keras")
    flags = ("fit", folder / "model.keras", "--data", files["data"], "--reduce-lr-on-plateau", "loss:1:0.5")
    ended = program.run(*flags, expect=2)
    assert "error P201: --reduce-lr-on-plateau cannot be combined" in ended.stderr and "--learning-rate" in ended.stderr
    program.run(*flags, "--learning-rate", 0.001)


def test_a_rate_on_resuming_replaces_a_schedule(job):
    folder, model, files, _ = job
    rate = keras.optimizers.schedules.ExponentialDecay(0.01, 10, 0.9)
    model.compile(keras.optimizers.Adam(rate), "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.save(folder / "model.keras")
    run = ("fit", folder / "model.keras", "--data", files["data"], "--batch-size", BATCH, "--checkpoint", folder / "run")
    program.run(*run, "--epochs", 1)
    program.run(*run, "--epochs", 2, "--resume", "--learning-rate", 0.001, "--save", folder / "s.keras")
    assert float(keras_side.load(folder / "s.keras").optimizer.learning_rate.numpy()) == np.float32(0.001)
    ended = program.run(*run, "--epochs", 3, "--resume", expect=2)  # the file has the schedule, the checkpoint has none
    assert "error P212" in ended.stderr and "learning-rate schedule: none in the checkpoint" in ended.stderr, ended.stderr
