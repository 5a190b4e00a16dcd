"""Losses and metrics written in Python, as what the engine computes: one number per row, of which it takes the mean or the sum."""

import inspect
import warnings

import keras
import numpy as np
from keras.src import tree
from keras.src.losses import losses as losses_module

from plimsoll import assemble, describe, errors, trace

KerasTensor = keras.KerasTensor
ops = keras.ops


def is_own(thing):
    """Whether a loss or metric is written in Python by the user."""
    return thing is not None and not isinstance(thing, (str, dict)) and not describe.is_keras(thing)


def own_parts(model):
    """Losses and metrics of the model that are written in Python."""
    metrics = getattr(model, "_compile_metrics", None)
    given = [] if metrics is None else [metrics._user_metrics, metrics._user_weighted_metrics]
    return [thing for thing in tree.flatten([getattr(model, "loss", None), given]) if is_own(thing)]


class Quotient:
    """The divisor of a loss that is a sum over a sum: its value for the targets of a batch. The targets alone decide it (a mask)."""

    column = False  # whether a target of rank 1 is a column for the loss, as Keras makes it

    def __init__(self, tensor, is_safe):
        self._tensor, self._is_safe = tensor, is_safe
        self._recorder = None

    def of(self, traced):
        self._recorder = traced.recorder

    def factor(self, y):
        """What the mean of the sums of the samples is multiplied by."""
        y = np.asarray(y, np.float32)
        made = float(self._value(self._tensor, y[:, None] if self.column else y))
        return 0.0 if self._is_safe and made == 0 else len(y) / made if made else float("nan")

    def _value(self, tensor, y):
        node, _ = self._recorder.place(tensor)
        if node is None:
            return ops.convert_to_tensor(y)

        def given(leaf):
            return self._value(leaf, y) if isinstance(leaf, KerasTensor) else len(y) if leaf is trace.Batch else leaf

        config = {key: tree.map_structure(given, value) for key, value in node.config.items()}
        return type(node.what)(**config)(*tree.map_structure(given, node.args), **tree.map_structure(given, node.kwargs))


def _quotient(recorder, whole, predicted):
    """(numerator, Quotient) of a loss that is divided by a number which depends on the targets; None for other losses."""
    node, _ = recorder.place(whole)
    name = None if node is None or isinstance(node.what, str) else type(node.what).__name__
    if name not in ("Divide", "TrueDivide", "DivideNoNan") or not isinstance(node.args[1], KerasTensor) or not recorder.batched(node.args[1]):
        return None
    waiting = [node.args[1]]
    while waiting:
        tensor = waiting.pop()
        if tensor is predicted:
            return None
        inner, _ = recorder.place(tensor)
        if inner is None:
            continue
        if isinstance(inner.what, str) or inner.is_layer:
            return None
        waiting += [leaf for leaf in tree.flatten((inner.args, inner.kwargs)) if isinstance(leaf, KerasTensor)]
    return node.args[0], Quotient(node.args[1], name == "DivideNoNan")


def rewrite(model, compiled, face, y, weighted, even):
    """Puts traced losses and metrics into the compile configuration. Returns the Quotient of the loss, if it is one.

    `face`: the model's ends, None if it could not be traced. `y`: a batch of targets. `weighted`: samples have weights.
    `even`: whether all batches have the same size, so that the mean over batches is the mean over samples.
    """
    own = own_parts(model)
    if own and y is None:
        raise errors.Unsupported("its loss cannot be traced", [
            f"{_name(thing)}{describe.where(thing)} is written in Python: it is traced with data" for thing in own])
    if not own or face is None:
        return
    quotients = []
    if any(is_own(loss) for loss in tree.flatten(model.loss)):
        has_metrics = getattr(model, "_compile_metrics", None) is not None
        compiled["loss"] = _each(model.loss, compiled["loss"], face, y, lambda *a: _loss(*a, weighted, has_metrics, quotients))
    for key in ("metrics", "weighted_metrics"):
        given = getattr(getattr(model, "_compile_metrics", None), f"_user_{key}", None)
        if any(is_own(metric) for metric in tree.flatten(given)):
            compiled[key] = _each_metric(given, compiled[key], face, y, even)
    if quotients and (len(face.outputs) > 1 or compiled.get("weighted_metrics")):
        raise errors.Unsupported("its loss cannot be traced", [
            f"the loss {_name(model.loss)}{describe.where(model.loss)} divides by a number of the whole batch: it must be the only loss, without weighted_metrics"])
    return quotients[0] if quotients else None


