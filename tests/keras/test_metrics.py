"""Metrics and losses of `evaluate`, under Keras's names, with a smaller last batch."""

import keras
import numpy as np
import pytest

import compare
import keras_side
import program

L, M = keras.layers, keras.metrics
N, BATCH = 50, 16  # the last batch has two samples


def network(activation, columns):
    i = keras.Input((6,))
    return keras.Model(i, L.Dense(columns, activation=activation)(L.Dense(8, activation="tanh")(i)), name="network")


CASES = {
    "sparse_by_word": ("softmax", 4, "sparse_categorical_crossentropy", lambda: ["accuracy"]),
    "sparse_abbreviated": ("softmax", 4, "sparse_categorical_crossentropy", lambda: ["acc"]),
    "sparse_by_class": (
        "softmax",
        4,
        "sparse_categorical_crossentropy",
        lambda: [M.SparseCategoricalAccuracy(name="right")],
    ),
    "sparse_by_name": ("softmax", 4, "sparse_categorical_crossentropy", lambda: ["sparse_categorical_accuracy"]),
    "categorical_by_word": ("softmax", 4, "categorical_crossentropy", lambda: ["accuracy"]),
    "categorical_by_class": ("softmax", 4, "categorical_crossentropy", lambda: [M.CategoricalAccuracy(), "mse"]),
    "binary_by_word": ("sigmoid", 1, "binary_crossentropy", lambda: ["accuracy"]),
    "binary_threshold": ("sigmoid", 3, "binary_crossentropy", lambda: [M.BinaryAccuracy(threshold=0.3), "mae"]),
    "regression": (None, 3, "mse", lambda: ["mse", "mae"]),
    "regression_by_class": (None, 3, "mse", lambda: [M.MeanSquaredError(name="squares"), M.MeanAbsoluteError()]),
    "regression_by_name": (None, 3, "mse", lambda: ["mean_squared_error", "mean_absolute_error"]),
}


def targets(rng, loss, columns):
    if loss == "sparse_categorical_crossentropy":
        return rng.integers(0, columns, N)
    if loss == "categorical_crossentropy":
        return np.eye(columns, dtype=np.float32)[rng.integers(0, columns, N)]
    if loss == "binary_crossentropy":
        return rng.integers(0, 2, (N, columns)).astype(np.float32)
    return rng.standard_normal((N, columns)).astype(np.float32)


def check(folder, model, data, flags=(), **named):
    path = folder / "model.keras"
    model.save(path)
    model.run_eagerly = True
    want = {k: np.array(v) for k, v in model.evaluate(batch_size=BATCH, verbose=0, return_dict=True, **named).items()}
    got = program.evaluate(path, data, *flags, batch_size=BATCH)
    compare.close("evaluate loss", folder.name, got["loss"], want.pop("loss"), compare.LOSS)
    assert set(got["metrics"]) == set(want)
    for name, value in want.items():
        compare.close("metric", f"{folder.name}: {name}", np.array(got["metrics"][name]), value, compare.LOSS)


@pytest.mark.parametrize("weighted", ("metrics", "weighted_metrics"))
@pytest.mark.parametrize("name", CASES)
def test_metric(name, weighted, tmp_path, rng):
    activation, columns, loss, metrics = CASES[name]
    model = keras_side.randomize(network(activation, columns))
    x, y = rng.standard_normal((N, 6)).astype(np.float32), targets(rng, loss, columns)
    weights = (rng.random(N, np.float32) * 2) if weighted == "weighted_metrics" else None
    model.compile("sgd", loss, **{weighted: metrics()})
    check(tmp_path, model, program.arrays(tmp_path, x=x, y=y, sample_weight=weights), x=x, y=y, sample_weight=weights)


