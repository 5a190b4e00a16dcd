"""Metrics that the engine does not compute are updated by Keras from the engine's predictions."""

import keras
import numpy as np
import pytest
from keras import layers, ops

import plimsoll

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(100, 12)).astype("float32"), RNG.integers(0, 3, 100)
QUIET = {"batch_size": 32, "epochs": 2, "shuffle": False, "verbose": 0, "validation_split": 0.2}


class Confident(keras.metrics.Metric):
    """The share of samples whose most likely class has at least 0.4."""

    def __init__(self, **named):
        super().__init__(**named)
        self.found = self.add_weight(name="found", initializer="zeros")
        self.seen = self.add_weight(name="seen", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        sure = ops.cast(ops.max(y_pred, axis=-1) > 0.4, "float32")
        weights = ops.ones_like(sure) if sample_weight is None else ops.cast(sample_weight, "float32")
        self.found.assign_add(ops.sum(sure * weights))
        self.seen.assign_add(ops.sum(weights))

    def result(self):
        return self.found / self.seen


def model(dropout=0.0, **metrics):
    keras.utils.set_random_seed(3)
    made = keras.Sequential([keras.Input((12,)), layers.Dense(8, activation="relu"), layers.Dropout(dropout), layers.Dense(3, activation="softmax")])
    made.compile("sgd", "sparse_categorical_crossentropy", **metrics)
    return made


@pytest.mark.parametrize("weights", [None, RNG.uniform(0.5, 2, 100).astype("float32")], ids=["plain", "weighted"])
def test_a_metric_of_a_class_of_the_user_s(weights):
    def metrics():
        if weights is None:
            return {"metrics": ["accuracy", Confident(name="confident")]}
        return {"metrics": [Confident(name="confident")], "weighted_metrics": [Confident(name="heavy")]}

    theirs, ours = model(**metrics()), model(**metrics())
    expected = theirs.fit(X, Y, **QUIET, sample_weight=weights).history
    found = plimsoll.fit(ours, X, Y, **QUIET, sample_weight=weights, budget="4GiB").history
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-4, err_msg=name)
    expected = theirs.evaluate(X, Y, verbose=0, return_dict=True)
    assert plimsoll.evaluate(ours, X, Y, verbose=0, return_dict=True) == pytest.approx(expected, rel=1e-4)


def test_predictions_that_training_makes_otherwise_are_refused():
    with pytest.raises(plimsoll.Unsupported, match="confident: computed from predictions, which dropout.* makes others in training"):
        plimsoll.fit(model(0.5, metrics=[Confident(name="confident")]), X, Y, **QUIET)
