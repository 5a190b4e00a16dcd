"""Activations, merging, regularisation and scaling layers against Keras.

Many layers share one model: each has its own stem, whose gradient is a random projection of the layer's input gradient, and all
outputs are concatenated. So one run compares the outputs and the gradients of all of them."""

import keras
import numpy as np
import pytest

import compare
import keras_side
import philox
import program
import runs
from one_step import check_step
from test_layers import N, stem

L = keras.layers
IMAGE, LINE = (6, 5, 4), (7, 3)

ACTIVATIONS = (
    ("celu", "elu", "exponential", "gelu", "hard_shrink", "hard_sigmoid", "hard_silu", "hard_swish", "hard_tanh", "leaky_relu"),
    ("linear", "log_sigmoid", "mish", "relu", "relu6", "selu", "sigmoid", "silu", "soft_shrink", "softmax"),
    ("softplus", "softsign", "sparse_plus", "sparse_sigmoid", "squareplus", "swish", "tanh", "tanh_shrink"),
    ("log_softmax", "sparsemax"),
)

# name: (shape of a sample, function that makes the layer)
LAYERS = {
    "prelu": (IMAGE, lambda: L.PReLU()),
    "prelu_channels": (IMAGE, lambda: L.PReLU(shared_axes=[1, 2])),
    "prelu_rows": (IMAGE, lambda: L.PReLU(shared_axes=[2])),
    "prelu_one": (LINE, lambda: L.PReLU(shared_axes=(1, 2), alpha_initializer="ones", alpha_regularizer="l2")),
    "relu_all": (IMAGE, lambda: L.ReLU(max_value=0.75, negative_slope=0.1, threshold=0.2)),
    "relu6_slope": (IMAGE, lambda: L.ReLU(max_value=6, negative_slope=0.3)),
    "relu_no_ceiling": (IMAGE, lambda: L.ReLU(negative_slope=0.3, threshold=0.5)),
    "leaky_zero": (IMAGE, lambda: L.LeakyReLU(negative_slope=0.0)),
    "elu_negative": (IMAGE, lambda: L.ELU(alpha=-0.5)),
    "elu_zero": (IMAGE, lambda: L.ELU(alpha=0.0)),
    "identity": (IMAGE, lambda: L.Identity()),
    "dense_layer_activation": (IMAGE, lambda: L.Dense(3, activation=L.LeakyReLU(0.1))),
    "dense_activation_layer": (IMAGE, lambda: L.Dense(3, activation=L.Activation("mish"))),
    "dense_function": (IMAGE, lambda: L.Dense(3, activation=keras.activations.soft_shrink)),
    "conv_function": (IMAGE, lambda: L.Conv2D(3, 3, activation=keras.activations.selu)),
    "softmax_rows": (IMAGE, lambda: L.Softmax(axis=1)),
    "softmax_middle": (IMAGE, lambda: L.Softmax(axis=-2)),
    "softmax_image": (IMAGE, lambda: L.Softmax(axis=(1, 2))),
    "softmax_all": (IMAGE, lambda: L.Softmax(axis=[1, 2, 3])),
    "softmax_outer": (IMAGE, lambda: L.Softmax(axis=[1, 3])),
    "dropout_off": (IMAGE, lambda: L.SpatialDropout2D(0.0)),
    "noise_off": (IMAGE, lambda: L.GaussianNoise(0.0)),
    "alpha_off": (IMAGE, lambda: L.AlphaDropout(0.0)),
}

def lines(x):
    return L.Reshape((-1, x.shape[-1]))(x)


