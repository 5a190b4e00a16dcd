"""Batches of NumPy arrays from everything that Keras's fit takes.

Keras's own adapters read the data. Only arrays in memory are read here: Keras converts a whole float64 array to float32
first, which doubles it; here each batch is converted alone.
"""

import concurrent.futures
import itertools

import numpy as np
from keras.src import tree
from keras.src.trainers.data_adapters import data_adapter_utils
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter
from keras.src.trainers.data_adapters.generator_data_adapter import GeneratorDataAdapter
from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter
from keras.src.trainers.data_adapters.tf_dataset_adapter import TFDatasetAdapter
from keras.src.trainers.epoch_iterator import EpochIterator

from plimsoll import arrays, describe


class Feed(EpochIterator):
    """Keras's EpochIterator over NumPy batches. `batch_size` is the most samples that a batch can have."""

    def __init__(self, x, y=None, sample_weight=None, batch_size=None, steps_per_epoch=None, shuffle=False, class_weight=None):
        self._started = None  # the iterator whose first batch was looked at
        super().__init__(x, y, sample_weight, batch_size, steps_per_epoch, shuffle, class_weight)
        self._in_memory = isinstance(self.data_adapter, ArrayDataAdapter) and all(
            leaf is None or isinstance(leaf, np.ndarray) for leaf in tree.flatten(self.data_adapter._inputs)
        )
        self.first = unpack(self._look())
        self.batch_size = self._batch_size()

    @property
    def samples(self):
        """Samples per epoch; 0 if unknown."""
        if not isinstance(self.data_adapter, ArrayDataAdapter):
            return 0
        known = self.data_adapter._num_samples
        return min(known, self.steps_per_epoch * self.batch_size) if self.steps_per_epoch else known

    @property
    def is_even(self):
        """Whether every batch is known to have the same size."""
        return self.samples > 0 and self.samples % self.batch_size == 0

    @property
    def fixed_size(self):
        """The size of every batch; None if batches may differ."""
        if self.is_even:
            return self.batch_size
        return self.data_adapter.batch_size if isinstance(self.data_adapter, TFDatasetAdapter) else None

    @property
    def has_weights(self):
        return self.first[2] is not None

    def batches(self):
        """Yields (first step, last step, x, y, sample_weight) of an epoch."""
        for first, last, data in self.enumerate_epoch():
            yield first, last, *unpack(data[0])

    def _get_iterator(self):
        if self._in_memory:
            return self._rows()
        started, self._started = self._started, None
        return started or self._new_iterator()

    def _new_iterator(self):
        made = self.data_adapter.get_numpy_iterator()
        return _Ahead(made) if isinstance(self.data_adapter, TFDatasetAdapter) else iter(made)

    def _rows(self):
        adapter, size = self.data_adapter, self.data_adapter._batch_size
        samples, shuffle = adapter._num_samples, adapter._shuffle
        order = np.random.permutation(samples) if shuffle and shuffle != "batch" else None
        for start in range(0, samples, size):
            stop = min(start + size, samples)
            if shuffle == "batch":
                rows = start + np.random.permutation(stop - start)
            else:
                rows = slice(start, stop) if order is None else order[start:stop]
            yield tree.map_structure(lambda a, rows=rows: None if a is None else a[rows], adapter._inputs)

    def _look(self):
        """The first batch. Nothing that the caller gave is used up."""
        adapter = self.data_adapter
        if self._in_memory:
            state = np.random.get_state()
            try:
                return next(self._rows())
            finally:
                np.random.set_state(state)
        if isinstance(adapter, GeneratorDataAdapter):
            return tree.map_structure(_to_numpy, adapter._first_batches[0])
        if isinstance(adapter, PyDatasetAdapter):  # without its workers, which would go on from here
            return tree.map_structure(_to_numpy, adapter._standardize_batch(adapter.py_dataset[0]), none_is_leaf=False)
        started = self._new_iterator()
        first = next(started)
        self._started = itertools.chain([first], started)  # the first epoch goes on from here, as if nobody had looked
        return first

    def _batch_size(self):
        try:
            size = self.data_adapter.batch_size
        except NotImplementedError:
            size = None
        seen = next(len(leaf) for leaf in tree.flatten(self.first) if leaf is not None)
        return max(int(size or 0), seen) if not self.samples_known() else int(size)

    def samples_known(self):
        return isinstance(self.data_adapter, ArrayDataAdapter)


class _Ahead:
    """The batches of a tf.data pipeline, which computes the next one while the engine trains on this one."""

    def __init__(self, batches):
        self._batches = iter(batches)
        self._thread = concurrent.futures.ThreadPoolExecutor(1)
        self._next = None

    def __iter__(self):
        return self

    def __next__(self):
        if self._thread is None:
            raise StopIteration
        try:
            made = self._next.result() if self._next else next(self._batches)
        except BaseException:
            self._thread.shutdown(wait=False)
            self._thread = None
            raise
        self._next = self._thread.submit(next, self._batches)
        return made


