"""Calls written in Python, recorded as what Plimsoll's engine computes: layers of Keras, operations of keras.ops, weights.

A model is called with symbolic tensors. Keras's own layers are recorded whole; layers, models and functions of the user's
are entered. A variable that they read is a symbolic tensor too, and so is every random number, so nothing is drawn or
computed once and kept as a constant. What is seen to depend on the value of a tensor is refused with its place.
"""

import contextlib
import functools
import inspect
import traceback

import keras
import numpy as np
from keras.src import backend, tree
from keras.src.layers import layer as layer_module
from keras.src.layers.layer import Layer
from keras.src.ops import operation as operation_module
from keras.src.ops.operation import Operation
from keras.src.utils import traceback_utils

from plimsoll import describe, errors, tensorflow_names, views
from plimsoll.recorder import TRACED, Recorder, Refused, TracedVariable, is_known, is_users, substituted

KerasTensor = keras.KerasTensor
_RANDOM = ("uniform", "normal", "truncated_normal", "randint", "categorical", "dropout", "shuffle", "gamma", "binomial", "beta")


_active = []


def is_active():
    """Whether a call is being traced, outside of Keras's own layers."""
    return bool(_active) and not _active[-1].scope.layers


def recorder():
    """The recorder of the trace that is in progress."""
    return _active[-1]


@contextlib.contextmanager
def recording(recorder):
    undo = []

    def put(owner, name, value):
        undo.append((owner, name, owner.__dict__.get(name)))
        setattr(owner, name, value)

    for name in _RANDOM:
        if hasattr(backend.random, name):
            put(backend.random, name, functools.partial(_draw, recorder, name, getattr(backend.random, name)))
    put(Operation, "symbolic_call", functools.partialmethod(_symbolic_operation, recorder))
    put(Layer, "symbolic_call", functools.partialmethod(_symbolic_layer, recorder, Layer.symbolic_call))
    put(Layer, "__call__", _calling(recorder, Layer.__call__))
    put(Layer, "add_loss", lambda self, loss: recorder.add_loss(self, loss))
    put(layer_module, "Node", lambda **_: None)
    put(operation_module, "Node", lambda **_: None)
    for name in ("__jax_array__", "__array__"):
        if name in KerasTensor.__dict__:
            undo.append((KerasTensor, name, KerasTensor.__dict__[name]))
            delattr(KerasTensor, name)
    put(KerasTensor, "__array_ufunc__", None)
    put(KerasTensor, "__tf_tensor__", _no_value)
    put(KerasTensor, "__bool__", _no_value)
    _active.append(recorder)
    filtered = traceback_utils.is_traceback_filtering_enabled()
    keras.config.disable_traceback_filtering()  # it would put other words around what is raised
    try:
        with recorder.scope, tensorflow_names.understood():
            yield recorder
    finally:
        _active.pop()
        if filtered:
            keras.config.enable_traceback_filtering()
        for owner, name, value in reversed(undo):
            if value is None:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


def _no_value(self, *_, **__):
    raise TypeError("a symbolic tensor has no value")


def _symbolic_operation(self, recorder, *args, **kwargs):
    if not recorder.scope.layers and views.find(recorder, (args, kwargs)):
        return views.call(recorder, type(self).__name__, self, operation_config(self), args, kwargs)
    if type(self).__name__ == "Sum" and isinstance(args[0], (list, tuple)):
        return functools.reduce(lambda a, b: a + b, args[0])  # ops.sum([loss, loss])
    if type(self).__name__ == "Sum" and args[0].shape == ():
        return args[0]
    if recorder.fixed and not recorder.scope.layers:
        self, args = _with_batch(self, recorder, args)
    if type(self).__name__ == "Reshape":
        args = (_before_reshape(recorder, args[0]), *args[1:])
    if type(self).__name__ == "Repeat" and self.axis is None and len(args[0].shape) > 1 and recorder.batched(args[0]):
        rows = keras.ops.reshape(args[0], (args[0].shape[0], -1))
        return keras.ops.reshape(keras.ops.repeat(rows, _one_number(self.repeats), axis=1), (-1,))
    if not recorder.scope.layers and views.begins(recorder, type(self).__name__, self, args):
        return views.call(recorder, type(self).__name__, self, operation_config(self), args, kwargs)
    recorder.scope.layers += 1
    try:
        outputs = self.compute_output_spec(*args, **kwargs)
    finally:
        recorder.scope.layers -= 1
    if type(self).__name__ == "ConvertToTensor" and isinstance(outputs, KerasTensor) and outputs.dtype == args[0].dtype:
        return args[0]
    args, kwargs = tree.map_structure(lambda leaf: _as_traced(recorder, leaf), (args, kwargs))
    return recorder.record(self, operation_config(self), args, kwargs, outputs)


