"""A traced model is compared with the real call, on samples of the first batch, before anything is trained."""

import keras
import numpy as np
from keras.src import tree

from plimsoll import errors, hook, link

_SAMPLES = 4


def compare(run, first):
    """Raises Unsupported if the engine predicts something else than Keras. Random numbers cannot be compared."""
    described = run.described
    if not described.traced or described.draws or run.tie is not None:
        return
    x = tree.map_structure(lambda a: None if a is None else np.asarray(a)[:_SAMPLES], first[0])
    link.put_all(run.engine, described.variables)
    with hook.keras_alone():
        theirs = tree.flatten(run.model(tree.map_structure(_input, x), training=False))
    for a, b in zip(tree.flatten(run.predict(x)), theirs, strict=True):
        expected = np.asarray(keras.ops.convert_to_numpy(b), np.float64)
        close = a.shape == expected.shape and np.allclose(a, expected, rtol=2e-2, atol=2e-2 * (np.abs(expected).max(initial=0) + 1e-6))
        if not close:
            raise errors.Unsupported("this model computes something else than its trace", [_told(a, expected)],
                                     ["report this model: its trace should have been right, or refused"])


def _input(array):
    return array.astype(np.float32) if array.dtype.kind == "f" else array


def _told(ours, expected):
    if ours.shape != expected.shape:
        return f"its predictions have the shape {expected.shape}, those of the trace {ours.shape}"
    return f"its predictions differ by {np.abs(ours - expected).max():.2g} of {np.abs(expected).max():.2g}"