def _each(given, config, face, y, make):
    outputs, targets = face.outputs, tree.flatten(y)
    names = [tensor._keras_history.operation.name for tensor in outputs]
    if len(outputs) == 1 and not isinstance(given, (list, tuple, dict)):
        return make(given, outputs[0], targets[0])
    if isinstance(given, dict):
        keys = sorted(face._outputs_struct) if isinstance(getattr(face, "_outputs_struct", None), dict) else names
        return {key: make(loss, outputs[keys.index(key)], y[key] if isinstance(y, dict) else targets[keys.index(key)]) if is_own(loss)
                else config[key] for key, loss in given.items()}
    if isinstance(given, (list, tuple)) and len(given) == len(outputs) == len(targets):
        return [make(loss, t, target) if is_own(loss) else c for loss, t, target, c in zip(given, outputs, targets, config, strict=True)]
    if len(targets) == len(outputs):
        return [make(given, t, target) for t, target in zip(outputs, targets, strict=True)]
    raise errors.Unsupported("its loss cannot be traced", ["a loss written in Python for several outputs and other targets"])


def _each_metric(given, config, face, y, even):
    if len(face.outputs) == 1 and isinstance(given, (list, tuple)) and not any(isinstance(m, (list, tuple, dict)) for m in given):
        target = tree.flatten(y)[0]
        return [_metric(m, face.outputs[0], target, even) if is_own(m) else c for m, c in zip(given, config, strict=True)]
    raise errors.Unsupported("its metrics cannot be traced", ["metrics written in Python for several outputs"])


def _name(thing):
    return getattr(thing, "__name__", None) or getattr(thing, "name", None) or type(thing).__name__


def _loss(given, output, y, weighted, has_metrics, quotients):
    loss = given() if inspect.isclass(given) else given
    if not isinstance(loss, keras.losses.Loss):
        loss = losses_module.LossFunctionWrapper(loss, name=_name(given))
    who = f"the loss {_name(given)}{describe.where(given)}"
    if not describe.is_keras(type(loss).__call__):
        raise errors.Unsupported("its loss cannot be traced", [f"{who} has a __call__ of its own"])
    if loss.reduction not in ("sum", "sum_over_batch_size", "mean"):
        raise errors.Unsupported("its loss cannot be traced", [f"{who}: reduction={loss.reduction}"])
    column = isinstance(loss, losses_module.LossFunctionWrapper) and np.ndim(y) == 1 and len(output.shape) == 2 and output.shape[1] == 1
    if column:
        y = np.asarray(y)[:, None]  # as Keras does before it calls the function
    config, whole = _traced(loss.call, output, y, "float32", who)
    if whole and not isinstance(whole, Quotient) and weighted:
        raise errors.Unsupported("its loss cannot be traced", [f"{who} returns one number for the batch, so samples cannot be weighted"])
    if isinstance(whole, Quotient):
        if weighted:
            raise errors.Unsupported("its loss cannot be traced", [f"{who} divides by a number of the whole batch, so samples cannot be weighted"])
        whole.column = column
        quotients.append(whole)
        whole = "mean"  # for which each batch has a factor
    elif whole == "sum":
        warn_of_sum(who)
    config["reduction"] = "sum" if whole == "sum" else "sum_over_batch_size" if whole else loss.reduction
    config["name"] = loss.name
    config["labels"] = bool(has_metrics and _are_labels(y, output) and int(np.prod(np.shape(y)[1:])) == config.pop("rows"))
    config.pop("rows", None)
    return _object(config)


def warn_of_sum(who):
    """Trained as it is written. A step that is good for one batch size is too long for a larger one."""
    warnings.warn(f"{who} adds up the losses of the samples: the gradients grow with the batch size. A mean over the samples does not, "
                  "and is what Keras's losses are", stacklevel=2)


def _are_labels(y, output):
    y, shape = np.asarray(y), output.shape
    whole = y.dtype.kind in "iu" and y.ndim > 0
    return whole and (y.ndim == len(shape) - 1 or (y.ndim == len(shape) and y.shape[-1] == 1 and shape[-1] > 1))


def _metric(metric, output, y, even):
    who = f"the metric {_name(metric)}{describe.where(metric)}"
    if isinstance(metric, keras.metrics.Metric) or inspect.isclass(metric):
        return None  # Keras computes it (host_metrics.py)
    dtype = "float32" if np.asarray(y).dtype.kind == "f" else str(np.asarray(y).dtype)
    config, whole = _traced(metric, output, y, dtype, who)
    if whole and not (whole == "mean" and even):
        raise errors.Unsupported("its metrics cannot be traced",
                                 [f"{who} returns one number for the batch, not one per sample, and the last batch is smaller"])
    config.pop("rows")
    config["name"] = _name(metric)
    return _object(config)


def _object(config):
    return {"module": trace.TRACED, "class_name": "TracedLoss", "registered_name": None, "config": config}


