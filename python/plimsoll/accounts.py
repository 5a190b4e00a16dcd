"""What the process holds before it trains, and what it will take beside the engine."""

import gc
import re

import keras
import numpy as np
from keras.src import tree

from plimsoll import memory

# Keras's adapters keep buffers and iterators of their own.
_FEED = 32 * memory.MIB


class Account:
    """`lines` names what was held when fit was called. `reserved` bytes are taken later."""

    def __init__(self, model, feeds, callbacks, optimizer, options):
        # Both take a part of a second, and the pages are read again later: only where there is little room.
        tight = "budget" in options and memory.resident_bytes() > _bytes_of(options["budget"]) // 4
        dropped = 0
        if tight:
            gc.collect()
            dropped = memory.drop_clean_pages()
        held = memory.resident_bytes()
        weights = sum(_bytes(v) for v in model.weights)
        state = sum(_bytes(v) for v in getattr(optimizer, "variables", ()) if v is not None)
        data = sum(_array_bytes(feed) for feed in feeds)
        named = (("live model", weights), ("its optimizer", state), ("arrays of data", data))
        self.lines = [f"held by the script when fit was called: {memory.format_bytes(held)}"]
        self.lines += [f"  {name}: {memory.format_bytes(size)}" for name, size in named if size]
        self.lines.append(f"  Python, frameworks and the rest: {memory.format_bytes(max(0, held - weights - state - data))}")
        if dropped > memory.MIB:
            self.lines.append(f"pages of files that were given back first: {memory.format_bytes(dropped)}")
        feeding = sum(_FEED + 2 * _batch_bytes(feed) for feed in feeds if not feed._in_memory)
        copies = _copies(callbacks, weights, state)
        self.reserved = feeding + copies
        if feeding:
            self.lines.append(f"reserved for the data source: {memory.format_bytes(feeding)}")
        if copies:
            self.lines.append(f"reserved for copies that callbacks make: {memory.format_bytes(copies)}")


def _bytes_of(size):
    """The bytes of a budget such as "2GiB"; 0 for text that the library will refuse."""
    found = re.fullmatch(r"\s*([\d.]+)\s*([KMGT]?)(i?)B?\s*", size, re.IGNORECASE)
    if not found:
        return 0
    base = 1000 if not found[3] and size.strip().upper().endswith("B") else 1024
    return int(float(found[1]) * base ** " KMGT".index(found[2].upper() or " "))


def _bytes(variable):
    from plimsoll.arrays import dtype_of

    return int(np.prod(variable.shape, dtype=np.int64)) * dtype_of(keras.backend.standardize_dtype(variable.dtype)).itemsize


def _array_bytes(feed):
    if not feed._in_memory:
        return 0
    return sum(a.nbytes for a in tree.flatten(feed.data_adapter._inputs) if isinstance(a, np.ndarray) and a.base is None)


def _batch_bytes(feed):
    return sum(np.asarray(a).nbytes for a in tree.flatten(feed.first) if a is not None)


def _copies(callbacks, weights, state):
    """Keras's own callbacks that hold or write copies of the weights."""
    most = 0
    kept = 0
    for callback in callbacks:
        if isinstance(callback, keras.callbacks.EarlyStopping) and callback.restore_best_weights:
            kept += weights
        if isinstance(callback, (keras.callbacks.ModelCheckpoint, keras.callbacks.BackupAndRestore)):
            alone = getattr(callback, "save_weights_only", False)
            most = max(most, weights if alone else (weights + state) * 4 // 3)  # Keras builds the file in memory
    return kept + most
