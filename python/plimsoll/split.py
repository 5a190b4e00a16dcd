"""Tensors that hold several batches, one behind the other, as one tensor per batch.

A GAN's step joins real and made images along the batch for its discriminator. The engine's values hold one batch. So each
node on such a tensor becomes one node per part: a layer is called once per part, with the same weights.
"""

import functools

import keras
import numpy as np
from keras.src import tree

from plimsoll import trace
from plimsoll.recorder import Node, Refused
from plimsoll.steps import changes_in_training

KerasTensor = keras.KerasTensor


def split(step, used):
    """The step's used nodes, without tensors of several batches. Draws of several batches get the parts of their numbers."""
    return _Splitter(step).run([node for node in step.nodes if id(node) in used])


class _Splitter:
    def __init__(self, step):
        self.recorder = step.recorder
        self.batch = step.recorder.batch
        self.nodes = []
        self._parts = {}  # id of a tensor -> its parts

    def run(self, nodes):
        for node in nodes:
            self._split(node)
        return self.nodes

    def _split(self, node):
        leaves = tree.flatten((node.args, node.kwargs))
        joined = [leaf for leaf in leaves if id(leaf) in self._parts]
        outputs = tree.flatten(node.outputs)
        name = node.what if isinstance(node.what, str) else type(node.what).__name__
        if name == "Fold":
            self._fold(node)
        elif name == "Draw" and self._times(outputs[0]) > 1:
            self._draw(node)
        elif name == "Concatenate" and (node.config or {}).get("axis") == 0 and self.recorder.batched(node.args):
            self._parts[id(outputs[0])] = [part for leaf in node.args[0] for part in self._parts.get(id(leaf)) or _rows(leaf)]
        elif joined:
            self._each(node, name, len(self._parts[id(joined[0])]))
        elif node.batched and any(self._times(t) > 1 for t in outputs):
            raise Refused(f"{name} joins samples of the batch{_at(node)}")
        else:
            self.nodes.append(node)

    def _times(self, tensor):
        return tensor.shape[0] // self.batch if tensor.shape and tensor.shape[0] and tensor.shape[0] % self.batch == 0 else 0

    def _each(self, node, name, times):
        outputs = tree.flatten(node.outputs)
        if any(self._times(t) != times for t in outputs):
            raise Refused(f"{name} joins samples of the batch{_at(node)}")
        if node.is_layer and changes_in_training(node.what) and self.recorder.trains:
            raise Refused(f"'{node.what.name}' is called on several batches at once{_at(node)}")
        made = [self._one(node, part, times) for part in range(times)]
        for i, tensor in enumerate(outputs):
            self._parts[id(tensor)] = [tree.flatten(one)[i] for one in made]

    def _one(self, node, part, times):
        args, kwargs = self._mapped(node.args, part, times), self._mapped(node.kwargs, part, times)
        outputs = tree.map_structure(lambda t: KerasTensor((self.batch, *t.shape[1:]), dtype=t.dtype), node.outputs)
        return self._new(node, node.what, node.config, args, kwargs, outputs)

    def _new(self, node, what, config, args, kwargs, outputs):
        made = Node(what, config and dict(config), args, kwargs, outputs, True)
        made.where, made.version = node.where, node.version
        self.nodes.append(made)
        self.recorder.put(made)
        return outputs

    def _mapped(self, value, part, times):
        if isinstance(value, (list, tuple)):
            return type(value)(self._mapped(one, part, times) for one in value)
        if isinstance(value, dict):
            return {key: self._mapped(one, part, times) for key, one in value.items()}
        if isinstance(value, trace.Parts):
            if len(value.rows) != times:
                raise Refused("it joins an array of other batches with a tensor")
            return value.rows[part]
        if isinstance(value, trace.Rows) or (isinstance(value, KerasTensor) and id(value) not in self._parts and self.recorder.batched(value)):
            raise Refused("it joins tensors of one batch with tensors of several")
        return self._parts[id(value)][part] if isinstance(value, KerasTensor) and id(value) in self._parts else value

    def _draw(self, node):
        times = self._times(node.outputs)
        self._parts[id(node.outputs)] = [
            self._new(node, "Draw", {**node.config, "part": part}, (), {}, KerasTensor((self.batch, *node.outputs.shape[1:]), dtype=node.outputs.dtype))
            for part in range(times)]

    def _fold(self, node):
        parts = self._parts[id(node.args[0])]
        total = functools.reduce(lambda a, b: self._operation(node, keras.src.ops.numpy.Add(), a, b), parts)
        if node.config["mean"]:
            total = self._operation(node, keras.src.ops.numpy.Multiply(), total, np.float32(1 / len(parts)))
        node.what, node.config, node.args = keras.src.ops.numpy.Copy(), {}, (total,)
        self.nodes.append(node)

    def _operation(self, node, what, a, b):
        return self._new(node, what, {}, (a, b), {}, KerasTensor(node.outputs.shape, dtype=node.outputs.dtype))


def _rows(leaf):
    return leaf.rows if isinstance(leaf, trace.Parts) else [leaf]


def _at(node):
    return f" ({node.where})" if node.where else ""
