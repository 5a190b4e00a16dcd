"""Tests `fit` beyond single steps: epochs and their metrics, validation, data formats, initial weights, shuffling."""

import json
import struct

import keras
import numpy as np
import pytest

import compare
import keras_side
import models
import program
import runs

L = keras.layers
N, BATCH = 44, 8  # the last batch of an epoch has four samples


def network(scale=1.0):
    model = keras_side.randomize(
        keras.Sequential(
            [
                keras.Input((8, 8, 1)),
                L.Rescaling(scale),
                L.Conv2D(4, 3, activation="relu"),
                L.Flatten(),
                L.Dense(4, activation="softmax"),
            ]
        )
    )
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def pictures(rng, n=N):
    return rng.integers(0, 256, (n, 8, 8, 1)).astype(np.uint8), rng.integers(0, 4, n).astype(np.uint8)


def check_epochs(trained, history):
    epochs = trained.of("epoch")
    assert len(epochs) == len(history["loss"])
    for k, epoch in enumerate(epochs):
        assert set(epoch["metrics"]) == set(history), (set(epoch["metrics"]), set(history))
        for name, values in history.items():
            compare.close("epoch metric", f"epoch {k + 1}: {name}", epoch["metrics"][name], values[k], compare.RUN_LOSS)


@pytest.mark.parametrize("flags", ("none", "data", "split"))
def test_epoch_metrics_are_those_of_keras_fit(flags, tmp_path, rng):
    model = network()
    model.save(tmp_path / "model.keras")
    x, y = rng.standard_normal((N, 8, 8, 1)).astype(np.float32), rng.integers(0, 4, N)
    vx, vy = rng.standard_normal((21, 8, 8, 1)).astype(np.float32), rng.integers(0, 4, 21)
    named = {
        "none": {},
        "data": dict(validation_data=program.arrays(tmp_path, prefix="v", x=vx, y=vy)),
        "split": dict(validation_split=0.25),
    }[flags]
    trained = program.fit(
        tmp_path, tmp_path / "model.keras", program.arrays(tmp_path, x=x, y=y), batch_size=BATCH, epochs=3, **named
    )
    theirs = {"none": {}, "data": dict(validation_data=(vx, vy)), "split": dict(validation_split=0.25)}[flags]
    check_epochs(trained, model.fit(x, y, batch_size=BATCH, epochs=3, shuffle=False, verbose=0, **theirs).history)
    loaded = keras_side.load(trained.saved)
    runs.check_weights("fit", keras_side.values(loaded), keras_side.values(model), model.weights)


def test_early_stopping(tmp_path, rng):
    """Training stops after the same epoch as in Keras."""
    model = network()
    model.save(tmp_path / "model.keras")
    x, y = rng.standard_normal((N, 8, 8, 1)).astype(np.float32), rng.integers(0, 4, N)
    vx, vy = rng.standard_normal((21, 8, 8, 1)).astype(np.float32), rng.integers(0, 4, 21)
    trained = program.fit(
        tmp_path,
        tmp_path / "model.keras",
        program.arrays(tmp_path, x=x, y=y),
        batch_size=BATCH,
        epochs=30,
        validation_data=program.arrays(tmp_path, prefix="v", x=vx, y=vy),
        early_stopping="val_loss:2",
    )
    history = model.fit(
        x,
        y,
        batch_size=BATCH,
        epochs=30,
        shuffle=False,
        verbose=0,
        validation_data=(vx, vy),
        callbacks=[keras.callbacks.EarlyStopping("val_loss", patience=2)],
    ).history
    assert 2 < len(history["loss"]) < 30, "the case must stop early"
    check_epochs(trained, history)


def idx(path, values):
    """The format of MNIST: big-endian magic (0, 0, type, rank), sizes, bytes."""
    path.write_bytes(
        struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape) + values.astype(np.uint8).tobytes()
    )
    return path


def test_formats_give_the_same_run(tmp_path, rng, monkeypatch):
    """The same numbers as .npy, .npz, IDX and in wider types give bitwise the same losses, because the casts are exact."""
    monkeypatch.setenv("PLIMSOLL_CACHE", str(tmp_path / "cache"))
    model = network(1 / 255)
    model.save(tmp_path / "model.keras")
    x, y = pictures(rng)
    named = {
        "npy": program.arrays(tmp_path, x=x, y=y),
        "wide": program.arrays(tmp_path, prefix="wide_", x=x.astype(np.float64), y=y.astype(np.int64)),
        "floats": program.arrays(tmp_path, prefix="floats_", x=x.astype(np.float32), y=y.astype(np.float32)),
        "npz": program.archive(tmp_path, "d.npz", x=x, y=y),
        "idx": f"{idx(tmp_path / 'images.idx', x[..., 0])},{idx(tmp_path / 'labels.idx', y)}",
    }
    np.savez_compressed(tmp_path / "small.npz", x=x, y=y)
    named["compressed"] = tmp_path / "small.npz"
    losses = {
        k: program.fit(
            tmp_path, tmp_path / "model.keras", d, name=k, batch_size=BATCH, epochs=1, steps=6
        ).losses.tolist()
        for k, d in named.items()
    }
    assert all(v == losses["npy"] for v in losses.values()), losses
    want = keras_side.train(model, x.astype(np.float32), y, BATCH)
    compare.close("run loss", "uint8 pictures", losses["npy"], want, compare.RUN_LOSS)


