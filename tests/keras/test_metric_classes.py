"""Every metric class with its options, in `evaluate` with several batches and in `fit` with micro-batches."""

import csv
import json

import keras
import numpy as np
import pytest

import compare
import keras_side
import program
from test_metrics import BATCH, N, check, network, targets

L, M = keras.layers, keras.metrics

# name: (activation, columns, loss, metrics); all metrics of a case are computed in one run
CASES = {
    "counts": (
        "sigmoid",
        3,
        "binary_crossentropy",
        lambda: [
            M.TruePositives(),
            M.FalsePositives(thresholds=0.3),
            M.TrueNegatives(thresholds=[0.6]),
            M.FalseNegatives(),
            M.Precision(),
            M.Recall(thresholds=0.4),
            M.Precision(class_id=1, name="of_one"),
            M.Recall(class_id=2, thresholds=0.7, name="of_two"),
            M.FalsePositives(thresholds=[0.6, 0.3], name="turned"),
            M.TrueNegatives(thresholds=[0.0, 0.5, 1.0], name="even"),
            M.Precision(thresholds=[0.2, 0.5, 0.55], class_id=1, name="several"),
            M.Recall(thresholds=[0.5, 0.5, 0.1], name="twice"),
        ],
    ),
    "curves": (
        "sigmoid",
        1,
        "binary_crossentropy",
        lambda: [
            M.AUC(),
            M.AUC(num_thresholds=17, name="few"),
            M.AUC(curve="PR", name="pr"),
            M.AUC(curve="PR", summation_method="majoring", name="pr_major"),
            M.AUC(curve="PRGAIN", name="gain"),
            M.AUC(summation_method="minoring", name="minor"),
            M.AUC(thresholds=[0.2, 0.35, 0.9], name="own"),
            M.AUC(thresholds=[0.25, 0.5, 0.75], name="own_even"),
            M.SensitivityAtSpecificity(0.6),
            M.SpecificityAtSensitivity(0.7, num_thresholds=50),
            M.PrecisionAtRecall(0.6),
            M.RecallAtPrecision(0.4, num_thresholds=1),
        ],
    ),
    "curves_of_labels": (
        "sigmoid",
        3,
        "binary_crossentropy",
        lambda: [
            M.AUC(multi_label=True, num_labels=3),
            M.AUC(name="flat"),
            M.PrecisionAtRecall(0.5, class_id=1),
        ],
    ),
    "curves_of_logits": (None, 3, "mse", lambda: [M.AUC(from_logits=True)]),
    "top": (
        "softmax",
        7,
        "categorical_crossentropy",
        lambda: [
            M.TopKCategoricalAccuracy(k=3),
            "top_k_categorical_accuracy",
            M.Precision(top_k=2),
            M.Recall(top_k=3, class_id=1),
            M.F1Score(average="macro"),
            M.F1Score(name="each"),
            M.FBetaScore(beta=0.5, threshold=0.3, name="each_above"),
            M.F1Score(average="micro", threshold=0.2, name="micro"),
            M.FBetaScore(average="weighted", beta=2.0),
            M.OneHotIoU(7, [0, 3]),
            M.OneHotMeanIoU(7),
            M.CategoricalCrossentropy(label_smoothing=0.1),
            M.KLDivergence(),
            M.Poisson(),
            M.CategoricalHinge(),
        ],
    ),
    "sparse": (
        "softmax",
        7,
        "sparse_categorical_crossentropy",
        lambda: [
            M.SparseTopKCategoricalAccuracy(k=2),
            "sparse_top_k_categorical_accuracy",
            M.MeanIoU(7, sparse_y_pred=False),
            M.IoU(7, [1, 2], sparse_y_pred=False, ignore_class=0),
            M.SparseCategoricalCrossentropy(),
        ],
    ),
    "binary_union": (
        "sigmoid",
        2,
        "binary_crossentropy",
        lambda: [M.BinaryIoU(), M.BinaryIoU([1], threshold=0.3, name="one"), M.MeanIoU(2), M.Accuracy()],
    ),
    "regression": (
        None,
        3,
        "mse",
        lambda: [
            M.RootMeanSquaredError(),
            M.R2Score(),
            M.R2Score(class_aggregation=None, num_regressors=2, name="each"),
            M.R2Score(class_aggregation="variance_weighted_average", num_regressors=4, name="adjusted"),
            M.CosineSimilarity(),
            M.PearsonCorrelation(),
            M.ConcordanceCorrelation(),
            M.LogCoshError(),
            M.MeanAbsolutePercentageError(),
            M.MeanSquaredLogarithmicError(),
            "cosine_similarity",
            "r2_score",
        ],
    ),
    "hinge": (None, 2, "mse", lambda: [M.Hinge(), M.SquaredHinge()]),
}


@pytest.mark.parametrize("weighted", ("metrics", "weighted_metrics"))
@pytest.mark.parametrize("name", CASES)
def test_metric(name, weighted, tmp_path, rng):
    if name == "binary_union" and weighted == "weighted_metrics":
        pytest.skip("Keras needs one weight per number here")
    activation, columns, loss, metrics = CASES[name]
    model = keras_side.randomize(network(activation, columns))
    x, y = rng.standard_normal((N, 6)).astype(np.float32), targets(rng, loss, columns)
    if name in ("hinge", "curves_of_logits"):
        y = (y > 0).astype(np.float32)
    weights = rng.integers(0, 3, N).astype(np.float32) if weighted == "weighted_metrics" else None
    model.compile("sgd", loss, **{weighted: metrics()})
    check(tmp_path, model, program.arrays(tmp_path, x=x, y=y, sample_weight=weights), x=x, y=y, sample_weight=weights)