def _with_batch(operation, recorder, args):
    """The code has the size of the batch as a number: where no other number can stand, it is taken for the batch."""
    fixed, batch = recorder.fixed, recorder.batch
    batched = [leaf for leaf in tree.flatten(args) if isinstance(leaf, KerasTensor) and leaf.shape and leaf.shape[0] == batch]
    if not batched:
        return operation, args
    if type(operation).__name__ == "Reshape" and tuple(operation.newshape[:1]) == (fixed,):
        rest = operation.newshape[1:]
        if -1 in rest or np.prod(rest) == np.prod(args[0].shape[1:]):
            return type(operation)((batch, *rest)), args
    rank = max(len(leaf.shape) for leaf in batched)

    def repeated(leaf):
        if isinstance(leaf, KerasTensor) or not (backend.is_tensor(leaf) or isinstance(leaf, np.ndarray)):
            return leaf
        array = np.asarray(backend.convert_to_numpy(leaf))
        if array.ndim != rank or array.shape[0] != fixed or (array != array[:1]).any():
            return leaf
        return np.repeat(array[:1], batch, axis=0)

    return operation, tree.map_structure(repeated, args)


def _before_reshape(recorder, x):
    """What a tensor was before it was reshaped: only the last of several reshapes counts."""
    node, _ = recorder.place(x) or (None, 0)
    while node is not None and type(node.what).__name__ == "Reshape":
        x = node.args[0]
        node, _ = recorder.place(x) or (None, 0)
    return x


def _one_number(repeats):
    repeats = np.asarray(repeats).reshape(-1)
    if repeats.size != 1:
        raise Refused("it calls repeat() with several counts")
    return int(repeats[0])


def _as_traced(recorder, leaf):
    return recorder.variable(leaf) if isinstance(leaf, backend.Variable) else leaf


def _calling(recorder, plain):
    @functools.wraps(plain)
    def __call__(self, *args, **kwargs):
        if recorder.scope.layers or any(isinstance(leaf, KerasTensor) for leaf in tree.flatten((args, kwargs))):
            return plain(self, *args, **kwargs)
        with substituted(self, recorder):  # on constants: position embeddings
            return plain(self, *args, **kwargs)

    return __call__


def _symbolic_layer(self, recorder, plain, *args, **kwargs):
    if recorder.scope.layers:
        return plain(self, *args, **kwargs)
    if not is_known(self):
        if getattr(self, "activity_regularizer", None) is not None:
            raise Refused(f"'{self.name}' has an activity_regularizer")
        outputs = recorder.enter(self, self.call, args, kwargs)
        _refuse_masks(self, args, kwargs)
        return outputs
    trains = kwargs.get("training")
    if views.find(recorder, (args, kwargs)):
        return views.call_layer(recorder, self, functools.partial(_symbolic_layer, self, recorder, plain), args, kwargs)
    if not recorder.batched((args, kwargs)) or recorder.inlines(self, trains):
        if isinstance(self, keras.layers.Dropout) and not trains:
            return args[0] if args else kwargs["inputs"]
        with substituted(self, recorder):
            return self.call(*args, **kwargs)
    given = _given(self, args, kwargs)
    recorder.scope.layers += 1
    try:
        outputs = plain(self, *args, **kwargs)
    finally:
        recorder.scope.layers -= 1
    return recorder.record(self, None, args, given, outputs)


def _given(layer, args, kwargs):
    """The named arguments that the caller gave. Keras adds the masks of the tensors, which the engine finds itself."""
    tensors = [t for t in tree.flatten((args, kwargs)) if isinstance(t, KerasTensor)]
    found = {id(backend.get_keras_mask(t)) for t in tensors}
    given = {}
    for name, value in kwargs.items():
        if name == "training" or value is None:
            continue
        if name.endswith("mask") and name != "attention_mask" and isinstance(value, (KerasTensor, list, tuple)):
            if all(leaf is None or id(leaf) in found for leaf in tree.flatten(value)):
                continue
            if name != "mask":
                raise Refused(f"it calls '{layer.name}' with {name}=")
        given[name] = value
    return given


