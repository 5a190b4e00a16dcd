"""What a trace records: calls of Keras's layers and operations on symbolic tensors, and what differs between training and inference."""

import contextlib
import json
import os
import sys

import keras
import numpy as np
from keras.src import backend, tree
from keras.src.backend.common.stateless_scope import StatelessScope
from keras.src.layers import layer as layer_module
from keras.src.layers.layer import Layer

from plimsoll import describe

KerasTensor = keras.KerasTensor
_LAYERS = ("keras.src.layers.",)
TRACED = "plimsoll.traced"


ADDS_LOSS = "it calls add_loss()"


class Refused(Exception):
    """The call does what cannot be recorded."""


class Node:
    """A call. `what`: a Layer or Operation of Keras, or the name of a class of the engine's module for traced calls."""

    def __init__(self, what, config, args, kwargs, outputs, batched):
        self.what, self.config, self.args, self.kwargs, self.outputs = what, config, args, kwargs, outputs
        self.batched = batched
        self.where = _caller()

    @property
    def is_layer(self):
        return isinstance(self.what, Layer)


_NOT_USERS = tuple(os.path.dirname(file) + os.sep for file in (keras.__file__, __file__, np.__file__)) + (
    f"{os.sep}site-packages{os.sep}", os.path.dirname(contextlib.__file__) + os.sep, "<")


def is_users(file):
    """Whether a source file is the user's: not one of Keras, of a library, or of this package."""
    return not file.startswith(_NOT_USERS[:3]) and not any(part in file for part in _NOT_USERS[3:])


