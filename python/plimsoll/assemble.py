"""A traced model as a Functional model in Keras's JSON, whose layers are the engine's: layers of Keras, operations of keras.ops, weights."""

import types

import keras
import numpy as np
from keras.src import backend, tree

from plimsoll import describe, errors, trace

KerasTensor = keras.KerasTensor
_FLAT = "it cannot be traced"


class Face:
    """The inputs and outputs of a model, as the engine's description has them."""

    def __init__(self, model, inputs, outputs):
        self._model = model
        self._inputs_struct, self.inputs = inputs if isinstance(inputs, dict) else None, tree.flatten(inputs)
        self._outputs_struct = None if isinstance(outputs, KerasTensor) else outputs
        self.outputs = tree.flatten(outputs)

    @property
    def compiled(self):
        return getattr(self._model, "compiled", False)

    def get_compile_config(self):
        return self._model.get_compile_config()


class Assembled:
    """`architecture`: the JSON. `variables`: the live variables in the engine's order. `face`: the model's ends."""

    def __init__(self, architecture, writer, face):
        self.architecture, self.face = architecture, face
        self.variables, self.draws, self.lines = writer.variables, writer.draws, writer.lines


def assemble(model, specs, trains=True):
    """`specs`: the structure of the model's inputs, with trace.Spec leaves."""
    who = f"'{model.name}' ({type(model).__name__})"
    traced = trace.trace(lambda x: model(x, training=True), [specs], who, adds_losses=trains)
    writer = Writer(traced, who)
    inputs, outputs = traced.inputs[0], traced.outputs
    if isinstance(model.__dict__.get("_functional", model), keras.src.models.functional.Functional):
        in_names, out_names = _names(model)
        face = model
    else:
        in_names = [f"input_{i}" for i in range(len(tree.flatten(inputs)))]
        if isinstance(inputs, dict):
            in_names = sorted(inputs)
        out_names = [f"output_{i}" for i in range(len(tree.flatten(outputs)))]
        if isinstance(outputs, dict):
            out_names = sorted(outputs)
        face = Face(model, _named(inputs, in_names), _named(outputs, out_names))
    architecture = writer.model(model, tree.flatten(inputs), in_names, tree.flatten(outputs), out_names)
    ours = [v for v in writer.variables if v.trainable]
    theirs = list(model.trainable_variables)
    if len(ours) != len(theirs) or any(a is not b for a, b in zip(ours, theirs, strict=True)):
        unused = [v.path for v in theirs if all(v is not other for other in ours)]
        raise errors.Unsupported(_FLAT, [f"{who}: these of its weights are not read by its call: {', '.join(unused[:5])}"
                                         if unused else f"{who}: its weights are listed in another order than its layers"])
    return Assembled(architecture, writer, face)


def _names(model):
    return ([t._keras_history.operation.name for t in model.inputs], [t._keras_history.operation.name for t in model.outputs])


def _named(structure, names):
    """Stand-ins for tensors that know the name of their layer, as tensors of Functional models do."""
    leaves = []
    for tensor, name in zip(tree.flatten(structure), names, strict=True):
        made = KerasTensor((None, *tensor.shape[1:]), dtype=tensor.dtype)
        made._keras_history = types.SimpleNamespace(operation=types.SimpleNamespace(name=name))
        leaves.append(made)
    return tree.pack_sequence_as(structure, leaves)