MERGES = {
    "subtract": lambda a, b: L.Subtract()([a, b]),
    "average": lambda a, b: L.Average()([a, b, a]),
    "maximum": lambda a, b: L.Maximum()([a, b]),
    "maximum_of_three": lambda a, b: L.Maximum()([a, b, a]),
    "minimum": lambda a, b: L.Minimum()([b, a]),
    "subtract_broadcast": lambda a, b: L.Subtract()([a, L.GlobalAveragePooling2D(keepdims=True)(b)]),
    "maximum_broadcast": lambda a, b: L.Maximum()([L.GlobalAveragePooling2D(keepdims=True)(a), b]),
    "average_ranks": lambda a, b: L.Average()([a, L.GlobalMaxPooling2D()(b)]),
    "minimum_ranks": lambda a, b: L.Minimum()([L.GlobalMaxPooling2D()(b), a]),
    "add_ranks": lambda a, b: L.Add()([L.GlobalMaxPooling2D()(b), a]),
    "dot_last": lambda a, b: L.Dot(axes=-1)([lines(a), lines(b)]),
    "dot_first": lambda a, b: L.Dot(axes=1)([lines(a), lines(b)]),
    "dot_pair": lambda a, b: L.Dot(axes=(2, 1))([lines(a), L.Reshape((4, -1))(b)]),
    "dot_normalized": lambda a, b: L.Dot(axes=(1, 1), normalize=True)([lines(a), lines(b)]),
    "dot_vectors": lambda a, b: L.Dot(axes=1)([L.Flatten()(a), L.Flatten()(b)]),
    "dot_cosine": lambda a, b: L.Dot(axes=-1, normalize=True)([L.Flatten()(a), L.Flatten()(b)]),
    "dot_vector_matrix": lambda a, b: L.Dot(axes=(1, 2))([L.GlobalMaxPooling2D()(a), lines(b)]),
    "dot_matrix_vector": lambda a, b: L.Dot(axes=(2, 1))([lines(a), L.GlobalMaxPooling2D()(b)]),
    "dot_images": lambda a, b: L.Dot(axes=(2, 2))([a, b]),
    "concatenate_first": lambda a, b: L.Concatenate(axis=1)([a, b]),
    "concatenate_second": lambda a, b: L.Concatenate(axis=-2)([a, b, a]),
}


def joined(name, shapes, branches):
    """A model of all branches: functions of one input of their shape to an output."""
    inputs = {shape: keras.Input(shape, name="x" + "_".join(map(str, shape))) for shape in sorted(set(shapes))}
    parts = [L.Flatten()(branch(inputs[shape])) for shape, branch in zip(shapes, branches, strict=True)]
    return keras.Model(list(inputs.values()), L.Concatenate()(parts), name=name)


def check_joined(folder, rng, model):
    x = {i.name: rng.standard_normal((N,) + tuple(i.shape[1:])).astype(np.float32) for i in model.inputs}
    y = rng.standard_normal((N,) + model.output_shape[1:]).astype(np.float32)
    check_step(folder, model, x if len(x) > 1 else next(iter(x.values())), y, "mse")


@pytest.mark.parametrize("names", ACTIVATIONS, ids=lambda names: names[0])
def test_activations(names, tmp_path, rng):
    branches = [lambda i, a=a: L.Activation(a)(stem(i, a)) for a in names]
    branches += [lambda i, a=a: L.Dense(3, activation=a, name="dense_" + a)(i) for a in names]
    check_joined(tmp_path, rng, joined("activations", [IMAGE] * len(branches), branches))


@pytest.mark.parametrize("shape", (IMAGE, LINE), ids=("image", "line"))
def test_layers(shape, tmp_path, rng):
    chosen = {name: make for name, (own, make) in LAYERS.items() if own == shape}
    branches = [lambda i, n=name, m=make: m()(stem(i, "stem_" + n)) for name, make in chosen.items()]
    check_joined(tmp_path, rng, joined("layers", [shape] * len(branches), branches))


