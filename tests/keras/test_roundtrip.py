"""Training that moves between Plimsoll and Keras: five steps in each, in either order, equal ten steps in Keras.

`load_model` only warns if optimizer variables are missing, and restarts at iteration 0; so the tests assert iteration and moments.
Two orders of float32 additions differ by at most RUN_WEIGHT; values that are only read and written must be bitwise equal.
"""

import json
import os
import subprocess
import zipfile

import keras
import numpy as np
import pytest

import compare
import keras_side
import models
import program
import runs

HALF, BATCH = 5, 8
OLDEST = program.ROOT / ".venv" / "oldest" / "bin" / "python"
OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.05),
    "momentum": lambda: keras.optimizers.SGD(0.05, momentum=0.9),
    "adam": lambda: keras.optimizers.Adam(0.005),
    "schedule": lambda: keras.optimizers.AdamW(
        keras.optimizers.schedules.ExponentialDecay(0.01, 3, 0.7), weight_decay=0.01
    ),
}


def network():
    L = keras.layers
    x = i = keras.Input((10, 10, 3))
    x = L.ReLU()(L.BatchNormalization()(L.Conv2D(6, 3, use_bias=False)(x)))
    inner = keras.Sequential([keras.Input((96,)), L.Dense(8, activation="relu"), L.Dropout(0.0)], name="inner")
    return keras.Model(i, L.Dense(4, activation="softmax")(inner(L.Flatten()(L.MaxPooling2D()(x)))), name="roundtrip")


def start(rng, optimizer):
    model = keras_side.randomize(network())
    model.compile(OPTIMIZERS[optimizer](), "sparse_categorical_crossentropy", metrics=["accuracy"])
    x, y = models.labelled(rng, 2 * HALF * BATCH, (10, 10, 3), 4)
    return model, x, y


def all_the_way(model, x, y, folder):
    """Ten steps in Keras on a saved and loaded copy, so that `model` does not change."""
    model.save(folder / "start.keras")
    oracle = keras_side.load(folder / "start.keras")
    keras_side.train(oracle, x, y, BATCH)
    return oracle


def check_same(where, got, want):
    runs.check_weights(where, keras_side.values(got), keras_side.values(want), want.weights)
    runs.check_state(where, keras_side.state(got), keras_side.state(want))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_here_then_keras(optimizer, tmp_path, rng):
    model, x, y = start(rng, optimizer)
    oracle = all_the_way(model, x, y, tmp_path)
    half = HALF * BATCH
    trained = program.fit(
        tmp_path,
        tmp_path / "start.keras",
        runs.data_of(tmp_path, x[:half], y[:half]),
        batch_size=BATCH,
        epochs=1,
        steps=HALF,
    )
    loaded = keras_side.load(trained.saved)
    keras_side.train(model, x[:half], y[:half], BATCH)
    assert int(loaded.optimizer.iterations.numpy()) == HALF
    check_same(f"{optimizer}: five here", loaded, model)
    keras_side.train(loaded, x[half:], y[half:], BATCH)
    check_same(f"{optimizer}: five here, five in Keras", loaded, oracle)
    assert int(loaded.optimizer.iterations.numpy()) == 2 * HALF


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_keras_then_here(optimizer, tmp_path, rng):
    model, x, y = start(rng, optimizer)
    oracle = all_the_way(model, x, y, tmp_path)
    half = HALF * BATCH
    keras_side.train(model, x[:half], y[:half], BATCH)
    model.save(tmp_path / "half.keras")
    trained = program.fit(
        tmp_path,
        tmp_path / "half.keras",
        runs.data_of(tmp_path, x[half:], y[half:]),
        batch_size=BATCH,
        epochs=1,
        steps=HALF,
    )
    loaded = keras_side.load(trained.saved)
    check_same(f"{optimizer}: five in Keras, five here", loaded, oracle)


def test_scores_are_equal_on_both_sides(tmp_path, rng):
    model, x, y = start(rng, "adam")
    model.save(tmp_path / "start.keras")
    data = runs.data_of(tmp_path, x, y)
    trained = program.fit(tmp_path, tmp_path / "start.keras", data, batch_size=BATCH, epochs=2)
    loaded = keras_side.load(trained.saved)
    want = loaded.evaluate(x, y, batch_size=32, verbose=0, return_dict=True)
    got = program.evaluate(trained.saved, data, batch_size=32)
    compare.close("evaluate loss", "round trip", got["loss"], want["loss"], compare.LOSS)
    compare.close("metric", "round trip", got["metrics"]["accuracy"], want["accuracy"], compare.LOSS)
    predictions = program.predict(tmp_path, trained.saved, program.arrays(tmp_path, prefix="only_", x=x), batch_size=32)
    compare.close("output", "round trip", predictions, loaded.predict(x, batch_size=32, verbose=0), compare.OUTPUT)