class Writer:
    def __init__(self, traced, who):
        self.traced, self.who = traced, who
        self.batch = traced.recorder.batch
        self.variables = []
        self.draws = False
        self._entries = {}  # name -> layer's JSON, in the order of the listing
        self._names = {}  # id of a layer -> its name
        self._counts = {}
        self._places = {}  # id of a tensor -> [name, call, output]
        self.lines = {}  # name of a layer -> the line of the user's that calls it

    def refuse(self, reason):
        raise errors.Unsupported(_FLAT, [f"{self.who}: {reason}"])

    def model(self, model, inputs, in_names, outputs, out_names):
        used = self._used(outputs)
        for tensor, name in zip(inputs, in_names, strict=True):
            self._entries[name] = _input_layer(name, tensor)
            self._places[id(tensor)] = [name, 0, 0]
        self._list_weights(model, used, (), set())
        for node in self.traced.nodes:
            if id(node) in used:
                self._node(node)
        ends = [self._end(tensor, name) for tensor, name in zip(outputs, out_names, strict=True)]
        return self._functional(model.name, inputs, ends)

    def function(self, name, inputs, in_names, output):
        """A function of tensors alone, without weights."""
        used = self._used([output])
        for tensor, in_name in zip(inputs, in_names, strict=True):
            self._entries[in_name] = _input_layer(in_name, tensor)
            self._places[id(tensor)] = [in_name, 0, 0]
        for node in self.traced.nodes:
            if id(node) in used:
                self._node(node)
        return self._functional(name, inputs, [self._end(output, "rows")])

    def _functional(self, name, inputs, ends):
        return {"module": "keras", "class_name": "Functional", "registered_name": None, "config": {
            "name": name, "trainable": True, "layers": list(self._entries.values()),
            "input_layers": [self._places[id(t)] for t in inputs], "output_layers": ends}}

    def _used(self, outputs):
        recorder, used = self.traced.recorder, set()
        waiting = [t for t in outputs]
        while waiting:
            tensor = waiting.pop()
            place = recorder.place(tensor)
            if place is None or place[0] is None or id(place[0]) in used:
                continue
            used.add(id(place[0]))
            waiting += [t for t in tree.flatten((place[0].args, place[0].kwargs))
                        if isinstance(t, KerasTensor) and not isinstance(t, trace.TracedVariable)]
        return used

    def _list_weights(self, layer, used, path, seen):
        """Lists layers in the order in which Keras lists their weights."""
        if id(layer) in seen:
            return
        seen.add(id(layer))
        if trace.is_known(layer):
            if any(node.what is layer and id(node) in used for node in self.traced.nodes):
                name = self._fresh("/".join((*path, layer.name)))
                self._names[id(layer)] = name
                with describe.without_tensorflow():
                    entry = keras.saving.serialize_keras_object(layer)
                config = {**entry["config"], "name": name, **self._frozen(layer)}
                self._entries[name] = {**entry, "name": name, "config": config, "inbound_nodes": []}
                self.variables += layer.weights
                return
            if not layer.weights:
                return
        own = [v for v in (*layer._trainable_variables, *layer._non_trainable_variables)]
        if own:
            self._weights_entry("/".join((*path, layer.name)) if path else layer.name, layer, own)
        below = (*path, layer.name) if path or not isinstance(layer, keras.Model) else ()
        if not path and isinstance(layer, keras.Model):
            below = ()
        for inner in layer._layers:
            self._list_weights(inner, used, below, seen)

    def _frozen(self, layer):
        """What the configuration of a layer of Keras says otherwise here."""
        return {}

    def _trains(self, variable):
        return bool(variable.trainable)

    def _weights_entry(self, name, layer, variables):
        name = self._fresh(name)
        specs = []
        for variable in variables:
            spec = {"name": variable.name, "shape": list(variable.shape), "trainable": self._trains(variable)}
            if any(other["name"] == spec["name"] for other in specs):
                spec["name"] = f"{variable.name}_{len(specs)}"
            with describe.without_tensorflow():
                for key, value in (("value_regularizer", variable.regularizer), ("value_constraint", variable.constraint)):
                    if value is not None:
                        spec[key] = keras.saving.serialize_keras_object(value)
            self._places[id(self.traced.recorder.variable(variable))] = [name, 0, len(specs)]
            specs.append(spec)
        self._entries[name] = {"module": trace.TRACED, "class_name": "Weights", "registered_name": None, "name": name, "config": {
            "name": name, "dtype": layer.dtype_policy.name, "weights": specs}, "inbound_nodes": [{"args": [], "kwargs": {}}]}
        self.variables += variables

    def _fresh(self, wish):
        name, n = wish, 0
        while name in self._entries:
            n += 1
            name = f"{wish}_{n}"
        return name

    def _operation(self, module, class_name, config, args, kwargs):
        base = keras.src.utils.naming.to_snake_case(class_name)
        self._counts[base] = self._counts.get(base, -1) + 1
        name = self._fresh(base if self._counts[base] == 0 else f"{base}_{self._counts[base]}")
        self._entries[name] = {"module": module, "class_name": class_name, "registered_name": None, "name": name,
                               "config": {**config, "name": name}, "inbound_nodes": [{"args": args, "kwargs": kwargs}]}
        return name

    def _traced(self, class_name, config, args):
        return [self._operation(trace.TRACED, class_name, config, args, {}), 0, 0]

    def _end(self, tensor, name):
        """The place of an output, whose layer has the name that Keras reports it under."""
        if not isinstance(tensor, KerasTensor) or self.traced.recorder.place(tensor) is None:
            self.refuse("an output is no tensor that depends on its input")
        place = self._places[id(tensor)]
        if place[0] == name:
            return place
        renamed = self._fresh(name)
        self._entries[renamed] = {"module": "keras.src.ops.numpy", "class_name": "Copy", "registered_name": None, "name": renamed,
                                  "config": {"name": renamed}, "inbound_nodes": [{"args": [self._tensor(tensor, place)], "kwargs": {}}]}
        return [renamed, 0, 0]

    def _node(self, node):
        if node.is_layer:
            name = self._names.get(id(node.what))
            if name is None:
                self.refuse(f"it calls '{node.what.name}', which is not among its layers: make it an attribute of the layer")
            calls = self._entries[name]["inbound_nodes"]
            named = {k: _rows_of(v) if k == "attention_mask" else v for k, v in node.kwargs.items()}
            calls.append({"args": [self._value(a) for a in node.args], "kwargs": {k: self._value(v) for k, v in named.items()}})
            first = [name, len(calls) - 1]
        else:
            first = self._written(node)
        self.lines[first[0]] = node.where
        for i, tensor in enumerate(tree.flatten(node.outputs)):
            self._places[id(tensor)] = [*first[:2], i]

    def _written(self, node):
        if isinstance(node.what, str):
            config = {k: v for k, v in node.config.items() if k != "draw"}
            self.draws = self.draws or node.what.startswith("Random")
            return self._traced(node.what, config, [self._value(a) for a in node.args])
        class_name = type(node.what).__name__
        special = _SPECIAL.get(class_name)
        config, args = dict(node.config), list(node.args)
        if special is not None:
            done = special(self, node, config, args)
            if done is not None:
                return done
        if any(leaf is trace.Batch for leaf in tree.flatten((config, args, node.kwargs))):
            self.refuse(f"{class_name} depends on the number of samples in the batch")
        config.pop("name", None)
        return [self._operation(type(node.what).__module__, class_name, config, [self._value(a) for a in args],
                                {k: self._value(v) for k, v in node.kwargs.items()}), 0, 0]

    def _tensor(self, tensor, place):
        shape = list(tensor.shape)
        if self.traced.recorder.batched(tensor):
            shape[0] = None
        return _tensor(shape, keras.backend.standardize_dtype(tensor.dtype), place)

    def _value(self, value):
        if isinstance(value, KerasTensor):
            place = self._places.get(id(value))
            if place is None:
                variable = getattr(value, "variable", None)
                self.refuse(f"it reads a tensor from outside of its call: {variable.path if variable is not None else value.name}")
            return self._tensor(value, place)
        if isinstance(value, trace.Rows):
            return _tensor([None, *value.array.shape[1:]], str(value.array.dtype), self._traced("Rows", {}, [_array(value.array)]))
        if isinstance(value, dict):
            return {key: self._value(one) for key, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._value(one) for one in value]
        if isinstance(value, slice):
            return {"class_name": "__slice__", "config": {k: _number(getattr(value, k)) for k in ("start", "stop", "step")}}
        if value is Ellipsis:
            return {"class_name": "__ellipsis__", "config": {}}
        if isinstance(value, np.ndarray) or backend.is_tensor(value):
            array = np.asarray(backend.convert_to_numpy(value))
            return _array(array)
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, np.generic):
            return value.item()
        self.refuse(f"an argument that is a {type(value).__name__}")


