"""Functions of TensorFlow on symbolic tensors: those with a counterpart in keras.ops are recorded as that.

TensorFlow asks its dispatchers before it gives up on an argument that it does not know. A function without a counterpart is
refused by its name. Random functions have no tensor among their arguments, so they are replaced while a call is traced.
"""

import contextlib
import math
import sys

import keras
from keras import ops

KerasTensor = keras.KerasTensor


def _norm_axes(function):
    return lambda input_tensor, axis=None, keepdims=False, name=None: function(input_tensor, axis=axis, keepdims=keepdims)


def _matmul(a, b, transpose_a=False, transpose_b=False, **_):
    turn = lambda x: ops.swapaxes(x, -1, -2)  # noqa: E731
    return ops.matmul(turn(a) if transpose_a else a, turn(b) if transpose_b else b)


def _gather(params, indices, validate_indices=None, axis=0, batch_dims=0, name=None):
    if batch_dims:
        raise NotImplementedError("tf.gather with batch_dims")
    return ops.take(params, indices, axis=axis or 0)


def _split(value, num_or_size_splits, axis=0, num=None, name="split"):
    if isinstance(num_or_size_splits, (list, tuple)):
        places, total = [], 0
        for size in num_or_size_splits[:-1]:
            total += size
            places.append(total)
        num_or_size_splits = places
    return ops.split(value, num_or_size_splits, axis=axis)


def _cast(x, dtype, name=None):
    return ops.cast(x, getattr(dtype, "name", dtype))


def _resize(images, size, method="bilinear", preserve_aspect_ratio=False, antialias=False, name=None):
    if preserve_aspect_ratio or antialias:
        raise NotImplementedError("tf.image.resize with preserve_aspect_ratio or antialias")
    return ops.image.resize(images, tuple(int(s) for s in size), interpolation=getattr(method, "value", method))


def _moments(x, axes, shift=None, keepdims=False, name=None):
    return ops.moments(x, axes=axes, keepdims=keepdims)


def _unary(function):
    return lambda x, *_, **named: function(x if x is not None else next(iter(named.values())))


def _binary(function):
    return lambda x, y, name=None: function(x, y)


def _reshape(tensor, shape, name=None):
    return ops.reshape(tensor, shape)


def _where(condition, x=None, y=None, name=None):
    return ops.where(condition, x, y)


def _tile(input, multiples, name=None):
    return ops.tile(input, multiples)


def _transpose(a, perm=None, conjugate=False, name="transpose"):
    return ops.transpose(a, perm)


def _softmax(logits, axis=-1, name=None):
    return ops.softmax(logits, axis=-1 if axis is None else axis)


def _log_softmax(logits, axis=-1, name=None):
    return ops.log_softmax(logits, axis=-1 if axis is None else axis)


def _clip(t, clip_value_min, clip_value_max, name=None):
    return ops.clip(t, clip_value_min, clip_value_max)


def _l2_normalize(x, axis=None, epsilon=1e-12, name=None, dim=None):
    total = ops.sum(ops.square(x), axis=axis, keepdims=True)
    return x * ops.rsqrt(ops.maximum(total, epsilon))


def _one_hot(indices, depth, on_value=None, off_value=None, axis=-1, dtype=None, name=None):
    if on_value is not None or off_value is not None:
        raise NotImplementedError("tf.one_hot with on_value")
    return ops.one_hot(indices, depth, axis=-1 if axis is None else axis, dtype=getattr(dtype, "name", dtype) or "float32")


def _concat(values, axis, name="concat"):
    return ops.concatenate(values, axis=axis)


def _stack(values, axis=0, name="stack"):
    return ops.stack(values, axis=axis)


def _expand(input, axis, name=None):
    return ops.expand_dims(input, axis)


def _squeeze(input, axis=None, name=None):
    return ops.squeeze(input, axis)


def _einsum(equation, *inputs, **_):
    return ops.einsum(equation, *inputs)


def _argmax(input, axis=None, output_type=None, name=None):
    return ops.argmax(input, axis=axis)


def _shape(input, out_type=None, name=None):
    return ops.shape(input)


def _rank(input, name=None):
    import tensorflow as tf

    return tf.constant(len(input.shape))


def _broadcast(input, shape, name=None):
    return ops.broadcast_to(input, shape)