def _refuse_masks(layer, args, kwargs):
    """The masks of Keras's layers are the engine's; those that Python makes or passes on would be lost."""
    has = any(backend.get_keras_mask(t) is not None for t in tree.flatten((args, kwargs)) if isinstance(t, KerasTensor))
    own = not type(layer).compute_mask.__module__.startswith("keras.")
    if isinstance(layer, keras.Model) and not own:
        return
    if own or (has and layer.supports_masking):
        raise Refused(f"'{layer.name}' makes a mask, or passes one on{describe.where(layer)}")


def _draw(recorder, name, plain, *args, **kwargs):
    if recorder.scope.layers:
        return plain(*args, **kwargs)
    bound = inspect.signature(plain).bind(*args, **kwargs)
    bound.apply_defaults()
    a = bound.arguments
    if name == "dropout":
        return _drop(recorder, a)
    if recorder.step:
        return recorder.drawn(name, plain, a)
    if name not in ("normal", "uniform", "randint"):
        raise Refused(f"it calls keras.random.{name}()")
    shape = [int(d) for d in a["shape"]]
    if not shape or shape[0] != recorder.batch:
        raise Refused(f"it draws {name} numbers of shape {shape}, whose first dimension is not the batch")
    config = {"shape": shape[1:], "draw": recorder.draw()}
    if name == "normal":
        config.update(scale=float(a["stddev"]), offset=float(a["mean"]))
        return recorder.source("RandomNormal", config, shape, a["dtype"] or keras.config.floatx())
    low, high = a["minval"], a["maxval"]
    if name == "uniform":
        config.update(scale=float(high) - float(low), offset=float(low))
        return recorder.source("RandomUniform", config, shape, a["dtype"] or keras.config.floatx())
    config.update(scale=float(high) - float(low), offset=float(low))
    return keras.ops.cast(keras.ops.floor(recorder.source("RandomUniform", config, shape, "float32")), a["dtype"] or "int32")


def _drop(recorder, a):
    x, rate = a["inputs"], float(a["rate"])
    shape = [int(d) for d in (a.get("noise_shape") or x.shape)]
    shape = [d if d is not None else x.shape[i] for i, d in enumerate(shape)]
    if shape[0] != recorder.batch:
        raise Refused(f"it drops out with noise of shape {shape}, whose first dimension is not the batch")
    config = {"shape": shape[1:], "draw": recorder.draw(), "scale": 1.0, "offset": 0.0}
    u = recorder.source("RandomUniform", config, shape, "float32")
    keep = keras.ops.cast(keras.ops.greater_equal(u, rate), x.dtype)
    return x * keep / (1.0 - rate)


def operation_config(operation):
    with describe.without_tensorflow():
        config = dict(keras.saving.serialize_keras_object(operation)["config"])
    config.pop("name", None)  # Keras counts them
    return config


BATCHES = (13, 17)


class Batch:
    """In the place of a number: the samples of a batch."""


class Rows:
    """In the place of an array: these rows for each sample."""

    def __init__(self, array):
        self.array = array


class Parts:
    """In the place of an array for several batches, one behind the other: the rows of each."""

    def __init__(self, rows):
        self.rows = rows


def trace(function, specs, who, adds_losses=True):
    """Traces function(*symbolic tensors) for two sizes of the batch. `specs`: structures of (shape of a sample, dtype)."""
    first, second = guarded(who, lambda: [_once(function, specs, batch, adds_losses) for batch in BATCHES])
    generalise(first, second, who)
    return first


def guarded(who, make):
    """What make() returns; Unsupported with the user's line if the user's code cannot be traced."""
    try:
        return make()
    except errors.PlimsollError:
        raise
    except Refused as reason:
        raise errors.Unsupported("it cannot be traced", [f"{who}: {reason}{_place(reason)}"]) from reason
    except Exception as reason:  # whatever the user's code does with a symbolic tensor
        text = str(reason).strip().splitlines()
        told = text[-1].strip() if text else type(reason).__name__
        raise errors.Unsupported("it cannot be traced", [f"{who}: {type(reason).__name__}: {told[:200]}{_place(reason)}"]) from reason