def test_glu(tmp_path, rng):
    """Keras declares the output with the whole last axis, but computes half of it."""
    i = keras.Input(IMAGE)
    model = keras.Model(i, L.Activation("glu")(stem(i, "stem")), name="glu")
    x = rng.standard_normal((N,) + IMAGE).astype(np.float32)
    y = rng.standard_normal((N,) + IMAGE[:-1] + (IMAGE[-1] // 2,)).astype(np.float32)
    check_step(tmp_path, model, x, y, "mse")


def test_merges(tmp_path, rng):
    branches = [lambda i, n=n, m=m: m(stem(i, n + "_a"), stem(i, n + "_b")) for n, m in MERGES.items()]
    check_joined(tmp_path, rng, joined("merges", [IMAGE] * len(branches), branches))


def test_classes_of_applications(tmp_path, rng):
    from keras.src.applications.convnext import LayerScale, StochasticDepth
    from keras.src.applications.inception_resnet_v2 import CustomScaleLayer

    branches = [
        lambda i: LayerScale(0.5, 4)(stem(i, "scale")),
        lambda i: StochasticDepth(0.0)(stem(i, "depth")),
        lambda i: CustomScaleLayer(0.17)([stem(i, "first"), stem(i, "second")]),
    ]
    check_joined(tmp_path, rng, joined("applications", [IMAGE] * 3, branches))


# ---- activity regularizers

ACTIVE = {
    "dense": lambda x: L.Dense(4, activity_regularizer=keras.regularizers.L1L2(0.03, 0.02))(x),
    "conv": lambda x: L.Conv2D(4, 3, activation="relu", activity_regularizer="l2")(x),
    "layer": lambda x: L.ActivityRegularization(l1=0.05, l2=0.01)(stem(x, "own")),
    "activation": lambda x: L.Activation("tanh", activity_regularizer=keras.regularizers.L1(0.04))(stem(x, "other")),
    "batch_norm": lambda x: L.LayerNormalization(activity_regularizer=keras.regularizers.L2(0.01))(x),
}


def active_model():
    shared = L.Dense(4, activity_regularizer="l1", name="shared")
    branches = [lambda i, n=n, m=m: m(stem(i, f"stem_{n}")) for n, m in ACTIVE.items()]
    branches.append(lambda i: L.Add()([shared(stem(i, "one")), shared(stem(i, "two"))]))
    return joined("active", [IMAGE] * len(branches), branches)


def test_activity_regularizers(tmp_path, rng):
    check_joined(tmp_path, rng, active_model())


def test_activity_regularizers_with_micro_batches(tmp_path, rng):
    """The mean is over the whole batch, whatever the micro-batch; evaluate divides by the batch too."""
    model = keras_side.randomize(active_model())
    model.compile(keras.optimizers.SGD(0.05), "mse")
    model.save(tmp_path / "model.keras")
    x = rng.standard_normal((20,) + IMAGE).astype(np.float32)
    y = rng.standard_normal((20,) + model.output_shape[1:]).astype(np.float32)
    data = program.arrays(tmp_path, x=x, y=y)
    want = float(model.evaluate(x, y, batch_size=8, verbose=0))
    got = program.evaluate(tmp_path / "model.keras", data, batch_size=8)
    compare.close("loss", "active: evaluate", got["loss"], want, compare.LOSS)
    losses = keras_side.train(model, x, y, 8, eager=True)
    for micro in (None, 3):
        trained = program.fit(
            tmp_path, tmp_path / "model.keras", data, name=f"micro{micro}", batch_size=8, micro_batch=micro, epochs=1, steps=3
        )
        for step, (a, b) in enumerate(zip(trained.losses, losses, strict=True)):
            compare.close("run loss", f"active, micro-batch {micro}: step {step + 1}", a, b, compare.RUN_LOSS)
        after = keras_side.values(keras_side.load(trained.saved))
        runs.check_weights(f"active, micro-batch {micro}", after, keras_side.values(model), model.weights)


# ---- layers that draw random numbers: the oracle gets their numbers as inputs

SELU_LIMIT = -1.6732632423543772848170429916717 * 1.0507009873554804934193349852946


def alpha_parts(unit, rate):
    a = ((1 - rate) * (1 + rate * SELU_LIMIT**2)) ** -0.5
    keep = (unit >= np.float32(rate)).astype(np.float64)
    return [(a * keep).astype(np.float32), (a * SELU_LIMIT * (1 - keep) - a * SELU_LIMIT * rate).astype(np.float32)]


def factors(shape, rate, shared_by_batch=False):
    """A function of (draw, batch) to the factors of a dropout with decisions of this shape."""

    def make(draw, batch):
        if shared_by_batch:
            return [np.repeat(draw("mask", 1, shape, rate=rate, first=0), batch, 0)]
        return [draw("mask", batch, shape, rate=rate)]

    return make


SHAPE = (6, 5, 4)
# (the layer, what it does to x with the injected numbers, shapes of these numbers, how they are drawn)
multiply = lambda x, n: L.Multiply()([x, n[0]])
RANDOM = [
    (lambda: L.SpatialDropout2D(0.3), multiply, [(1, 1, 4)], factors((1, 1, 4), 0.3)),
    (lambda: L.SpatialDropout2D(0.3, data_format="channels_first"), multiply, [(6, 1, 1)], factors((6, 1, 1), 0.3)),
    (lambda: L.GaussianNoise(0.2), lambda x, n: L.Add()([x, n[0]]), [SHAPE], lambda draw, b: [0.2 * draw("normals", b, SHAPE)]),
    (lambda: L.GaussianDropout(0.2), multiply, [SHAPE], lambda draw, b: [1 + np.float32(0.5) * draw("normals", b, SHAPE)]),
    (
        lambda: L.AlphaDropout(0.25),
        lambda x, n: L.Add()([L.Multiply()([x, n[0]]), n[1]]),
        [SHAPE, SHAPE],
        lambda draw, b: alpha_parts(draw("units", b, SHAPE), 0.25),
    ),
    (lambda: L.Dropout(0.4, noise_shape=(None, 1, 1, None)), multiply, [(1, 1, 4)], factors((1, 1, 4), 0.4)),
    (lambda: L.Dropout(0.1, noise_shape=(None, 1, 1, 1)), multiply, [(1, 1, 1)], factors((1, 1, 1), 0.1)),
    (lambda: L.Dropout(0.2, noise_shape=(1, 6, 5, 1)), multiply, [(6, 5, 1)], factors((6, 5, 1), 0.2, True)),
    (lambda: L.Dropout(0.2, noise_shape=(None, 6, 1, 4)), multiply, [(6, 1, 4)], factors((6, 1, 4), 0.2)),
    (
        lambda: L.AlphaDropout(0.15, noise_shape=(None, 1, None, 1)),
        lambda x, n: L.Add()([L.Multiply()([x, n[0]]), n[1]]),
        [(1, 5, 1), (1, 5, 1)],
        lambda draw, b: alpha_parts(draw("units", b, (1, 5, 1)), 0.15),
    ),
    (  # each of its steps is a call of its own; it is the last layer, so its number is the number of layers
        lambda: L.TimeDistributed(L.Dropout(0.3)),
        multiply,
        [SHAPE],
        lambda draw, b: [np.stack([draw("mask", b, SHAPE[1:], call=len(RANDOM) + t * 2**14, rate=0.3) for t in range(SHAPE[0])], 1)],
    ),
]


def random_network(injected):
    i = keras.Input(SHAPE)
    noises = []
    x = L.Conv2D(4, 1, name="stem")(i)
    for k, (make, apply, shapes, _) in enumerate(RANDOM):
        if injected:
            own = [keras.Input(shape, name=f"noise{k}_{j}") for j, shape in enumerate(shapes)]
            noises += own
            x = apply(x, own)
        else:
            x = make()(x)
    return keras.Model([i] + noises, L.Dense(2, name="head")(L.Flatten()(x)), name="random")


@pytest.mark.parametrize("micro", (None, 3))
def test_random_layers_with_injected_numbers(micro, tmp_path, rng):
    seed, batch, steps = 0x1234567890, 8, 3
    model, oracle = random_network(False), random_network(True)
    oracle.set_weights(model.get_weights())
    for one in (model, oracle):
        one.compile(keras.optimizers.SGD(0.05), "mse")
    x = rng.standard_normal((batch * steps - 3,) + SHAPE).astype(np.float32)
    y = rng.standard_normal((len(x), 2)).astype(np.float32)
    model.save(tmp_path / "model.keras")
    data = program.arrays(tmp_path, x=x, y=y)
    trained = program.fit(
        tmp_path, tmp_path / "model.keras", data, batch_size=batch, micro_batch=micro, seed=seed, epochs=1, steps=steps
    )
    losses = []
    for step, (bx, by) in enumerate(keras_side.batches(x, y, batch)):
        numbers = []
        for k, (_, _, shapes, draw_numbers) in enumerate(RANDOM):

            def draw(kind, count, shape, call=k + 1, **named):  # call 0 is the stem
                if kind == "units":
                    return philox.units(seed, step, call, count, int(np.prod(shape))).reshape((count,) + shape)
                return getattr(philox, kind)(seed, step, call, count, shape, **named)

            numbers += [np.asarray(n, np.float32) for n in draw_numbers(draw, len(bx))]
        losses.append(float(oracle.train_on_batch([bx] + numbers, by)))
    for step, (a, b) in enumerate(zip(trained.losses, losses, strict=True)):
        compare.close("run loss", f"random layers: step {step + 1}", a, b, compare.RUN_LOSS)
    after = keras_side.values(keras_side.load(trained.saved))
    runs.check_weights("random layers", after, keras_side.values(oracle), model.weights)
    got = program.predict(tmp_path, trained.saved, program.arrays(tmp_path, prefix="only_", x=x), batch_size=8)
    want = np.array(keras_side.load(trained.saved)(x, training=False))
    compare.close("output", "random layers outside training", got, want, compare.OUTPUT)
