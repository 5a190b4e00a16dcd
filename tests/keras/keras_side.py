"""The Keras half of a comparison: random weights, gradients, training steps, files."""

import keras
import numpy as np
import tensorflow as tf


def randomize(model, seed=0):
    """Gives every weight a random value: no bias is 0, no gamma is 1, no statistic is trivial."""
    rng = np.random.default_rng(seed)
    for w in model.weights:
        draw = rng.standard_normal(w.shape).astype(np.float32)
        kind = w.path.rsplit("/", 1)[-1]
        if w.dtype.startswith("int"):  # Normalization's count
            continue
        if kind.endswith("variance") or kind.endswith("stddev"):
            w.assign(0.5 + rng.random(w.shape, np.float32))
        elif kind == "gamma":
            w.assign(1 + 0.25 * draw)
        elif kind.endswith("kernel"):
            w.assign(draw / np.sqrt(max(1, np.prod(w.shape[:-1]))).astype(np.float32))
        else:
            w.assign(0.25 * draw)
    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.Normalization):  # it computes with copies of its weights
            layer.finalize_state()
    return model


def values(model):
    return [w.numpy() for w in model.weights]


def state(model):
    """The optimizer's variables in order: "iteration", "learning_rate", then "2 momentum", "3 velocity", ...

    The rest of their names depends on whether a model was loaded or built."""
    names = [v.path.split("/", 1)[-1] for v in model.optimizer.variables]
    names = ["variable" if n.startswith("variable_") else n for n in names]  # Nadam's product has no name
    keys = [n if n in ("iteration", "learning_rate") else f"{k} {n.rsplit('_', 1)[-1]}" for k, n in enumerate(names)]
    return {key: v.numpy() for key, v in zip(keys, model.optimizer.variables)}


def load(path):
    return keras.saving.load_model(path)


def step_gradients(model, x, y, sample_weight=None):
    """(loss, gradients of trainable_variables) of one training step; it updates BatchNorm statistics, but not weights."""
    with tf.GradientTape() as tape:
        loss = model.compute_loss(x=x, y=y, y_pred=model(x, training=True), sample_weight=sample_weight, training=True)
    gradients = tape.gradient(loss, model.trainable_variables)
    return float(loss), [None if g is None else np.array(tf.convert_to_tensor(g)) for g in gradients]


def take(data, piece):
    return {k: v[piece] for k, v in data.items()} if isinstance(data, dict) else data[piece]


def lone(y):
    return next(iter(y.values())) if isinstance(y, dict) and len(y) == 1 else y


def count(data):
    return len(next(iter(data.values())) if isinstance(data, dict) else data)


def batches(x, y, size):
    """All batches in order, including the last, smaller one. A single output is passed as an array, because Keras refuses its name."""
    y = lone(y)
    for begin in range(0, count(x), size):
        piece = slice(begin, min(begin + size, count(x)))
        yield take(x, piece), take(y, piece)


def train(model, x, y, size, epochs=1, eager=False, **named):
    """Losses of train_on_batch over all batches in order. For a tiny network, eager mode is faster than tracing its graph."""
    model.run_eagerly = eager
    losses = []
    for _ in range(epochs):
        for bx, by in batches(x, y, size):
            losses.append(float(model.train_on_batch(bx, by, return_dict=True, **named)["loss"]))
    return np.array(losses)
