"""A live Keras model as the JSON that Plimsoll's library reads, and what in it Plimsoll cannot do."""

import contextlib
import inspect
import json
import sys

import keras
import numpy as np
from keras.src import tree

from plimsoll import errors, front


class Described:
    """`architecture` and `compiled`: JSON texts. `schedule`: a learning-rate schedule that is computed here, or None.

    `variables`: the live variables in the engine's order. `face`: the inputs and outputs under the engine's names.
    `front`: what Keras does with the inputs first, or None. `quotient`: what a loss that
    is a sum over a sum divides by, or None. `traced`: whether the architecture was made by tracing the model's calls. `draws`: whether they draw random numbers.
    """

    def __init__(self, model, architecture, compiled, schedule, traced=None, prepared=None, quotient=None):
        self.front = prepared
        self.quotient = quotient
        self.architecture = json.dumps(architecture, default=_number)
        self.compiled = json.dumps(compiled, default=_number)
        self.schedule = schedule
        self.traced = traced is not None
        self.variables = traced.variables if traced else list(model.weights)
        self.face = traced.face if traced else model
        self.draws = traced.draws if traced else False
        self._lines = traced.lines if traced else {}

    @contextlib.contextmanager
    def located(self):
        """Adds the lines of the user's to what the engine refuses inside the block."""
        try:
            yield
        except errors.Unsupported as refused:
            facts = [fact + next((f" ({line})" for name, line in self._lines.items() if line and fact.startswith(f"layer '{name}' ")), "")
                     for fact in refused.facts]
            raise errors.Unsupported(refused.what, facts, refused.remedies) from None


def refuse(model, trains=True):
    """Raises Unsupported with every reason that is known before the model is traced."""
    reasons = _reasons(model, trains)
    if reasons:
        raise errors.Unsupported("this model uses what Plimsoll does not train yet", reasons)


def describe(model, trains=True, x=None, y=None, weighted=False, even=False):
    """Raises Unsupported with every reason if the engine cannot compute the model. `x`, `y`: a batch of data, if known."""
    refuse(model, trains)
    with without_tensorflow():
        compiled = model.get_compile_config() if getattr(model, "compiled", False) else None
    if not trains and y is None and compiled is not None:
        from plimsoll import objective

        compiled = None if objective.own_parts(model) else compiled  # to predict, no loss is needed
    prepared = front.of(model)
    tail = model if prepared is None else prepared.tail
    if prepared is not None:
        x = None if x is None else prepared(x)
    traced, quotient = _trace(tail, model, compiled if trains or y is not None else None, x, (y, weighted, even), trains or y is not None)
    with without_tensorflow():
        architecture = traced.architecture if traced else _architecture(tail)
    if not traced:
        _size_inputs(architecture, tail, x)
    schedule = own_schedule(model.optimizer) if trains else None
    if schedule is not None:
        compiled["optimizer"]["config"]["learning_rate"] = 1e-3  # set before each step
    return Described(tail, architecture, compiled, schedule, traced, prepared, quotient)


def _size_inputs(architecture, model, x):
    """Gives inputs that are declared with None the lengths of the data, where there are several inputs."""
    structure = getattr(model, "_inputs_struct", None)
    if x is None or not is_functional(model) or isinstance(model, keras.Sequential) or len(model.inputs) < 2:
        return
    if isinstance(x, dict) and not isinstance(structure, dict):
        given = [x.get(tensor._keras_history.operation.name) for tensor in model.inputs]
        tensors = model.inputs
    else:
        given, tensors = tree.flatten(x), tree.flatten(structure)
    if len(given) != len(tensors):
        return
    shapes = {t._keras_history.operation.name: np.shape(a) for t, a in zip(tensors, given, strict=True) if a is not None and None in t.shape[1:]}
    for layer in architecture["config"]["layers"]:
        if layer["class_name"] == "InputLayer" and len(shapes.get(layer["config"]["name"], ())) == len(layer["config"]["batch_shape"]):
            layer["config"]["batch_shape"] = [None, *shapes[layer["config"]["name"]][1:]]


def _trace(model, owner, compiled, x, data, has_loss):
    """Traces the model, if it has Python code, and puts its owner's traced losses and metrics into `compiled`."""
    from plimsoll import assemble, objective

    traced, quotient, reasons = None, None, []
    if has_own_code(model):
        try:
            traced = assemble.assemble(model, _input_specs(model, x), has_loss)
        except errors.Unsupported as refused:
            reasons += refused.facts or [refused.what]
        except Exception as bug:  # Keras must still be able to train the model
            reasons.append(f"'{model.name}': its trace could not be read ({type(bug).__name__}: {bug}); please report this")
    if compiled is not None:
        try:
            face = traced.face if traced else model if is_functional(model) and model.built else None
            quotient = objective.rewrite(owner, compiled, face, *data)
        except errors.Unsupported as refused:
            reasons += refused.facts
    if reasons:
        raise errors.Unsupported("this model has Python code that cannot be traced", reasons)
    return traced, quotient


