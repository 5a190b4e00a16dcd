"""Tensors whose first dimension is not the batch alone, as code in Python makes them on the way.

Attention that is written by hand moves the batch (a transpose to [3, batch, heads, ...], of which it takes the parts), and windows
are put into the batch (a reshape to [batch * windows, ...]). The engine's values have the batch first. So the trace keeps the tensor
with the batch first, and how it looks to the code: each of its dimensions is one or several dimensions of the kept one.
"""

import numpy as np
from keras import KerasTensor
from keras.src import ops

from plimsoll.recorder import Refused

_ELEMENTWISE = {"Add", "Subtract", "Multiply", "Divide", "TrueDivide", "DivideNoNan", "Power", "Maximum", "Minimum", "Mod", "Negative", "Absolute", "Exp",
                "Log", "Log1p", "Sqrt", "Rsqrt", "Square", "Sin", "Cos", "Tanh", "Sigmoid", "Relu", "Relu6", "Gelu", "Silu", "Elu", "Softplus", "LeakyRelu",
                "Cast", "StopGradient", "Where", "Equal", "NotEqual", "Greater", "GreaterEqual", "Less", "LessEqual", "LogicalAnd", "LogicalOr",
                "LogicalNot", "Clip", "Erf", "Sign", "Reciprocal", "Copy", "Matmul", "ConvertToTensor"}
_BY_AXIS = {"Softmax", "LogSoftmax", "Sum", "Mean", "Max", "Min", "Prod", "Concatenate", "ExpandDims", "Squeeze", "Logsumexp", "Argmax", "Var", "Std"}
_LAYERS = {"Dense", "Dropout", "Activation", "ReLU", "LeakyReLU", "Softmax", "LayerNormalization", "Identity"}


class View:
    """`tensor`: what the code sees. `under`: the recorded tensor, batch first. `groups`: per dimension of `tensor`, those of `under`."""

    def __init__(self, tensor, under, groups):
        self.tensor, self.under, self.groups = tensor, under, groups


def find(recorder, values):
    """Whether a View is among some arguments."""
    return recorder.views and any(id(leaf) in recorder.views for leaf in _leaves(values))


def _leaves(values):
    if isinstance(values, dict):
        values = list(values.values())
    if isinstance(values, (list, tuple)):
        for value in values:
            yield from _leaves(value)
    else:
        yield values


def begins(recorder, name, operation, args):
    """Whether an operation on a tensor with the batch first makes one that has not."""
    if name == "Transpose":
        axes = operation.axes
        return axes is not None and axes[0] != 0 and recorder.batched(args[0])
    if name != "Reshape" or not recorder.batched(args[0]) or not args[0].shape or args[0].shape[0] != recorder.batch:
        return False
    first = _sizes(args[0].shape, operation.newshape)[:1]
    return bool(first) and first[0] != recorder.batch and first[0] % recorder.batch == 0 and len(operation.newshape) > 1


def call(recorder, name, operation, config, args, kwargs):
    """What an operation of Keras makes of Views."""
    if name == "Transpose":
        view = _view(recorder, args[0])
        axes = operation.axes or range(len(view.groups))[::-1]
        return _made(recorder, view.under, [view.groups[a] for a in axes])
    if name == "GetItem":
        return _part(recorder, _view(recorder, args[0]), args[1])
    if name == "Unstack":
        view = _view(recorder, args[0])
        axis = operation.axis % len(view.groups)
        return [_part(recorder, view, (slice(None),) * axis + (i,)) for i in range(view.tensor.shape[axis])]
    if name == "Reshape":
        return _reshape(recorder, _view(recorder, args[0]), operation.newshape)
    folds = {len(recorder.views[id(leaf)].groups[0]) for leaf in _leaves([args, kwargs]) if id(leaf) in recorder.views}
    if name in _ELEMENTWISE | _BY_AXIS and len(folds) == 1:
        [fold] = folds
        ranks = {len(_folded(recorder, leaf).groups) for leaf in _leaves([args, kwargs]) if id(leaf) in recorder.views}
        for leaf in _leaves([args, kwargs]):
            if not isinstance(leaf, KerasTensor) or id(leaf) in recorder.views:
                continue
            if recorder.batched(leaf) or len(leaf.shape) > max(ranks) or (len(leaf.shape) == max(ranks) and leaf.shape[0] != 1):
                raise Refused(f"{name} joins samples of the batch")
        if name in _BY_AXIS:
            config = {**config, "axis": _moved_axes(name, config.get("axis"), max(ranks), fold)}
        made = type(operation)(**config).symbolic_call(*_under(recorder, args), **_under(recorder, kwargs))
        return _wrapped(recorder, made, fold)
    raise Refused(f"{name} gets a tensor whose first dimension is not the batch")