def _zeros_like(input, dtype=None, name=None, layout=None):
    return ops.zeros_like(input)


def _ones_like(input, dtype=None, name=None, layout=None):
    return ops.ones_like(input)


def _repeat(input, repeats, axis=None, name=None):
    return ops.repeat(input, repeats, axis=axis)


def _sigmoid_cross_entropy(labels=None, logits=None, name=None):
    return ops.maximum(logits, 0) - logits * labels + ops.log1p(ops.exp(-ops.abs(logits)))


def _softmax_cross_entropy(labels, logits, axis=-1, name=None):
    return -ops.sum(labels * ops.log_softmax(logits, axis=axis), axis=axis)


def _sparse_cross_entropy(labels=None, logits=None, name=None):
    return ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)


def _unstack(value, num=None, axis=0, name="unstack"):
    return ops.unstack(value, num, axis)


def _cumprod(x, axis=0, exclusive=False, reverse=False, name=None):
    if reverse:
        raise NotImplementedError("tf.cumprod with reverse")
    if exclusive:
        whole = (slice(None),) * (axis % len(x.shape))
        x = ops.concatenate([ops.ones_like(x[(*whole, slice(0, 1))]), x[(*whole, slice(0, -1))]], axis=axis)
    return ops.cumprod(x, axis=axis)


def _cumsum(x, axis=0, exclusive=False, reverse=False, name=None):
    if reverse:
        raise NotImplementedError("tf.cumsum with reverse")
    total = ops.cumsum(x, axis=axis)
    return total - x if exclusive else total


def _psnr(a, b, max_val, name=None):
    error = ops.mean(ops.square(a - b), axis=(-3, -2, -1))
    return 20 * math.log10(max_val) - ops.log(error) * (10 / math.log(10))


_UNARY = {"exp": ops.exp, "log": ops.log, "log1p": ops.log1p, "sqrt": ops.sqrt, "rsqrt": ops.rsqrt, "square": ops.square, "abs": ops.abs,
          "sign": ops.sign, "sin": ops.sin, "cos": ops.cos, "tanh": ops.tanh, "sigmoid": ops.sigmoid, "relu": ops.relu, "relu6": ops.relu6,
          "elu": ops.elu, "softplus": ops.softplus, "floor": ops.floor, "negative": ops.negative, "erf": ops.erf, "silu": ops.silu,
          "identity": lambda x: x, "stop_gradient": ops.stop_gradient, "flip_left_right": lambda x: ops.flip(x, axis=-2),
          "flip_up_down": lambda x: ops.flip(x, axis=-3), "logical_not": ops.logical_not}
_BINARY = {"add": ops.add, "subtract": ops.subtract, "multiply": ops.multiply, "divide": ops.divide, "maximum": ops.maximum,
           "minimum": ops.minimum, "pow": ops.power, "equal": ops.equal, "not_equal": ops.not_equal, "greater": ops.greater,
           "greater_equal": ops.greater_equal, "less": ops.less, "less_equal": ops.less_equal, "logical_and": ops.logical_and,
           "logical_or": ops.logical_or, "squared_difference": lambda x, y: ops.square(x - y), "truediv": ops.divide,
          "real_div": ops.divide, "sub": ops.subtract, "mul": ops.multiply, "div_no_nan": ops.divide_no_nan, "mod": ops.mod,
          "floormod": ops.mod, "atan2": ops.arctan2, "add_v2": ops.add, "_add_dispatch": ops.add, "_mul_dispatch": ops.multiply,
           "_truediv_python3": ops.divide}
