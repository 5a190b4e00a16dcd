"""Many operations in one model: each has stems (Dense layers) of its own before it and an output of its own after it.

One prediction and one training step then compare the output of every operation, and the gradient of every stem, with
Keras. A stem's gradient is a random projection of the operation's input gradient."""

import math

import keras
import numpy as np

import compare
import keras_side
import program

L, ops = keras.layers, keras.ops
N = 5


class Ids:
    def __init__(self, positions):
        self.tensor, self.read = keras.Input((positions,), name="ids", dtype="int32"), False


class Tensors:
    """What a case computes with: `a`, `b`, ... are tensors of the group's shape, each from a stem of its own."""

    def __init__(self, name, x, ids):
        self.name, self.x, self._ids = name, x, ids

    @property
    def ids(self):
        self._ids.read = True
        return self._ids.tensor

    def __getattr__(self, which):
        made = L.Dense(self.x.shape[-1], name=f"{self.name}_{which}")(self.x)
        setattr(self, which, made)
        return made

    @property
    def positive(self):
        """Between 0.1 and 2.1."""
        return 0.1 + 2 * L.Dense(self.x.shape[-1], activation="sigmoid", name=f"{self.name}_positive")(self.x)

    @property
    def unit(self):
        """Between -1 and 1."""
        return L.Dense(self.x.shape[-1], activation="tanh", name=f"{self.name}_unit")(self.x)


def output(name, y):
    if y.dtype != "float32":
        y = ops.cast(y, "float32")
    if len(y.shape) == 1:
        y = L.Reshape((1,))(y)
    return L.Activation("linear", name=f"out_{name}")(y)


def build(cases, shape, positions=6):
    x = keras.Input(shape, name="x")
    ids = Ids(positions)
    outputs = {}
    for name, case in cases.items():
        made = case(Tensors(name, x, ids))
        for i, one in enumerate(made if isinstance(made, (list, tuple)) else [made]):
            outputs[f"{name}_{i}"] = output(f"{name}_{i}", one)
    model = keras.Model([x, ids.tensor] if ids.read else [x], {f"out_{key}": y for key, y in outputs.items()}, name="operations")
    return keras_side.randomize(model)


def power_of_two(value):
    return 2.0 ** -round(math.log2(value)) if value > 0 else 1.0


def check_group(folder, rng, cases, shape, classes=7, flags=(), bound=compare.GRADIENT):
    model = build(cases, shape)
    x = {
        "x": rng.standard_normal((N, *shape)).astype(np.float32),
        "ids": rng.integers(0, classes, (N, 6)).astype(np.int32),
    }
    x = {name: x[name] for name in (i.name for i in model.inputs)}
    # Keras's own shapes of symbolic tensors are not always right.
    y = {name: rng.standard_normal(one.shape).astype(np.float32) for name, one in model(x).items()}
    before = keras_side.values(model)
    losses = {name: "mse" for name in y}

    # Every output gets the weight that makes its stems' gradients about 1, so that all of them are seen exactly.
    model.compile(keras.optimizers.SGD(1.0), losses)
    _, probe = keras_side.step_gradients(model, x, y)
    top = {}
    for v, g in zip(model.trainable_variables, probe):
        case = v.path.split("/")[0].rsplit("_", 1)[0]
        if g is not None:
            top[case] = max(top.get(case, 0), compare.largest(g))
    weights = {name: power_of_two(top.get(name[4:].rsplit("_", 1)[0], 0)) for name in y}
    model.compile(keras.optimizers.SGD(1.0), losses, loss_weights=weights)
    path = folder / "model.keras"
    model.save(path)
    want = model(x, training=False)
    want_loss, gradients = keras_side.step_gradients(model, x, y)

    inputs = program.archive(folder, "inputs.npz", **x)
    program.run("predict", path, "--data", inputs, "--batch-size", N, "--threads", 2, "--output", folder / "p.npy", *flags)
    for name in y:
        file = folder / (f"p.{name}.npy" if len(y) > 1 else "p.npy")
        compare.close("output", name, np.load(file), np.array(want[name]), compare.OUTPUT)
    data = program.archive(folder, "data.npz", **x, **y)
    trained = program.fit(folder, path, data, *flags, batch_size=N, epochs=1, steps=1)
    compare.close("loss", model.name, trained.losses[0], want_loss, compare.LOSS)
    check_stems(model, before, gradients, keras_side.values(keras_side.load(trained.saved)), bound)


def check_stems(model, before, gradients, after, bound):
    largest = {}
    rows = []
    for v, g, old, new in zip(model.trainable_variables, gradients, before, after):
        case = v.path.split("/")[0]
        if g is not None:
            largest[case] = max(largest.get(case, 0), compare.largest(g))
        rows.append((v.path, case, g, old, new))
    for where, case, g, old, new in rows:
        if g is None or largest[case] == 0:
            assert np.array_equal(new, old), f"{where}: changed although no gradient reaches it"
            continue
        got, rounding = compare.recovered_gradient(old, new, 1.0)
        compare.close("gradient", where, got, g, bound, scale=largest[case], allowance=rounding)
