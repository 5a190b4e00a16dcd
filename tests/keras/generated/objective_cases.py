"""Random configurations of losses, metrics and optimizers, with a small network and data that they accept."""

import dataclasses

import keras
import numpy as np

import classes
import values

L = keras.layers
N, CLASSES = 12, 4
TRIES = 200

SPARSE = {"SparseCategoricalCrossentropy", "CategoricalGeneralizedCrossEntropy", "SparseCategoricalAccuracy", "SparseTopKCategoricalAccuracy"}
ONE_HOT = {
    "CategoricalCrossentropy", "CategoricalFocalCrossentropy", "CategoricalHinge", "KLDivergence",
    "CategoricalAccuracy", "TopKCategoricalAccuracy", "OneHotIoU", "OneHotMeanIoU", "F1Score", "FBetaScore",
}  # fmt: skip
BINARY = {
    "BinaryCrossentropy", "BinaryFocalCrossentropy", "Dice", "Tversky", "BinaryAccuracy", "BinaryIoU", "AUC", "Precision", "Recall",
    "TruePositives", "TrueNegatives", "FalsePositives", "FalseNegatives", "PrecisionAtRecall", "RecallAtPrecision",
    "SensitivityAtSpecificity", "SpecificityAtSensitivity",
}  # fmt: skip
SIGNS = {"Hinge", "SquaredHinge"}
POSITIVE = {"Poisson", "MeanSquaredLogarithmicError", "MeanAbsolutePercentageError"}
LABELS = {"IoU", "MeanIoU", "Accuracy"}  # integers on both sides


@dataclasses.dataclass
class Case:
    name: str
    text: str
    model: keras.Model
    x: np.ndarray
    y: np.ndarray
    made: object  # the loss, metric or optimizer
    loss: object = None  # what a metric is trained with


def target(name, rng, shape):
    if name in SPARSE or name == "Circle":
        return rng.integers(0, CLASSES, (N,) + shape[:-1]).astype(np.int32)
    if name == "CTC":
        return rng.integers(1, CLASSES, (N, 2)).astype(np.int32)
    if name in ONE_HOT or name in ("OneHotIoU",):
        return np.eye(shape[-1], dtype=np.float32)[rng.integers(0, shape[-1], (N,) + shape[:-1])]
    if name in BINARY:
        return rng.integers(0, 2, (N,) + shape).astype(np.float32)
    if name in SIGNS:
        return rng.choice(np.array([-1, 1], np.float32), (N,) + shape)
    if name in POSITIVE:
        return rng.integers(1, 5, (N,) + shape).astype(np.float32)
    if name in LABELS:
        return rng.integers(0, CLASSES, (N,) + shape).astype(np.float32)
    return rng.standard_normal((N,) + shape).astype(np.float32)


def network(d, shape, activation):
    x = i = keras.Input((6,))
    x = L.Dense(8, activation="tanh", name="stem")(x)
    if len(shape) > 1:
        x = L.Reshape(shape[:-1] + (-1,))(L.Dense(8 * int(np.prod(shape[:-1])))(x))
    return keras.Model(i, L.Dense(shape[-1], activation=activation, name="out")(x), name="network")


def activation_for(name, logits):
    if logits or name in SIGNS or name in ("Circle", "CTC"):
        return None
    if name in SPARSE | ONE_HOT:
        return "softmax"
    return "sigmoid" if name in BINARY | POSITIVE else None


def special(kind, name, d):
    table = {
        "CategoricalFocalCrossentropy": {"alpha": lambda: d.real(0.1, 0.9)},
        "Dice": {"axis": lambda: d.one_of(None, -1, (1,))},
        "Tversky": {"axis": lambda: d.one_of(None, -1, (1,)), "alpha": lambda: d.real(0.1, 0.9), "beta": lambda: d.real(0.1, 0.9)},
        "F1Score": {"threshold": lambda: d.one_of(None, d.real(0.2, 0.8))},
        "FBetaScore": {"threshold": lambda: d.one_of(None, d.real(0.2, 0.8))},
        "BinaryIoU": {"target_class_ids": lambda: d.one_of([0], [1], [0, 1])},
        "SGD": {"momentum": lambda: d.one_of(0.0, d.real(0.1, 0.95))},
        "RMSprop": {"momentum": lambda: d.one_of(0.0, d.real(0.1, 0.95))},
        "AdamW": {"weight_decay": lambda: d.real(0.001, 0.1)},
        "Muon": {"weight_decay": lambda: d.real(0.001, 0.1)},
    }
    own = dict(table.get(name, {}))
    if kind != "optimizers" and "axis" not in own:
        own["axis"] = lambda: d.one_of(-1, -1, len(d.shape))
    if kind == "metrics":
        own["axis"] = lambda: -1
        own["ignore_class"] = lambda: d.one_of(None, 0, 1)
    if kind == "optimizers":
        own["epsilon"] = lambda: d.one_of(1e-7, 1e-4)
        own["use_ema"] = lambda: False  # `fit` ends with the averages, single steps do not: test_optimizer_classes.py
    return own


def draw_case(kind, name, rng):
    """A configuration that Keras accepts: a loss computes a finite gradient, a metric a number, an optimizer a step."""
    last = None
    cls = getattr(getattr(keras, kind), name)
    for _ in range(TRIES):
        keras.backend.clear_session()
        d = values.Draw(rng)
        shape = d.one_of((CLASSES,), (CLASSES,), (3, CLASSES)) if kind != "optimizers" else (3,)
        if name == "CTC":
            shape = (5, CLASSES)
        if name == "Circle" or name in ("F1Score", "FBetaScore", "R2Score"):
            shape = (CLASSES,)
        d.shape = shape
        drawn = values.arguments(cls, d, special(kind, name, d))
        drawn.pop("name", None)
        try:
            made = cls(**drawn)
            if kind == "losses":  # as a file keeps it: Keras writes neither Huber's delta nor some of the axes
                made = cls.from_config(made.get_config())
            model = network(d, shape, activation_for(name, drawn.get("from_logits", False)))
            x = rng.standard_normal((N, 6)).astype(np.float32)
            y = target(name, rng, shape) if kind != "optimizers" else (1.5 + rng.standard_normal((N, 3))).astype(np.float32)
            case = Case(name, values.call_text(cls, drawn), model, x, y, made)
            if kind == "metrics":
                case.loss = "sparse_categorical_crossentropy" if name in SPARSE else "mse"
            check_in_keras(kind, case)
        except KeyError:
            raise
        except Exception as e:
            last = e
            continue
        return case
    raise AssertionError(f"Keras accepted none of {TRIES} configurations of {name}; the last: {last}")


def check_in_keras(kind, case):
    p = np.array(case.model(case.x))
    if kind == "losses":
        value = float(case.made(case.y, p))
        assert np.isfinite(value)
    elif kind == "metrics":
        case.made.update_state(case.y, p)
        assert np.all(np.isfinite(np.array(case.made.result())))
        case.made.reset_state()
    else:  # a step on a copy, because an optimizer belongs to the first model it is built for
        copy = type(case.made).from_config(case.made.get_config())
        clone = keras.models.clone_model(case.model)
        clone.compile(copy, "mse", run_eagerly=True)
        assert np.isfinite(clone.train_on_batch(case.x, case.y))


NAMES = {kind: tuple(classes.drawn(kind)) for kind in ("losses", "metrics", "optimizers")}