def test_metrics_ignore_weights(tmp_path, rng):
    """`metrics` and `weighted_metrics` in one model with sample weights."""
    model = keras_side.randomize(network("softmax", 4))
    x, y, w = rng.standard_normal((N, 6)).astype(np.float32), rng.integers(0, 4, N), rng.random(N, np.float32) * 3
    model.compile(
        "sgd",
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
        weighted_metrics=[M.SparseCategoricalAccuracy(name="weighted")],
    )
    check(tmp_path, model, program.arrays(tmp_path, x=x, y=y, sample_weight=w), x=x, y=y, sample_weight=w)


def test_regularization_is_in_the_loss(tmp_path, rng):
    i = keras.Input((6,))
    model = keras_side.randomize(keras.Model(i, L.Dense(3, kernel_regularizer="l2")(i)))
    x, y = rng.standard_normal((N, 6)).astype(np.float32), rng.standard_normal((N, 3)).astype(np.float32)
    model.compile("sgd", "mse", metrics=["mse"])
    check(tmp_path, model, program.arrays(tmp_path, x=x, y=y), x=x, y=y)


def test_several_outputs(tmp_path, rng):
    i = keras.Input((6,), name="facts")
    h = L.Dense(8, activation="relu")(i)
    model = keras_side.randomize(
        keras.Model(i, [L.Dense(4, activation="softmax", name="kind")(h), L.Dense(2, name="size")(h)])
    )
    model.compile(
        "sgd",
        {"kind": "sparse_categorical_crossentropy", "size": "mse"},
        loss_weights={"kind": 0.5, "size": 2.0},
        metrics={"kind": ["accuracy"], "size": ["mae"]},
    )
    x, y = {"facts": rng.standard_normal((N, 6)).astype(np.float32)}, {
        "kind": rng.integers(0, 4, N),
        "size": rng.standard_normal((N, 2)).astype(np.float32),
    }
    check(tmp_path, model, program.archive(tmp_path, **x, **y), x=x["facts"], y=y)


def test_accuracy_of_every_pixel(tmp_path, rng):
    i = keras.Input((5, 4, 3))
    model = keras_side.randomize(keras.Model(i, L.Conv2D(4, 1, activation="softmax")(i)))
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    x, y = rng.standard_normal((N, 5, 4, 3)).astype(np.float32), rng.integers(0, 4, (N, 5, 4))
    check(tmp_path, model, program.arrays(tmp_path, x=x, y=y), x=x, y=y)


def test_metrics_that_are_not_computed_load_again_in_keras(tmp_path):
    model = network("sigmoid", 1)
    many = [(i / 80) ** 2 for i in range(1, 80)]  # uneven
    metrics = ["accuracy", M.AUC(thresholds=many), M.AUC(thresholds=many, curve="PR", name="curve")]
    model.compile("adam", "binary_crossentropy", metrics=metrics)
    rng = np.random.default_rng(11)
    x, y = rng.standard_normal((N, 6)).astype(np.float32), rng.integers(0, 2, (N, 1)).astype(np.float32)
    model.save(tmp_path / "model.keras")
    data = program.arrays(tmp_path, x=x, y=y)
    for flags in ((), ("--metrics", "accuracy"), ("--metrics", "none"), ("--learning-rate", "0.01")):
        run = program.fit(tmp_path, tmp_path / "model.keras", data, *flags, batch_size=BATCH)
        loaded = keras.models.load_model(run.saved)
        want = loaded.evaluate(x, y, batch_size=BATCH, verbose=0, return_dict=True)
        assert set(want) == {"loss", "accuracy", "auc", "curve"}
        kept = [m for m in loaded.get_compile_config()["metrics"] if isinstance(m, dict) and m["class_name"] == "AUC"]
        np.testing.assert_allclose(kept[1]["config"]["thresholds"], many)
        got = program.evaluate(run.saved, data, batch_size=BATCH)
        assert set(got["metrics"]) == {"accuracy"} and got["skipped_metrics"] == ["auc", "curve"]
        compare.close("metric", "accuracy beside others", got["metrics"]["accuracy"], want["accuracy"], compare.LOSS)
