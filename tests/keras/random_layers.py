"""Many random configurations of layers in one model: each is a branch with weights of its own before it, and all outputs are
concatenated. One training step then compares outputs, loss and every gradient with Keras."""

import keras
import numpy as np
import tensorflow as tf

from one_step import check_step

L = keras.layers
SAMPLES = 3
FORMATS = ["channels_last", "channels_first"]


def sizes(rng, rank, low, high):
    return tuple(int(n) for n in rng.integers(low, high + 1, rank))


def image(rng, rank, data_format, channels):
    space = sizes(rng, rank, 1, {1: 14, 2: 8, 3: 5}[rank])
    return space + (channels,) if data_format == "channels_last" else (channels,) + space


def pick(rng, *values):
    return values[rng.integers(len(values))]


def agrees_with_channels_last(layer, kind, arguments, x):
    """Keras adds the bias of a channels_first layer along the last dimension if that happens to have as many elements."""
    other = kind(**(arguments | {"data_format": "channels_last"}))
    last = np.moveaxis(x.numpy(), 1, -1)
    other.build(last.shape)
    weights = [np.random.default_rng(2).standard_normal(w.shape) for w in other.weights]
    layer.set_weights(weights)
    other.set_weights(weights)
    y, want = layer(x).numpy(), other(last).numpy()
    return np.allclose(y, want if want.ndim == 2 else np.moveaxis(want, -1, 1), atol=1e-4)


def has_the_right_gradient(kind, arguments, x):
    """TensorFlow's kernels without oneDNN lose the gradient of some transposed convolutions whose strides exceed the kernel.
    Without bias and activation y = J x for every layer here, so <y, u> = <x, transposed J u> for any u."""
    plain = {"use_bias": False, "activation": None} if "use_bias" in arguments else {}
    layer = kind(**(arguments | plain))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = layer(x)
    u = np.random.default_rng(3).standard_normal(y.shape).astype(np.float32)
    left, right = float(np.sum(y * u)), float(np.sum(x * tape.gradient(y, x, u)))
    return abs(left - right) <= 1e-4 * (1 + float(np.sum(np.abs(y * u))))


def accepted(layer, kind, arguments, shape):
    """Whether Keras itself can run the layer and its gradient, on the CPU, with this shape of a sample."""
    x = tf.constant(np.random.default_rng(1).standard_normal((2,) + shape), tf.float32)
    try:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x)
        if 0 in y.shape:
            return False
        if arguments.get("data_format") == "channels_first" and not agrees_with_channels_last(layer, kind, arguments, x):
            return False
        return has_the_right_gradient(kind, arguments, x)
    except (ValueError, TypeError, NotImplementedError, tf.errors.OpError, AttributeError, KeyError):
        return False


def draw(rng, make, count, most_elements=400):
    """`count` pairs (shape of a sample, layer) that Keras accepts. make(rng) returns (shape, class, arguments)."""
    found = []
    for _ in range(60 * count):
        shape, kind, arguments = make(rng)
        if np.prod(shape) > most_elements:
            continue
        try:
            probe = kind(**arguments)
        except ValueError:
            continue
        if accepted(probe, kind, arguments, shape):
            found.append((shape, kind, arguments))
        if len(found) == count:
            return found
    raise AssertionError(f"only {len(found)} of {count} configurations were accepted by Keras")


def branch(x, index, shape, layer):
    """Takes the first elements of x as a tensor of that shape, mixes its last axis, and applies the layer."""
    size, whole = int(np.prod(shape)), x.shape[1]
    part = L.Cropping1D((0, whole - size))(x) if size < whole else x
    return L.Flatten()(layer(L.Dense(shape[-1], name=f"stem_{index}")(L.Reshape(shape)(part))))


def check_layers(folder, rng, name, layers):
    """`layers`: (shape of a sample, class, arguments) of each branch."""
    for shape, kind, arguments in layers:
        print(f"{name}: {shape} {kind.__name__}({arguments})")  # shown by pytest if the test fails
    size = max(int(np.prod(shape)) for shape, _, _ in layers)
    i = keras.Input((size, 1))
    outputs = [branch(i, n, shape, kind(**arguments, name=f"layer_{n}")) for n, (shape, kind, arguments) in enumerate(layers)]
    model = keras.Model(i, outputs[0] if len(outputs) == 1 else L.Concatenate()(outputs), name=name)
    x = rng.standard_normal((SAMPLES,) + model.input_shape[1:]).astype(np.float32)
    y = rng.standard_normal((SAMPLES,) + model.output_shape[1:]).astype(np.float32)
    check_step(folder, model, x, y, "mse")
