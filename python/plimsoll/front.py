"""Layers that prepare a model's inputs and stay in Keras: lookups of strings, hashing, what computes outside of a graph.

They have no gradient and no weights that are trained. They run in Keras on each batch; the engine gets the model behind them.
"""

import keras
import numpy as np
from keras.src import tree
from keras.src.models.functional import Functional

from plimsoll import errors

_CLASSES = ("StringLookup", "TextVectorization", "Hashing", "HashedCrossing", "MelSpectrogram", "STFTSpectrogram")


class Front:
    """`tail`: the model behind the layers. Calling it computes the tail's inputs of a batch."""

    def __init__(self, model, graph, middle):
        self.tail = keras.Model(middle, graph.output, name=model.name)
        self._head = keras.Model(graph.input, middle)
        if getattr(model, "compiled", False):
            self.tail.compiled, self.tail.get_compile_config = True, model.get_compile_config

    def __call__(self, x):
        from plimsoll import hook

        with hook.keras_alone():
            made = tree.flatten(self._head(tree.map_structure(_given, x), training=False))
        return [np.asarray(keras.ops.convert_to_numpy(a)) for a in made]


def of(model):
    """The Front of a model; None if it has no such layers."""
    graph = model.__dict__.get("_functional") if isinstance(model, keras.Sequential) else model
    if not isinstance(graph, Functional) or not any(_stays(layer) for layer in graph.layers):
        return None
    before = _before(graph)
    middle = []
    for operation in graph.operations:
        for node in operation._inbound_nodes:
            if node.operation is operation and id(node) in before:
                continue
            middle += [t for t in node.input_tensors if id(t._keras_history.operation._inbound_nodes[t._keras_history.node_index]) in before]
    return Front(model, graph, list({id(t): t for t in middle}.values()))


def _stays(layer):
    known = type(layer).__name__ in _CLASSES and type(layer).__module__.startswith("keras.")
    return known or type(layer).__module__ == "keras.src.layers.preprocessing.feature_space"


def _before(model):
    """The ids of the nodes that lie before the last such layer of their branch, or are inputs."""
    nodes = {id(node): node for operation in model.operations for node in operation._inbound_nodes}
    wanted, waiting = set(), [node for node in nodes.values() if _stays(node.operation)]
    while waiting:
        node = waiting.pop()
        if id(node) in wanted:
            continue
        if node.operation.__dict__.get("_trainable_variables"):
            raise errors.Unsupported("its inputs are prepared by layers that stay in Keras",
                                     [f"'{node.operation.name}' is before such a layer, and is trained"])
        wanted.add(id(node))
        waiting += [t._keras_history.operation._inbound_nodes[t._keras_history.node_index] for t in node.input_tensors]
    return wanted | {key for key, node in nodes.items() if not node.input_tensors}


def _given(array):
    array = np.asarray(array)
    return keras.ops.convert_to_tensor(array.astype(np.float32)) if array.dtype == np.float64 else keras.ops.convert_to_tensor(with_strings(array))


def with_strings(array):
    """An array of strings as the framework's tensor."""
    strings = isinstance(array, np.ndarray) and array.dtype.kind in "OSU"
    return keras.ops.convert_to_tensor(array.tolist()) if strings else array