def _rows_of(value):
    """A constant mask that broadcasts over the batch, as a tensor with a batch."""
    if not isinstance(value, np.ndarray) and not backend.is_tensor(value):
        return value
    array = np.asarray(backend.convert_to_numpy(value))
    return trace.Rows(array if array.ndim > 2 and array.shape[0] == 1 else array[None] if array.ndim == 2 else array)


def _tensor(shape, dtype, place):
    return {"class_name": "__keras_tensor__", "config": {"shape": list(shape), "dtype": dtype, "keras_history": list(place)}}


def _number(value):
    return value.item() if isinstance(value, np.generic) else value


def _array(array):
    return {"class_name": "__numpy__", "config": {"value": array.tolist(), "dtype": str(array.dtype)}}


def _input_layer(name, tensor):
    return {"module": "keras.layers", "class_name": "InputLayer", "registered_name": None, "name": name, "inbound_nodes": [],
            "config": {"name": name, "batch_shape": [None, *tensor.shape[1:]], "dtype": keras.backend.standardize_dtype(tensor.dtype)}}


def _is_batched(writer, value):
    return writer.traced.recorder.batched(value)


def _reshape(writer, node, config, args):
    """Every size is known here; that of the batch is the engine's."""
    tensor, made = args[0], node.outputs
    if not _is_batched(writer, tensor):
        if any(leaf is trace.Batch for leaf in config["newshape"]):
            return None
        config["newshape"] = list(made.shape)
        return None
    if made.shape[0] != writer.batch or tensor.shape[0] != writer.batch:
        writer.refuse(f"it reshapes {_shown(writer, tensor)} to {_shown(writer, made)}, which joins samples of the batch")
    config["newshape"] = [-1, *made.shape[1:]]
    return None


