"""NumPy's view of the elements that the engine reads and returns."""

import numpy as np

_PLAIN = {np.dtype(name) for name in
          ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")}


def dtype_of(name):
    """The NumPy dtype of a Keras name. bfloat16 needs ml_dtypes, which every Keras backend brings."""
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def plain(array, declared=None):
    """The array as the engine reads it: row-major, in native byte order, of a dtype that it knows.

    `declared` is the dtype of the model's input. Integer inputs take only that dtype; other inputs are converted by the
    engine, so a batch of float64 or uint8 is not copied here.
    """
    array = np.asarray(array)
    if declared and np.dtype(dtype_of(declared)).kind in "iub" and array.dtype != dtype_of(declared):
        array = _exact(array, dtype_of(declared))
    elif array.dtype not in _PLAIN or not array.dtype.isnative:
        if array.dtype.kind in "OUSVMm":
            raise TypeError(f"arrays of dtype {array.dtype} cannot be trained on")
        native = array.dtype.newbyteorder("=")
        array = array.astype(native if native in _PLAIN else np.float32)
    return np.require(array, requirements="C")


def _exact(array, dtype):
    """Converts to a dtype of whole numbers, as Keras does, but refuses numbers that it cannot hold."""
    if array.size and array.dtype.kind in "iuf" and dtype.kind in "iu":
        low, high = array.min(), array.max()
        limits = np.iinfo(dtype)
        if not (low >= limits.min and high <= limits.max):
            raise ValueError(f"an input of dtype {dtype} cannot hold the values {low} to {high}")
    return array.astype(dtype)