_OTHERS = {"matmul": _matmul, "linalg.matmul": _matmul, "reduce_sum": _norm_axes(ops.sum), "reduce_mean": _norm_axes(ops.mean),
           "reduce_max": _norm_axes(ops.max), "reduce_min": _norm_axes(ops.min), "reduce_prod": _norm_axes(ops.prod),
           "reduce_logsumexp": _norm_axes(ops.logsumexp), "gather": _gather, "split": _split, "cast": _cast, "resize_images_v2": _resize,
           "moments": _moments, "moments_v2": _moments, "reshape": _reshape, "where_v2": _where, "where": _where, "tile": _tile, "transpose_v2": _transpose,
           "transpose": _transpose, "softmax_v2": _softmax, "softmax": _softmax, "log_softmax_v2": _log_softmax,
           "clip_by_value": _clip, "l2_normalize_v2": _l2_normalize, "l2_normalize": _l2_normalize, "one_hot": _one_hot, "concat": _concat,
           "stack": _stack, "expand_dims_v2": _expand, "expand_dims": _expand, "squeeze_v2": _squeeze, "squeeze": _squeeze,
           "einsum": _einsum, "argmax_v2": _argmax, "shape_v2": _shape, "shape": _shape, "broadcast_to": _broadcast,
           "zeros_like_v2": _zeros_like, "ones_like_v2": _ones_like, "repeat": _repeat, "rank": _rank,
           "sigmoid_cross_entropy_with_logits": _sigmoid_cross_entropy, "sigmoid_cross_entropy_with_logits_v2": _sigmoid_cross_entropy,
           "softmax_cross_entropy_with_logits_v2": _softmax_cross_entropy, "softmax_cross_entropy_with_logits": _softmax_cross_entropy,
           "sparse_softmax_cross_entropy_with_logits": _sparse_cross_entropy, "sparse_softmax_cross_entropy_with_logits_v2": _sparse_cross_entropy,
           "unstack": _unstack, "cumprod": _cumprod, "cumsum": _cumsum, "psnr": _psnr}
_OTHERS.update({"reduce_sum_v1": _OTHERS["reduce_sum"], "reduce_logsumexp_v1": _OTHERS["reduce_logsumexp"]})

_INSIDE = ("convert_image_dtype",)  # functions that call it are known as a whole


def _counterpart(function):
    name = getattr(function, "__name__", "")
    if name in _UNARY:
        return _unary(_UNARY[name])
    if name in _BINARY:
        return _binary(_BINARY[name])
    return _OTHERS.get(name)


_installed = []


def _install():
    if _installed:
        return
    from tensorflow.python.util import dispatch

    class Symbolic(dispatch.GlobalOpDispatcher):
        def handle(self, op, args, kwargs):
            from plimsoll import trace

            if not trace.is_active() or not any(isinstance(leaf, KerasTensor) for leaf in keras.tree.flatten((args, kwargs))):
                return self.NOT_SUPPORTED
            replaced = _counterpart(op)
            if replaced is None and getattr(op, "__name__", "") in _INSIDE:
                return self.NOT_SUPPORTED
            if replaced is None:
                raise trace.Refused(f"it calls tf.{getattr(op, '__name__', op)}() on a tensor, which is not known here: "
                                    "a function of keras.ops can be recorded")
            try:
                return replaced(*args, **kwargs)
            except (TypeError, NotImplementedError) as reason:
                raise trace.Refused(f"it calls tf.{op.__name__}() with arguments that are not known here: {reason}") from reason

    Symbolic().register()
    _installed.append(Symbolic)


@contextlib.contextmanager
def understood():
    """Inside the block functions of TensorFlow are understood, where TensorFlow is loaded."""
    if "tensorflow" not in sys.modules:
        yield
        return
    _install()
    with drawn_by_keras():
        yield


@contextlib.contextmanager
def drawn_by_keras():
    """Inside the block tf.random draws from Keras's generator, whose numbers can be recorded and drawn again."""
    import tensorflow as tf

    functions = {name: getattr(tf.random, name) for name in ("normal", "uniform", "truncated_normal", "shuffle", "categorical")}
    for name in functions:
        setattr(tf.random, name, _drawing(name, functions[name]))
    try:
        yield
    finally:
        for name, function in functions.items():
            setattr(tf.random, name, function)


def _drawing(name, plain):
    def drawn(*arguments, **named):
        from plimsoll import trace

        if name in ("shuffle", "categorical"):
            if not trace.is_active():
                return plain(*arguments, **named)
            raise trace.Refused(f"it calls tf.random.{name}()")
        dtype = named.pop("dtype", None)
        named.pop("name", None)
        kind = getattr(dtype, "name", dtype)
        if name == "uniform" and kind and kind.startswith("int"):
            return keras.random.randint(*arguments, **named, dtype=kind)
        return getattr(keras.random, name)(*arguments, **named, dtype=kind)

    return drawn