def call_layer(recorder, layer, plain, args, kwargs):
    """What a layer of Keras makes of a View: those that treat all dimensions but the last alike."""
    [view, *others] = [recorder.views[id(leaf)] for leaf in _leaves([args, kwargs]) if id(leaf) in recorder.views]
    axis = getattr(layer, "axis", -1)
    last = axis in (-1, [-1], (-1,)) or type(layer).__name__ not in ("Softmax", "LayerNormalization")
    if others or type(layer).__name__ not in _LAYERS or not last or getattr(layer, "noise_shape", None) is not None:
        raise Refused(f"'{layer.name}' gets a tensor whose first dimension is not the batch")
    fold = len(_folded(recorder, view.tensor).groups[0])
    return _wrapped(recorder, plain(*_under(recorder, args), **_under(recorder, kwargs)), fold)


def _view(recorder, tensor):
    return recorder.views.get(id(tensor)) or View(tensor, tensor, [(i,) for i in range(len(tensor.shape))])


def _folded(recorder, tensor):
    """The View of a tensor, whose first dimension must have the batch."""
    view = recorder.views[id(tensor)]
    if 0 not in view.groups[0]:
        raise Refused("it computes with a tensor whose first dimension is not the batch")
    return view


def _under(recorder, value):
    if isinstance(value, dict):
        return {key: _under(recorder, one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_under(recorder, one) for one in value)
    return recorder.views[id(value)].under if id(value) in recorder.views else value


def _made(recorder, under, groups):
    """The tensor that the code sees. If its first dimension has the batch, the others are brought into their order."""
    order = [axis for group in groups for axis in group]
    if groups[0][0] == 0 and order != sorted(order):
        under = ops.transpose(under, order)
        groups, at = list(groups), 0
        for i, group in enumerate(groups):
            groups[i] = tuple(range(at, at + len(group)))
            at += len(group)
    if all(len(group) == 1 for group in groups) and [g for (g,) in groups] == list(range(len(groups))):
        return under
    shape = [int(np.prod([under.shape[axis] for axis in group])) for group in groups]
    tensor = KerasTensor(tuple(shape), dtype=under.dtype)
    recorder.views[id(tensor)] = View(tensor, under, [tuple(group) for group in groups])
    return tensor


def _wrapped(recorder, made, fold):
    """Results of an operation on the kept tensors, as the code sees them."""
    if isinstance(made, (list, tuple)):
        return type(made)(_wrapped(recorder, one, fold) for one in made)
    if len(made.shape) < fold:
        raise Refused("it adds up samples of the batch")
    return _made(recorder, made, [tuple(range(fold)), *((i,) for i in range(fold, len(made.shape)))])


def _part(recorder, view, key):
    key = list(key) if isinstance(key, tuple) else [key]
    if any(part is None or isinstance(part, (KerasTensor, list, np.ndarray)) for part in key):
        raise Refused("it indexes a tensor whose first dimension is not the batch by something else than numbers and slices")
    if Ellipsis in key:
        at = key.index(Ellipsis)
        key[at : at + 1] = [slice(None)] * (len(view.groups) - len(key) + 1)
    key += [slice(None)] * (len(view.groups) - len(key))
    inner, kept, gone = [slice(None)] * len(view.under.shape), [], []
    for group, part in zip(view.groups, key, strict=True):
        if part != slice(None):
            if len(group) > 1 or group[0] == 0:
                raise Refused("it takes a part of the batch")
            inner[group[0]] = part
        if isinstance(part, (int, np.integer)):
            gone.append(group[0])
        else:
            kept.append(group)
    under = view.under if all(part == slice(None) for part in inner) else view.under[tuple(inner)]
    groups = [tuple(axis - sum(g < axis for g in gone) for axis in group) for group in kept]
    return _made(recorder, under, groups)


def _sizes(shape, newshape):
    newshape = [int(d) for d in newshape]
    if -1 in newshape:
        known = int(np.prod([d for d in newshape if d != -1]))
        newshape[newshape.index(-1)] = int(np.prod(shape)) // max(1, known)
    return newshape


def _reshape(recorder, view, newshape):
    order = [axis for group in view.groups for axis in group]
    if order != sorted(order):
        raise Refused("it reshapes a tensor whose first dimension is not the batch")
    sizes, batch = _sizes(view.tensor.shape, newshape), recorder.batch
    if not sizes or sizes[0] % batch:
        raise Refused(f"it reshapes to {sizes}, which joins samples of the batch")
    if sizes[0] == batch:
        return ops.reshape(view.under, sizes)
    made = ops.reshape(view.under, [batch, sizes[0] // batch, *sizes[1:]])
    return _made(recorder, made, [(0, 1), *((i,) for i in range(2, len(made.shape)))])


def _moved_axes(name, axis, rank, fold):
    if name == "ExpandDims":
        rank += 1
    axes = [axis] if isinstance(axis, int) else axis
    if axes is None or any(a % rank == 0 for a in axes):
        raise Refused(f"{name} joins samples of the batch")
    axes = [a % rank + fold - 1 for a in axes]
    return axes[0] if isinstance(axis, int) else axes