def _traced(function, output, y, dtype, who):
    """The engine's configuration, and "mean" or "sum" if the function returned one number for the batch."""
    wholes = []

    def rows(y_true, y_pred):
        made = function(y_true, y_pred)
        recorder = trace.recorder()
        if not isinstance(made, KerasTensor) or not recorder.batched(made):
            raise trace.Refused("what it returns does not depend on the prediction")
        if len(made.shape) and made.shape[0] == recorder.batch:
            wholes.append("")
            return made
        quotient = _quotient(recorder, made, y_pred)
        if quotient is None:
            made, whole = per_sample(recorder, made)
        else:
            total, whole = quotient
            made, kind = per_sample(recorder, total)
            if kind == "mean":
                raise trace.Refused("it divides a mean by a number of the whole batch")
        wholes.append(whole)
        return made

    y = np.asarray(y)
    specs = [trace.Spec(y.shape[1:], dtype), trace.Spec(output.shape[1:], "float32")]
    traced = trace.trace(rows, specs, who)
    writer = assemble.Writer(traced, who)
    model = writer.function("loss", traced.inputs, ["y_true", "y_pred"], traced.outputs)
    config = {"model": model, "target": list(y.shape[1:]), "integers": dtype != "float32",
              "rows": int(np.prod(traced.outputs.shape[1:]))}
    if isinstance(wholes[0], Quotient):
        wholes[0].of(traced)
    return config, wholes[0]


def per_sample(recorder, whole):
    """One number for the batch, as numbers per sample whose mean or sum it is."""
    node, _ = recorder.place(whole)
    name = None if node is None or isinstance(node.what, str) else type(node.what).__name__
    operands = [] if node is None else list(node.args)
    if name in ("Mean", "Sum") and _all_axes(node, operands[0]) and _has_batch(recorder, operands[0]):
        x = operands[0]
        x = ops.reshape(x, (x.shape[0], -1)) if len(x.shape) != 2 else x
        return (ops.mean(x, axis=-1), "mean") if name == "Mean" else (ops.sum(x, axis=-1), "sum")
    if name in ("Divide", "TrueDivide", "DivideNoNan") and _number(operands[1]) is not None:
        rows, kind = per_sample(recorder, operands[0])
        divisor = _number(operands[1])
        count = _summed(recorder, operands[0])
        samples = rows.shape[0]
        if kind == "sum" and count is not None and divisor in (samples, count):
            return rows / (count // samples if divisor == count else 1.0), "mean"
        return rows / divisor, kind
    if name == "Multiply":
        for a, b in (operands, operands[::-1]):
            if _number(b) is not None:
                rows, kind = per_sample(recorder, a)
                return rows * _number(b), kind
    if name == "Cast" and keras.backend.standardize_dtype(whole.dtype).startswith(("float", "bfloat")):
        return per_sample(recorder, operands[0])
    if name == "Negative":
        rows, kind = per_sample(recorder, operands[0])
        return -rows, kind
    if name in ("Add", "Subtract"):
        return _sum_of(recorder, *operands, -1.0 if name == "Subtract" else 1.0)
    raise trace.Refused("it returns one number that is no mean or sum over the samples: it joins the samples of a batch"
                        + ("" if name is None else f" by {name}"))


def _sum_of(recorder, a, b, sign):
    if _number(b) is not None or _number(a) is not None:
        tensor, number = (a, _number(b)) if _number(b) is not None else (b, _number(a))
        rows, kind = per_sample(recorder, tensor)
        if kind == "sum":
            raise trace.Refused("it adds a number to a sum over the samples")
        return (rows + sign * number if tensor is a else number + sign * rows), kind
    (x, kind), (y, other) = per_sample(recorder, a), per_sample(recorder, b)
    if kind != other:
        raise trace.Refused("it adds a mean over the samples to a sum")
    return folded(recorder, x, kind) + sign * folded(recorder, y, kind), kind


def folded(recorder, rows, kind):
    """Rows of several batches, one behind the other, as rows of one: their means or sums."""
    times = rows.shape[0] // recorder.batch
    if times == 1:
        return rows
    return recorder.source("Fold", {"times": times, "mean": kind == "mean"}, (recorder.batch, *rows.shape[1:]), rows.dtype, (rows,))


def _has_batch(recorder, x):
    return bool(x.shape) and (x.shape[0] == recorder.batch or (recorder.step and x.shape[0] % recorder.batch == 0))


def _all_axes(node, x):
    axis = node.config.get("axis")
    if axis is None:
        return True
    axes = [axis] if isinstance(axis, int) else list(axis)
    return sorted(a % len(x.shape) for a in axes) == list(range(len(x.shape)))


def _summed(recorder, tensor):
    """How many elements a sum adds up."""
    node, _ = recorder.place(tensor)
    if node is None or isinstance(node.what, str) or type(node.what).__name__ != "Sum":
        return None
    return int(np.prod(node.args[0].shape))


def _number(value):
    if isinstance(value, (bool, KerasTensor)):
        return None
    if isinstance(value, (int, float)):
        return float(value)
    if value is not None and (keras.ops.is_tensor(value) or isinstance(value, (np.ndarray, np.generic))):
        array = np.asarray(keras.ops.convert_to_numpy(value))
        return float(array) if array.ndim == 0 else None
    return None