def _caller():
    """'file.py:12': the innermost line of the user's that is being run."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if is_users(name):
            return f"{name.rsplit('/', 1)[-1]}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


class TracedVariable(KerasTensor):
    """What a layer written in Python sees in the place of its variable."""

    def __init__(self, variable):
        super().__init__(tuple(variable.shape), dtype=variable.dtype, name=variable.name)
        self.variable, self.trainable, self.path = variable, variable.trainable, variable.path

    @property
    def value(self):
        return self

    def assign(self, value):
        raise Refused(f"it assigns to its variable '{self.path}'")

    assign_add = assign_sub = assign


class Scope(StatelessScope):
    """Inside it, a variable's value is read by nobody but Keras's own layers."""

    def __init__(self):
        super().__init__(initialize_variables=False)
        self.layers = 0  # Keras's layers that are computing shapes

    def get_current_value(self, variable):
        if self.layers or "seed" in variable.name:
            return None
        raise Refused(f"it computes with the value of variable '{variable.path}' outside of Keras's operations")

    def add_update(self, update):
        if not self.layers:
            raise Refused(f"it assigns to variable '{update[0].path}'")

    def add_loss(self, loss):
        if not self.layers:
            raise Refused(ADDS_LOSS)


class Recorder:
    """The nodes of one call of a model, in order. Equal calls on equal tensors are one node."""

    step = False  # whether a training step is recorded, and not a call of a model
    fixed = None  # the size of every batch, where the code may have it as a number
    adds_losses = True  # False: add_loss() does not matter

    def __init__(self, batch):
        self.batch = batch
        self.nodes = []
        self.scope = Scope()
        self.phase = True
        self._known = {}
        self._places = {}  # id of a tensor -> (node, output)
        self._variables = {}
        self._draws = 0
        self._calls = {}
        self._kept = []
        self._owners = []
        self.views = {}  # id of a tensor whose first dimension is not the batch -> its View

    def place(self, tensor):
        return self._places.get(id(tensor))

    def input(self, tensor):
        self._places[id(tensor)] = (None, len(self._kept))
        self._kept.append(tensor)

    def variable(self, variable):
        if id(variable) not in self._variables:
            self._variables[id(variable)] = TracedVariable(variable)
        return self._variables[id(variable)]

    def batched(self, values):
        """Whether a tensor among the values differs from sample to sample."""
        return any(self._is_batched(leaf) for leaf in tree.flatten(values))

    def _is_batched(self, leaf):
        if isinstance(leaf, TracedVariable) or not isinstance(leaf, KerasTensor):
            return False
        if id(leaf) in self.views:
            raise Refused("it computes with a tensor whose first dimension is not the batch")
        node, _ = self._places[id(leaf)]
        return node is None or node.batched

    def record(self, what, config, args, kwargs, outputs, batched=None):
        key = self._key(what, config, args, kwargs)
        if key is not None and key in self._known:
            return self._known[key].outputs
        if batched is None:
            batched = self.batched((args, kwargs))
        node = Node(what, config, args, kwargs, outputs, batched)
        self.put(node)
        self.nodes.append(node)
        if key is not None:
            self._known[key] = node
        return outputs

    def put(self, node):
        """Notes where the tensors of a node come from."""
        for i, tensor in enumerate(tree.flatten(node.outputs)):
            self._places[id(tensor)] = (node, i)

    def _key(self, what, config, args, kwargs):
        try:
            parts = tree.map_structure(self._leaf_key, (args, kwargs))
            own = id(what) if isinstance(what, Layer) else what if isinstance(what, str) else type(what).__name__
            return json.dumps([own, config, parts], sort_keys=True, default=_text)
        except (TypeError, ValueError):
            return None

    def _leaf_key(self, leaf):
        if isinstance(leaf, (KerasTensor, backend.Variable)):
            return f"tensor {id(leaf)}"
        if backend.is_tensor(leaf) or isinstance(leaf, np.ndarray):
            array = np.asarray(backend.convert_to_numpy(leaf))
            return f"array {array.shape} {array.dtype} {hash(array.tobytes())}"
        return f"{type(leaf).__name__} {leaf}"

    def source(self, what, config, shape, dtype, args=()):
        tensor = KerasTensor(tuple(shape), dtype=dtype)
        return self.record(what, config, args, {}, tensor, batched=True)

    def draw(self):
        self._draws += 1
        return self._draws

    # Calls of layers

    def add_loss(self, layer, loss):
        if not self.scope.layers and self.adds_losses:
            raise Refused(ADDS_LOSS)

    def inlines(self, layer, training):
        """Whether a layer of Keras is called in another phase than its caller."""
        return training is not None and bool(training) != self.phase

    def enter(self, layer, call, args, kwargs):
        """A layer written in Python: its call in training and its call otherwise, and what differs between them."""
        same = self._key("call", None, args, {k: v for k, v in kwargs.items() if k != "training"})
        key = (id(layer), kwargs.get("training") in (None, self.phase), kwargs.get("training") if same else object(), same)
        if key in self._calls:
            return self._calls[key][0]
        with substituted(layer, self):
            follows = kwargs.get("training") in (None, self.phase)
            if not follows:
                outputs = call(*args, **kwargs)
            else:
                outputs = self._both(layer, call, args, kwargs)
        self._calls[key] = (outputs, args, kwargs)
        return outputs

    def _both(self, layer, call, args, kwargs):
        draws = self._draws
        trained = self._in_phase(True, call, args, kwargs)
        after, self._draws = self._draws, draws
        inferred = self._in_phase(False, call, args, kwargs)
        self._draws = max(self._draws, after)
        ours, theirs = tree.flatten(trained), tree.flatten(inferred)
        if len(ours) != len(theirs):
            raise Refused(f"'{layer.name}' returns other things in training than otherwise")
        return tree.pack_sequence_as(trained, [self._joined(a, b) for a, b in zip(ours, theirs, strict=True)])

    def _in_phase(self, phase, call, args, kwargs):
        context = layer_module.global_state.get_global_attribute("current_call_ctx")
        before, self.phase = self.phase, phase
        kept = context.training if context is not None and hasattr(context, "training") else None
        _set_training(context, phase)
        try:
            return call(*args, **({**kwargs, "training": phase} if "training" in kwargs else kwargs))
        finally:
            self.phase = before
            _set_training(context, kept)

    def _joined(self, trained, inferred):
        if trained is inferred or not isinstance(trained, KerasTensor):
            return trained
        if not isinstance(inferred, KerasTensor) or trained.shape != inferred.shape:
            raise Refused("its result has another shape in training than otherwise")
        made = KerasTensor(trained.shape, dtype=trained.dtype)
        views = self.views.get(id(trained)), self.views.get(id(inferred))
        if all(views) and views[0].groups == views[1].groups:
            self.views[id(made)] = type(views[0])(made, self._joined(views[0].under, views[1].under), views[0].groups)
            return made
        return self.record("ByPhase", {}, (trained, inferred), {}, made)


def _set_training(context, value):
    if context is not None and hasattr(context, "training"):
        context.training = value


def _text(value):
    return str(value)


def is_known(layer):
    """Whether the engine may know the layer: it is Keras's own, and holds no Python function."""
    return type(layer).__module__.startswith(_LAYERS) and not (
        isinstance(layer, (keras.layers.Lambda, keras.Model)) or describe.holds_function(layer))


_NOT_VARIABLES = {"_trainable_variables", "_non_trainable_variables", "_layers", "_metrics", "_tracker", "_seed_generators", "_losses",
                  "_inbound_nodes", "_outbound_nodes", "optimizer", "_functional", "_operations"}


@contextlib.contextmanager
def substituted(layer, recorder):
    """The layer's own variables are traced ones for the time of a call."""

    def swap(value):
        if isinstance(value, backend.Variable) and "seed" not in value.name:
            return recorder.variable(value)
        if isinstance(value, dict) and any(isinstance(v, (backend.Variable, list, tuple, dict)) for v in value.values()):
            return {k: swap(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)) and any(isinstance(v, (backend.Variable, list, tuple, dict)) for v in value):
            return [swap(v) for v in value]
        return value

    old = {}
    for name, value in list(layer.__dict__.items()):
        if name in _NOT_VARIABLES or not isinstance(value, (backend.Variable, list, tuple, dict)):
            continue
        new = swap(value)
        if new is not value:
            old[name] = value
            layer.__dict__[name] = new
    try:
        yield
    finally:
        layer.__dict__.update(old)
