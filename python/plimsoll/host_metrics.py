"""Metrics that the engine does not compute: Keras updates them from the engine's predictions."""

import keras
import numpy as np
from keras.src import tree

from plimsoll import errors, steps


class HostMetrics:
    """The metrics of these names. Before each step the engine predicts the batch with the weights that the step begins with."""

    def __init__(self, model, names, trains):
        compiled = model._compile_metrics
        plain = [metric for metric in _flat(compiled._flat_metrics) if metric.name in names]
        weighted = [metric for metric in _flat(compiled._flat_weighted_metrics) if metric.name in names]
        self._metrics = [(metric, False) for metric in plain] + [(metric, True) for metric in weighted]
        lost = [name for name in names if all(metric.name != name for metric, _ in self._metrics)]
        reasons = [f"{', '.join(lost)}: it cannot be computed from predictions"] if lost else []
        if len(model.outputs or [0]) > 1:
            reasons = [f"{', '.join(names)}: they are computed from predictions, for one output alone"]
        differ = [layer.name for layer in model._flatten_layers(include_self=False) if steps.changes_in_training(layer)] if trains else []
        if differ:
            reasons.append(f"{', '.join(names)}: computed from predictions, which {', '.join(differ[:3])} makes others in training")
        if reasons:
            raise errors.Unsupported("this model reports metrics that Plimsoll does not compute", reasons)

    def update(self, predicted, y, weights):
        y, predicted = tree.map_structure(_tensor, (y, predicted))
        for metric, weighted in self._metrics:
            metric.update_state(y, predicted, sample_weight=None if weights is None or not weighted else _tensor(weights))

    def reset(self):
        for metric, _ in self._metrics:
            metric.reset_state()

    def logs(self):
        return {metric.name: float(np.asarray(metric.result())) for metric, _ in self._metrics}


def _flat(metrics):
    found = []
    for one in metrics:
        found += getattr(one, "metrics", [one]) if type(one).__name__ == "MetricsList" else [one] if one is not None else []
    return found


def _tensor(array):
    array = np.asarray(array)
    return keras.ops.convert_to_tensor(array.astype(keras.config.floatx()) if array.dtype.kind == "f" else array)