@pytest.mark.parametrize("flags", [(), ("--micro-batch", "5")], ids=["whole", "cut"])
def test_metrics_of_an_epoch(flags, tmp_path, rng):
    """In fit, over an epoch with micro-batches, and of the validation data after it."""
    model = keras_side.randomize(network("sigmoid", 1))
    model.compile("sgd", "binary_crossentropy", metrics=["AUC", M.Precision(), M.BinaryIoU(name="union"), "accuracy"])
    file = tmp_path / "model.keras"
    model.save(file)
    x, y = rng.standard_normal((N, 6)).astype(np.float32), rng.integers(0, 2, (N, 1)).astype(np.float32)
    data = program.arrays(tmp_path, x=x, y=y)
    got = program.fit(tmp_path, file, data, "--validation-data", data, *flags, batch_size=BATCH, epochs=2).of("epoch")
    want = model.fit(x, y, BATCH, epochs=2, shuffle=False, verbose=0, validation_data=(x, y)).history
    for epoch, event in enumerate(got):
        for name, values in want.items():
            value = event["metrics"][name] if name in event.get("metrics", {}) else event[name]
            compare.close("epoch metric", f"{name} of epoch {epoch}", value, values[epoch], compare.LOSS)


def test_union_of_pixels(tmp_path, rng):
    i = keras.Input((5, 4, 3))
    model = keras_side.randomize(keras.Model(i, L.Conv2D(4, 1, activation="softmax")(i)))
    model.compile(
        "sgd",
        "sparse_categorical_crossentropy",
        metrics=[M.MeanIoU(4, sparse_y_pred=False), M.SparseTopKCategoricalAccuracy(k=2)],
    )
    x, y = rng.standard_normal((N, 5, 4, 3)).astype(np.float32), rng.integers(0, 4, (N, 5, 4))
    check(tmp_path, model, program.arrays(tmp_path, x=x, y=y), x=x, y=y)


def test_early_stopping_watches_a_curve(tmp_path, rng):
    model = keras_side.randomize(network("sigmoid", 1))
    model.compile(keras.optimizers.SGD(0.0), "binary_crossentropy", metrics=["AUC"])
    file = tmp_path / "model.keras"
    model.save(file)
    x, y = rng.standard_normal((N, 6)).astype(np.float32), rng.integers(0, 2, (N, 1)).astype(np.float32)
    data = program.arrays(tmp_path, x=x, y=y)
    run = program.fit(
        tmp_path, file, data, "--validation-data", data, "--early-stopping", "val_AUC:2", batch_size=BATCH, epochs=9
    )
    assert len(run.of("epoch")) == 3


def test_metrics_by_flag(tmp_path, rng):
    model = keras_side.randomize(network("sigmoid", 1))
    model.compile("sgd", "binary_crossentropy")
    file = tmp_path / "model.keras"
    model.save(file)
    x, y = rng.standard_normal((N, 6)).astype(np.float32), rng.integers(0, 2, (N, 1)).astype(np.float32)
    data = program.arrays(tmp_path, x=x, y=y)
    got = program.evaluate(file, data, "--metrics", "auc,precision,recall", batch_size=BATCH)
    assert set(got["metrics"]) == {"auc", "precision", "recall"}


def test_ignored_class(tmp_path, rng):
    """Rows of the ignored class count as 0."""
    model = keras_side.randomize(network("softmax", 4))
    loss = keras.losses.SparseCategoricalCrossentropy(ignore_class=1)
    metrics = [M.SparseCategoricalCrossentropy(ignore_class=c, name=f"without_{c}") for c in (1, 2)]
    model.compile("sgd", loss, metrics=metrics)
    x, y = rng.standard_normal((N, 6)).astype(np.float32), rng.integers(0, 4, N)
    check(tmp_path, model, program.arrays(tmp_path, x=x, y=y), x=x, y=y)


def test_vectors_are_lists_in_logs(tmp_path, rng):
    """In fit, over micro-batches: a list per epoch, in the log and in the table of --csv-log."""
    model = keras_side.randomize(network("sigmoid", 3))
    model.compile("sgd", "binary_crossentropy", metrics=[M.F1Score(), M.Precision(thresholds=[0.5, 0.2])])
    file, table = tmp_path / "model.keras", tmp_path / "table.csv"
    model.save(file)
    x, y = rng.standard_normal((N, 6)).astype(np.float32), rng.integers(0, 2, (N, 3)).astype(np.float32)
    data = program.arrays(tmp_path, x=x, y=y)
    flags = ("--validation-data", data, "--micro-batch", 5, "--csv-log", table)
    got = program.fit(tmp_path, file, data, *flags, batch_size=BATCH, epochs=2).of("epoch")
    want = model.fit(x, y, BATCH, epochs=2, shuffle=False, verbose=0, validation_data=(x, y)).history
    rows = list(csv.DictReader(table.open()))
    for epoch, event in enumerate(got):
        for name in ("f1_score", "precision", "val_f1_score", "val_precision"):
            value = np.array(event["metrics"][name])
            compare.close("epoch metric", f"{name} of epoch {epoch}", value, np.array(want[name][epoch]), compare.LOSS)
            assert json.loads(rows[epoch][name]) == event["metrics"][name]


def test_a_vector_cannot_be_watched(tmp_path):
    model = network("sigmoid", 3)
    model.compile("sgd", "binary_crossentropy", metrics=[M.F1Score()])
    model.save(tmp_path / "model.keras")
    x, y = np.zeros((N, 6), np.float32), np.zeros((N, 3), np.float32)
    data = program.arrays(tmp_path, x=x, y=y)
    flags = ("--data", data, "--batch-size", 5, "--epochs", 1, "--early-stopping", "f1_score:2")
    ended = program.run("fit", tmp_path / "model.keras", *flags, expect=2)
    assert "'f1_score' is a vector" in ended.stderr