class Sample:
    """The first batch of a loop whose source is not known."""

    _in_memory = False

    def __init__(self, x, y):
        self.first = (x, y, None)
        self.batch_size = len(tree.flatten(x)[0])


def _to_numpy(leaf):
    from keras.src import backend

    return leaf if leaf is None or isinstance(leaf, np.ndarray) else np.asarray(backend.convert_to_numpy(leaf))


def unpack(data):
    """(x, y, sample_weight) of a batch as a data source yields it."""
    return data_adapter_utils.unpack_x_y_sample_weight(data)


class Ports:
    """Brings Keras's structures of arrays into the engine's order: pairs of a name and an array."""

    def __init__(self, model, engine):
        self.inputs = _ports(getattr(model, "_inputs_struct", None), model.inputs, engine.input_names())
        self.outputs = _ports(getattr(model, "_outputs_struct", None), model.outputs, engine.output_names())
        self.with_loss = _with_loss(model, self.outputs)
        self._structure = getattr(model, "_outputs_struct", None)
        self._order = engine.output_names()

    def x(self, x):
        chosen = _choose(x, self.inputs, "x")
        if len(chosen) != len(self.inputs):
            raise ValueError(f"the model has {len(self.inputs)} inputs, x has {len(chosen)} arrays")
        return [(port.name, arrays.plain(array, port.dtype)) for port, array in zip(self.inputs, chosen, strict=True)]

    def y(self, y):
        return [] if y is None else [(name, arrays.plain(array)) for name, array in self._kept(_choose(y, self.outputs, "y"))]

    def sample_weight(self, weights, y):
        if weights is None:
            return []
        if len(self.outputs) > 1 and not isinstance(weights, (list, tuple, dict)):
            weights = [weights] * len(self.outputs)
        rows = len(tree.flatten(y)[0])
        chosen = self._kept(_choose(weights, self.outputs, "sample_weight"))
        return [(name, np.ones(rows, np.float32) if array is None else arrays.plain(array)) for name, array in chosen]

    def predictions(self, made):
        """The engine's arrays in the structure of the model's outputs."""
        by_name = dict(zip(self._order, made, strict=True))
        ordered = [by_name[port.name] for port in self.outputs] if self.outputs[0].name else list(made)
        return ordered[0] if self._structure is None else tree.pack_sequence_as(self._structure, ordered)

    def _kept(self, chosen):
        """Of one array per output: those of outputs with a loss."""
        if len(chosen) != len(self.outputs):
            return [("", array) for array in chosen]
        return [(port.name, array) for port, array, kept in zip(self.outputs, chosen, self.with_loss, strict=True) if kept]


class Port:
    """An input or output: its key in a dictionary, its layer's name, the engine's name ("": its place), its dtype."""

    def __init__(self, key, layer, name, dtype):
        self.key, self.layer, self.name, self.dtype = key, layer, name, dtype


def _ports(structure, tensors, names):
    keys = sorted(structure) if isinstance(structure, dict) else [None] * len(tensors)
    if isinstance(structure, dict) and not any(isinstance(value, (dict, list, tuple)) for value in structure.values()):
        tensors = [structure[key] for key in keys]  # as tree.flatten orders them
    elif len(keys) != len(tensors):
        keys = [None] * len(tensors)
    layers = [tensor._keras_history.operation.name for tensor in tensors]
    by_name = sorted(layers) == sorted(names) and len(set(layers)) == len(layers)
    return [Port(key, layer, layer if by_name else "", str(tensor.dtype)) for key, layer, tensor in zip(keys, layers, tensors, strict=True)]


def _with_loss(model, outputs):
    loss = None
    if getattr(model, "compiled", False):
        with describe.without_tensorflow():
            loss = model.get_compile_config().get("loss")
    if isinstance(loss, dict) and "class_name" not in loss:
        return [loss.get(port.key, loss.get(port.layer)) is not None for port in outputs]
    if isinstance(loss, (list, tuple)):
        return [each is not None for each in loss]
    return [True] * len(outputs)


def _choose(given, ports, what):
    if isinstance(given, dict):
        chosen = [given.get(port.key, given.get(port.layer)) for port in ports]
        missing = [port.key or port.layer for port, array in zip(ports, chosen, strict=True) if array is None]
        if missing and what == "x":
            raise ValueError(f"{what} has no array for {', '.join(map(repr, missing))}; it has {', '.join(map(repr, given))}")
        return chosen
    return list(tree.flatten(given)) if isinstance(given, (list, tuple)) else [given]