def test_config_is_written_back_as_it_was_read(tmp_path, rng):
    """config.json does not change at all, so that older and newer versions of Keras find what they wrote."""
    model, x, y = start(rng, "adam")
    model.save(tmp_path / "start.keras")
    trained = program.fit(tmp_path, tmp_path / "start.keras", runs.data_of(tmp_path, x, y), batch_size=BATCH, epochs=1)
    with zipfile.ZipFile(tmp_path / "start.keras") as a, zipfile.ZipFile(trained.saved) as b:
        assert json.loads(a.read("config.json")) == json.loads(b.read("config.json"))
        assert set(a.namelist()) == set(b.namelist())
        assert (
            json.loads(a.read("metadata.json"))["keras_version"] == json.loads(b.read("metadata.json"))["keras_version"]
        )
        assert b.testzip() is None


def oldest(*arguments):
    if not OLDEST.exists():
        pytest.skip("no environment of the oldest Keras: run scripts/venv.sh oldest")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("KERAS_", "TF_"))}
    p = subprocess.run(
        [OLDEST, program.ROOT / "tests" / "keras" / "oldest.py", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert p.returncode == 0, p.stderr[-3000:]


def arrays(path):
    with np.load(path) as f:
        return {k: f[k] for k in f}


def train_on(folder, steps):
    """Continues training from the file of Keras 3.0.0; returns the saved file."""
    x, y = np.load(folder / "x.npy"), np.load(folder / "y.npy")
    piece = slice(HALF * BATCH, (HALF + steps) * BATCH)
    data = runs.data_of(folder, x[piece], y[piece])
    return program.fit(folder, folder / "start.keras", data, batch_size=BATCH, epochs=1, steps=steps).saved


def test_file_of_the_oldest_keras(tmp_path):
    """Five steps from a file of Keras 3.0.0 equal five steps of the newest Keras from the same file."""
    oldest("make", tmp_path)
    saved = train_on(tmp_path, HALF)
    x, y = np.load(tmp_path / "x.npy"), np.load(tmp_path / "y.npy")
    oracle = keras_side.load(tmp_path / "start.keras")
    assert int(oracle.optimizer.iterations.numpy()) == HALF
    keras_side.train(oracle, x[HALF * BATCH :], y[HALF * BATCH :], BATCH)
    check_same("file of 3.0.0", keras_side.load(saved), oracle)


def test_oldest_keras_loads_it_again(tmp_path):
    """Every weight, the iteration and the moments arrive bitwise in Keras 3.0.0, and it predicts the same."""
    oldest("make", tmp_path)
    saved = train_on(tmp_path, HALF)
    oldest("continue", saved, 2 * HALF, tmp_path)
    got, newest = arrays(tmp_path / "loaded.npz"), keras_side.load(saved)
    want = {f"w{k}": v for k, v in enumerate(keras_side.values(newest))}
    want.update({f"o{k}": v for k, v in enumerate(keras_side.state(newest).values())})
    assert list(got) == list(want)
    assert int(got["o0"]) == 2 * HALF
    for name in want:
        assert np.array_equal(got[name], want[name]), name
    oldest("predict", saved, tmp_path)
    x = np.load(tmp_path / "x.npy")
    here = program.predict(tmp_path, saved, program.arrays(tmp_path, prefix="only_", x=x), batch_size=32)
    compare.close("output", "oldest", here, np.load(tmp_path / "predictions.npy"), compare.OUTPUT)


def test_oldest_keras_trains_on(tmp_path):
    """Two steps here and three more in Keras 3.0.0 equal ten steps there. The bound is OLDEST, because JAX and TensorFlow differ that much."""
    oldest("make", tmp_path)
    oldest("continue", train_on(tmp_path, 2), HALF + 2, tmp_path)
    loaded, got, want = (arrays(tmp_path / f"{n}.npz") for n in ("loaded", "resumed", "all"))
    assert int(loaded["o0"]) == HALF + 2 and int(got["o0"]) == 2 * HALF
    for name in (n for n in want if n.startswith("w")):
        compare.close("oldest", name, got[name], want[name], compare.OLDEST)