def has_own_code(model):
    """Whether a layer or the model itself computes in Python code of the user's."""
    if not is_functional(model) or not is_keras(getattr(type(model), "call", None)):
        return True
    return any(_is_own(layer) for layer in model._flatten_layers(include_self=False, recursive=True))


def _is_own(layer):
    if isinstance(layer, keras.layers.Lambda) or holds_function(layer):
        return True
    return not is_keras(type(layer)) and not (is_functional(layer) and is_keras(type(layer).call))


def holds_function(layer):
    """Whether a layer of Keras has an activation that is a function of the user's."""
    activation = layer.__dict__.get("activation")
    return callable(activation) and not isinstance(activation, keras.Layer) and not is_keras(activation)


def _input_specs(model, x):
    from plimsoll.trace import Spec

    def of_array(array):
        kind = np.dtype(getattr(array, "dtype", type(array))).kind if not hasattr(array, "dtype") or isinstance(array, np.ndarray) else "f"
        dtype = "float32" if kind == "f" else str(array.dtype)
        return Spec(np.shape(array)[1:], dtype)

    if is_functional(model) and getattr(model, "built", False):
        given = [] if x is None else list(tree.flatten(x))
        leaves = []
        for i, tensor in enumerate(model.inputs):
            shape = tensor.shape[1:]
            if None in shape and len(given) == len(model.inputs):
                shape = np.shape(given[i])[1:]
            if None in shape:
                raise errors.Unsupported("it cannot be traced", [f"its input has the shape {tuple(shape)}"], ["a shape in keras.Input"])
            leaves.append(Spec(shape, keras.backend.standardize_dtype(tensor.dtype)))
        structure = getattr(model, "_inputs_struct", None)
        if structure is None and hasattr(model, "_functional"):
            structure = model._functional._inputs_struct
        return leaves[0] if structure is None else tree.pack_sequence_as(structure, leaves)
    if x is None:
        raise errors.Unsupported("a model written in Python has no input shape before it gets data", [], ["plimsoll.fit(model, x, y)"])
    return tree.map_structure(of_array, x)


def _architecture(model):
    """What a file of the model would hold. A subclass that changes nothing of the computation is its base class."""
    if not is_keras(type(model)):
        plain = keras.Sequential(model._layers) if isinstance(model, keras.Sequential) else keras.Model(model.input, model.output)
        plain.name = model.name
        model = plain
    return keras.saving.serialize_keras_object(model)


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


def is_keras(thing):
    module = thing.__module__ if inspect.isclass(thing) or inspect.isroutine(thing) else type(thing).__module__
    return (module or "").split(".")[0] in ("keras", "keras_core")


def where(thing):
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
    reasons = []
    method = getattr(type(model), "predict_step", None)
    if method is not None and not is_keras(method):
        reasons.append(f"{type(model).__name__}.predict_step() is written in Python{where(method)}")
    return reasons


def is_functional(model):
    from keras.src.models.functional import Functional

    return isinstance(model, (Functional, keras.Sequential))


def _compile_reasons(model):
    reasons = []
    reasons += _optimizer_reasons(model.optimizer)
    return reasons


def scope_of(model):
    """Where variables of the model must be made."""
    strategy = getattr(model, "_distribute_strategy", None)
    return contextlib.nullcontext() if strategy is None else strategy.scope()


def one_replica(model):
    """What is told of a model that was made under a strategy's scope; None if it was not."""
    strategy = getattr(model, "_distribute_strategy", None)
    if strategy is None:
        return None
    count = getattr(strategy, "num_replicas_in_sync", 1)
    told = f"{type(strategy).__name__}: '{model.name}' trains as one replica"
    if count > 1:
        told += f" of the whole batch, not as {count} of a part each"
        if any(isinstance(layer, keras.layers.BatchNormalization) for layer in model._flatten_layers()):
            told += "; BatchNormalization uses the statistics of the whole batch"
    return told


def _optimizer_reasons(optimizer):
    if not is_keras(type(optimizer)):
        return [f"the optimizer is of a class of its own: {type(optimizer).__name__}{where(optimizer)}"]
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return ["the optimizer scales the loss (LossScaleOptimizer, mixed_float16)"]
    return []


def refuse_optimizer(optimizer):
    """Raises Unsupported if the engine does not have the optimizer."""
    reasons = _optimizer_reasons(optimizer)
    if reasons:
        raise errors.Unsupported("this model uses what Plimsoll does not train yet", reasons)


def own_schedule(optimizer):
    rate = getattr(optimizer, "_learning_rate", None)
    if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule) and not is_keras(type(rate)):
        return rate
    return None


def build_calls(model, x):
    """Builds a model's layers, as its first call does."""
    keras.ops.convert_to_numpy(tree.flatten(model(tree.map_structure(lambda a: a[:1], x), training=False))[0])


def build(model, first):
    """Builds the model's metrics, and its layers if they are not built, as Keras's fit does, from one batch."""
    if keras.backend.backend() == "numpy":
        _build_with_numbers(model, *first)
        return
    optimizer = getattr(model, "optimizer", None)
    first = tree.map_structure(front.with_strings, first)
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
