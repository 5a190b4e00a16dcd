"""One training step on both sides: predictions, loss, every gradient, updated statistics."""

import math

import keras
import numpy as np

import compare
import keras_side
import program


def rate_for(gradients):
    """A power of two that scales the largest gradient to about 1, so that the difference of weights gives the full gradient."""
    top = max((compare.largest(g) for g in gradients if g is not None), default=0)
    return 2.0 ** -round(math.log2(top)) if top > 0 else 1.0


def check_step(
    folder, model, x, y, loss, sample_weight=None, class_weight=None, flags=(), bound=compare.GRADIENT, predictions=True
):
    """Trains one step of plain SGD on all of x and compares everything with Keras."""
    keras_side.randomize(model)
    before = keras_side.values(model)
    weight = sample_weight
    if class_weight is not None:
        weight = np.array([class_weight.get(int(label), 1.0) for label in labels(y)], np.float32)
    if (
        weight is not None and len(model.output_shape) > 2
    ):  # Keras needs the weight of a sample repeated for its rows
        weight = weight.reshape((-1,) + (1,) * (len(model.output_shape) - 2))
    model.compile(keras.optimizers.SGD(1.0), loss)
    _, probe = keras_side.step_gradients(model, x, y, weight)
    rate = rate_for(probe)
    model.set_weights(before)
    model.compile(keras.optimizers.SGD(rate), loss)
    path = folder / "model.keras"
    model.save(path)

    want_predictions = np.array(model(x, training=False))
    want_loss, want = keras_side.step_gradients(model, x, y, weight)
    statistics = keras_side.values(model)

    data = program.arrays(folder, x=x, y=y, sample_weight=sample_weight)
    if class_weight is not None:
        flags = (*flags, "--class-weight", ",".join(f"{k}:{v}" for k, v in class_weight.items()))
    if predictions:
        got = program.predict(folder, path, program.arrays(folder, prefix="only_", x=x), batch_size=len(x))
        compare.close("output", model.name, got, want_predictions, compare.OUTPUT)
    trained = program.fit(folder, path, data, *flags, batch_size=len(x), epochs=1, steps=1)
    compare.close("loss", model.name, trained.losses[0], want_loss, compare.LOSS)
    check_weights(model, before, statistics, want, keras_side.values(keras_side.load(trained.saved)), rate, bound)


def labels(y):
    return y if y.ndim == 1 else np.argmax(y, -1)


def check_weights(model, before, statistics, gradients, after, rate, bound):
    gradient_of = {id(v): g for v, g in zip(model.trainable_variables, gradients)}
    top = max((compare.largest(g) for g in gradients if g is not None), default=0)
    for variable, old, moved, new in zip(model.weights, before, statistics, after):
        where = f"{model.name}: {variable.path}"
        if id(variable) not in gradient_of:
            compare.close("statistic", where, new, moved, compare.OUTPUT)
            continue
        want = gradient_of[id(variable)]
        if want is None:
            assert np.array_equal(new, old), f"{where}: changed although no gradient reaches it"
            continue
        # SpectralNormalization changes a trained kernel in the forward pass: the step begins at `moved`.
        if variable.constraint is not None:
            stepped = np.array(variable.constraint(keras.ops.convert_to_tensor(moved - rate * want)))
            compare.close("constrained weight", where, new, stepped, bound, scale=max(1.0, compare.largest(stepped)))
            continue
        got, rounding = compare.recovered_gradient(moved, new, rate)
        if compare.largest(want) < compare.ZERO * top:
            compare.close("zero gradient", where, got, want, compare.ZERO, scale=top, allowance=rounding)
        else:
            compare.close("gradient", where, got, want, bound, allowance=rounding)