def generalise(first, second, who, used=None):
    """Makes the first of two traces right for every size of the batch. `used`: the ids of the nodes that matter; None: all."""
    if len(first.nodes) != len(second.nodes):
        raise errors.Unsupported("it cannot be traced", [f"{who}: it does something else each time it is called"])
    try:
        for a, b in zip(first.nodes, second.nodes, strict=True):
            if used is None or id(a) in used:
                _generalise(a, b)
    except Refused as reason:
        raise errors.Unsupported("it cannot be traced", [f"{who}: {reason}"]) from reason


class Traced:
    """What a call computes: nodes whose arguments are constants, tensors, and after _generalise `Batch` and `Rows`."""

    def __init__(self, nodes, inputs, outputs, recorder):
        self.nodes, self.inputs, self.outputs, self.recorder = nodes, inputs, outputs, recorder


class Spec:
    """The shape of one sample, and a dtype."""

    def __init__(self, shape, dtype):
        self.shape, self.dtype = tuple(shape), dtype


def _once(function, specs, batch, adds_losses):
    recorder = Recorder(batch)
    recorder.adds_losses = adds_losses
    inputs = tree.map_structure(lambda s: KerasTensor((batch, *s.shape), dtype=s.dtype), specs)
    for tensor in tree.flatten(inputs):
        recorder.input(tensor)
    with recording(recorder):
        outputs = function(*inputs)
    return Traced(recorder.nodes, inputs, outputs, recorder)


def _place(reason):
    """' (file.py:12)' of the innermost line of the user's that raised it."""
    found = ""
    for frame in traceback.extract_tb(reason.__traceback__):
        if is_users(frame.filename):
            found = f" ({frame.filename.rsplit('/', 1)[-1]}:{frame.lineno})"
    return found


def _generalise(a, b):
    """Turns what differs between two batches into what is right for each."""
    if type(a.what) is not type(b.what) or (isinstance(a.what, str) and a.what != b.what) or (a.is_layer and a.what is not b.what):
        raise Refused("it does something else each time it is called")
    name = a.what if isinstance(a.what, str) else type(a.what).__name__
    a.config = _general(a.config, b.config, name)
    a.args = _general(a.args, b.args, name)
    a.kwargs = _general(a.kwargs, b.kwargs, name)


def _general(a, b, name):
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return {key: _general(a[key], b[key], name) for key in a}
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and len(a) == len(b):
        return [_general(x, y, name) for x, y in zip(a, b, strict=True)]
    if isinstance(a, KerasTensor) and isinstance(b, KerasTensor):
        return a
    if isinstance(a, slice) and isinstance(b, slice):
        return slice(*(_general(getattr(a, k), getattr(b, k), name) for k in ("start", "stop", "step")))
    if backend.is_tensor(a) or isinstance(a, np.ndarray):
        return _general_array(np.asarray(backend.convert_to_numpy(a)), np.asarray(backend.convert_to_numpy(b)), name)
    if type(a) is type(b) and (a is b or a == b):
        return a
    if type(a) is int and type(b) is int and times(a, b):
        return Batch
    if isinstance(a, (int, float)) and isinstance(b, (int, float)) and np.isclose(float(a) * BATCHES[1], float(b) * BATCHES[0]):
        raise Refused(f"{name} computes with the number of samples in the batch")
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        raise Refused(f"{name} gets another number each time it is called: it is drawn, or comes from outside of Keras")
    raise Refused(f"{name} gets something else each time it is called")


def times(a, b):
    """How many batches a and b count, in the two traces; 0 if something else."""
    return a // BATCHES[0] if a % BATCHES[0] == 0 and a // BATCHES[0] * BATCHES[1] == b else 0


def _general_array(a, b, name):
    if a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind == "f"):
        return a
    if a.ndim == 0 and a.shape == b.shape and np.isclose(float(a) * BATCHES[1], float(b) * BATCHES[0]):
        raise Refused(f"{name} computes with the number of samples in the batch")
    if a.shape == b.shape:
        raise Refused(f"{name} gets other numbers each time it is called: they are drawn, or come from outside of Keras")
    count = times(a.shape[0], b.shape[0]) if a.ndim and a.shape[1:] == b.shape[1:] else 0
    if count:
        parts = [x for x, y in zip(np.split(a, count), np.split(b, count), strict=True) if (x == x[:1]).all() and (y == x[:1]).all()]
        if len(parts) == count:
            return Rows(a[:1]) if count == 1 else Parts([Rows(part[:1]) for part in parts])
    raise Refused(f"{name} gets an array that depends on the number of samples in the batch")