def test_shuffle_sees_every_sample_once_an_epoch(tmp_path):
    """A linear model at rate 2^-k: each sample changes its own weight once per epoch; the order depends on the epoch and the seed."""
    n = 24
    i = keras.Input((n,))
    model = keras.Model(i, L.Dense(1, use_bias=False, kernel_initializer="zeros")(i))
    model.compile(keras.optimizers.SGD(0.25), "mse")
    model.save(tmp_path / "model.keras")
    x = np.eye(n, dtype=np.float32)
    data = program.arrays(tmp_path, x=x, y=np.arange(1, n + 1, dtype=np.float32).reshape(-1, 1))
    # With one sample per batch, the loss of a step is the squared target times 0.25^epoch, so it identifies the sample.
    order = {}
    for seed in (1, 1, 2):
        trained = program.fit(
            tmp_path, tmp_path / "model.keras", data, batch_size=1, epochs=2, shuffle="true", seed=seed, steps=2 * n
        )
        seen = np.sqrt(trained.losses).reshape(2, n) * [[1], [2]]
        assert all(sorted(np.rint(epoch).astype(int)) == list(range(1, n + 1)) for epoch in seen)
        assert not np.array_equal(seen[0], seen[1]), "the second epoch has the order of the first"
        assert seed not in order or np.array_equal(order[seed], seen)
        order[seed] = seen
    assert not np.array_equal(order[1], order[2])


INITIALIZERS = {  # name: (initializer, mean, standard deviation, largest magnitude) for a kernel of [64, 48]
    "glorot_uniform": ("glorot_uniform", 0, (2 / 112) ** 0.5, (6 / 112) ** 0.5),
    "glorot_normal": ("glorot_normal", 0, (2 / 112) ** 0.5, 2.28 * (2 / 112) ** 0.5),
    "he_uniform": ("he_uniform", 0, (2 / 64) ** 0.5, (6 / 64) ** 0.5),
    "he_normal": ("he_normal", 0, (2 / 64) ** 0.5, 2.28 * (2 / 64) ** 0.5),
    "lecun_normal": ("lecun_normal", 0, (1 / 64) ** 0.5, 2.28 * (1 / 64) ** 0.5),
    "random_normal": (keras.initializers.RandomNormal(0.5, 0.1), 0.5, 0.1, 1.1),
    "random_uniform": (keras.initializers.RandomUniform(-0.2, 0.6), 0.2, 0.8 / 12**0.5, 0.6),
    "constant": (keras.initializers.Constant(0.3), 0.3, 0, 0.3),
    "ones": ("ones", 1, 0, 1),
}


def test_initial_weights_of_an_architecture(tmp_path):
    """A .json architecture has no weights, so its initializers and the seed determine them. The rate is too small to change them."""
    i = keras.Input((64,))
    outputs = [
        L.Dense(48, kernel_initializer=init, bias_initializer="ones", name=name)(i)
        for name, (init, *_) in INITIALIZERS.items()
    ]
    model = keras.Model(i, L.Concatenate()(outputs))
    (tmp_path / "model.json").write_text(model.to_json())
    data = program.arrays(tmp_path, x=np.zeros((4, 64), np.float32), y=np.zeros((4, 48 * len(outputs)), np.float32))
    kernels = {}
    for seed in (3, 3, 4):
        trained = program.fit(
            tmp_path,
            tmp_path / "model.json",
            data,
            batch_size=4,
            epochs=1,
            seed=seed,
            optimizer="sgd",
            learning_rate=1e-30,
            loss="mse",
        )
        loaded = keras_side.load(trained.saved)
        values = {name: loaded.get_layer(name).get_weights() for name in INITIALIZERS}
        assert seed not in kernels or all(np.array_equal(values[n][0], kernels[seed][n][0]) for n in values)
        kernels[seed] = values
    assert not np.array_equal(kernels[3]["he_normal"][0], kernels[4]["he_normal"][0])
    assert not np.array_equal(
        kernels[3]["he_normal"][0], kernels[3]["lecun_normal"][0] * np.sqrt(2).astype(np.float32)
    ), "two layers drew the same numbers"
    for name, (_, mean, deviation, top) in INITIALIZERS.items():
        kernel, bias = kernels[3][name]
        n = kernel.size
        assert np.all(bias == 1)
        assert abs(kernel.mean() - mean) <= 5 * deviation / n**0.5 + 1e-7, name  # five standard errors
        assert abs(kernel.std() - deviation) <= 5 * deviation / (2 * n) ** 0.5 + 1e-7, name
        assert np.max(np.abs(kernel)) <= top * (1 + 1e-6), name


def test_log_is_json_lines_and_steps_count_up(tmp_path, rng):
    model = network(1 / 255)
    model.save(tmp_path / "model.keras")
    x, y = pictures(rng)
    trained = program.fit(
        tmp_path, tmp_path / "model.keras", program.arrays(tmp_path, x=x, y=y), batch_size=BATCH, epochs=2, steps=12
    )
    assert [e["step"] for e in trained.of("step")] == list(range(1, 13))
    assert [e["epoch"] for e in trained.of("epoch")] == [1, 2]
    for row in (tmp_path / "out.jsonl").read_text().splitlines():
        assert isinstance(json.loads(row), dict)


def test_models_keep_their_data_types(tmp_path, rng):
    """A saved file has the dtypes of the loaded file."""
    model = network()
    model.save(tmp_path / "model.keras")
    x, y = models.labelled(rng, N, (8, 8, 1), 4)
    trained = program.fit(
        tmp_path, tmp_path / "model.keras", program.arrays(tmp_path, x=x, y=y), batch_size=BATCH, epochs=1
    )
    for a, b in zip(keras_side.load(trained.saved).weights, model.weights, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
