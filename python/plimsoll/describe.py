"""A live Keras model as the JSON that Plimsoll's library reads, and what in it Plimsoll cannot do."""

import contextlib
import inspect
import json
import sys

import keras
import numpy as np
from keras.src import tree

from plimsoll import errors


class Described:
    """`architecture` and `compiled`: JSON texts. `schedule`: a learning-rate schedule that is computed here, or None."""

    def __init__(self, architecture, compiled, schedule):
        self.architecture = architecture
        self.compiled = compiled
        self.schedule = schedule


def describe(model, trains=True):
    """Raises Unsupported with every reason if the model is not made of what Keras itself brings."""
    reasons = _reasons(model, trains)
    if reasons:
        raise errors.Unsupported("this model uses what Plimsoll does not train yet", reasons)
    with without_tensorflow():
        architecture = _architecture(model)
        compiled = model.get_compile_config() if getattr(model, "compiled", False) else None
    schedule = _own_schedule(model.optimizer) if trains else None
    if schedule is not None:
        compiled["optimizer"]["config"]["learning_rate"] = 1e-3  # set before each step
    return Described(json.dumps(architecture, default=_number), json.dumps(compiled, default=_number), schedule)


def _architecture(model):
    """What a file of the model would hold. A subclass that changes nothing of the computation is its base class."""
    if not _is_keras(type(model)):
        plain = keras.Sequential(model._layers) if isinstance(model, keras.Sequential) else keras.Model(model.input, model.output)
        plain.name = model.name
        model = plain
    return keras.saving.serialize_keras_object(model)


def describe_step(model, loss, optimizer):
    """A model with the loss and the optimizer of a step that a script wrote itself."""
    reasons = _model_reasons(model)
    if not _is_keras(type(loss)):
        reasons.append(f"the loss is written in Python: {type(loss).__name__}{_where(loss)}")
    reasons += _optimizer_reasons(optimizer)
    if reasons:
        raise errors.Unsupported("this model uses what Plimsoll does not train yet", reasons)
    with without_tensorflow():
        architecture = _architecture(model)
        compiled = {"optimizer": keras.saving.serialize_keras_object(optimizer), "loss": keras.saving.serialize_keras_object(loss),
                    "loss_weights": None, "metrics": None, "weighted_metrics": None}
    schedule = _own_schedule(optimizer)
    if schedule is not None:
        compiled["optimizer"]["config"]["learning_rate"] = 1e-3  # set before each step
    return Described(json.dumps(architecture, default=_number), json.dumps(compiled, default=_number), schedule)


def _number(value):
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no place in a model's configuration")


@contextlib.contextmanager
def without_tensorflow():
    """Keras imports TensorFlow, where it is installed, to serialise a model. It need not."""
    from keras.src.utils import module_utils

    lazy = getattr(module_utils, "tensorflow", None)
    if "tensorflow" in sys.modules or lazy is None or not hasattr(lazy, "_available"):
        yield
        return
    before, lazy._available = lazy._available, False
    try:
        yield
    finally:
        lazy._available = before


def _is_keras(thing):
    module = thing.__module__ if inspect.isclass(thing) or inspect.isroutine(thing) else type(thing).__module__
    return (module or "").split(".")[0] in ("keras", "keras_core")


def _where(thing):
    """' (file.py:12)' of a class or function of the user's, if it is known."""
    target = thing if inspect.isclass(thing) or inspect.isroutine(thing) else type(thing)
    try:
        file = inspect.getsourcefile(target) or ""
        return f" ({file.rsplit('/', 1)[-1]}:{inspect.getsourcelines(target)[1]})"
    except (OSError, TypeError):
        return ""


def _reasons(model, trains):
    reasons = _model_reasons(model)
    return reasons + (_compile_reasons(model) if getattr(model, "compiled", False) else [])


def _model_reasons(model):
    if not isinstance(model, keras.Model):
        raise TypeError(f"a Keras model was expected, got {type(model).__name__}")
    if not _is_functional(model):
        return [f"the model is a subclass of keras.Model with its own call(): {type(model).__name__}{_where(model)}"]
    reasons = []
    overridden = ("call", "train_step", "test_step", "predict_step", "compute_loss", "compute_metrics")
    for name in overridden if not _is_keras(type(model)) else ():
        method = getattr(type(model), name, None)
        if method is not None and not _is_keras(method):
            reasons.append(f"{type(model).__name__}.{name}() is written in Python{_where(method)}")
    seen = set()
    for layer in model._flatten_layers(include_self=False):
        if not _is_keras(type(layer)) and type(layer) not in seen and not _is_functional(layer):
            seen.add(type(layer))
            reasons.append(f"layer '{layer.name}' is of a class of its own: {type(layer).__name__}{_where(layer)}")
    return reasons


def _is_functional(model):
    from keras.src.models.functional import Functional

    return isinstance(model, (Functional, keras.Sequential))


def _compile_reasons(model):
    reasons = []
    for loss in tree.flatten(model.loss):
        if loss is not None and not isinstance(loss, (str, dict)) and not _is_keras(loss):
            reasons.append(f"the loss is written in Python: {getattr(loss, '__name__', type(loss).__name__)}{_where(loss)}")
    user = getattr(model, "_compile_metrics", None)
    given = [] if user is None else [user._user_metrics, user._user_weighted_metrics]
    for metric in tree.flatten(given):
        if metric is not None and not isinstance(metric, (str, dict)) and not _is_keras(metric):
            name = getattr(metric, "__name__", None) or type(metric).__name__
            reasons.append(f"the metric {name} is written in Python{_where(metric)}")
    reasons += _optimizer_reasons(model.optimizer)
    strategy = getattr(model, "_distribute_strategy", None)
    if strategy is not None and getattr(strategy, "num_replicas_in_sync", 1) > 1:
        reasons.append(f"tf.distribute with {strategy.num_replicas_in_sync} replicas: Plimsoll trains on one device")
    return reasons


def _optimizer_reasons(optimizer):
    if not _is_keras(type(optimizer)):
        return [f"the optimizer is of a class of its own: {type(optimizer).__name__}{_where(optimizer)}"]
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return ["the optimizer scales the loss (LossScaleOptimizer, mixed_float16)"]
    return []


def _own_schedule(optimizer):
    rate = getattr(optimizer, "_learning_rate", None)
    if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule) and not _is_keras(type(rate)):
        return rate
    return None


def build(model, first):
    """Builds the model's metrics, and its layers if they are not built, as Keras's fit does, from one batch."""
    if keras.backend.backend() == "numpy":
        _build_with_numbers(model, *first)
        return
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None:
        model.optimizer = None  # or Keras builds its state before the memory is measured
    try:
        model._symbolic_build(data_batch=first)
    finally:
        if optimizer is not None:
            model.optimizer = optimizer


def _build_with_numbers(model, x, y, sample_weight):
    """On Keras's NumPy backend a symbolic call computes with numbers that nobody has set, which labels may not be."""
    predicted = model(x, training=False)
    for part in (model._compile_metrics, model._compile_loss):
        if part is not None and not part.built and y is not None:
            part.build(y, predicted)