def _shown(writer, tensor):
    return f"[{', '.join('batch' if d == writer.batch else str(d) for d in tensor.shape)}]"


def _repeat_rows(writer, tensor, made):
    """A function of weights, or a constant, repeated for each sample: Rows, then a broadcast of the other dimensions."""
    shape = list(made.shape)
    inner = [1] * (len(shape) - len(tensor.shape)) + list(tensor.shape)
    if shape[0] != writer.batch or inner[0] != 1:
        return None
    value, dtype = writer._value(tensor), keras.backend.standardize_dtype(tensor.dtype)
    if len(tensor.shape) < len(shape):
        name = writer._operation("keras.src.ops.numpy", "Reshape", {"newshape": inner}, [value], {})
        value = _tensor(inner, dtype, [name, 0, 0])
    place = writer._traced("Rows", {}, [value])
    if inner[1:] == shape[1:]:
        return place
    whole = _tensor([None, *inner[1:]], dtype, place)
    return [writer._operation("keras.src.ops.numpy", "BroadcastTo", {"shape": [None, *shape[1:]]}, [whole], {}), 0, 0]


def _broadcast_to(writer, node, config, args):
    if not _is_batched(writer, args[0]):
        return _repeat_rows(writer, args[0], node.outputs) if trace.Batch in config["shape"] else None
    if node.outputs.shape[0] != writer.batch:
        writer.refuse(f"it broadcasts to {_shown(writer, node.outputs)}, which joins samples of the batch")
    config["shape"] = [None, *node.outputs.shape[1:]]
    return None


def _tile(writer, node, config, args):
    repeats = config.get("repeats")
    if not _is_batched(writer, args[0]) and isinstance(repeats, list) and trace.Batch in repeats:
        if all(r == 1 for r in repeats if r is not trace.Batch):
            return _repeat_rows(writer, args[0], node.outputs)
    return None


def _repeat(writer, node, config, args):
    if not _is_batched(writer, args[0]) and config.get("repeats") is trace.Batch and config.get("axis") == 0:
        return _repeat_rows(writer, args[0], node.outputs)
    return None


_SPECIAL = {"Reshape": _reshape, "BroadcastTo": _broadcast_to, "Tile": _tile, "Repeat": _repeat}
