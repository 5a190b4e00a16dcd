"""Recurrent layers in every option: output, loss and all gradients against Keras. The Dense before each layer shows an error
in its input gradient."""

import keras
import numpy as np
import pytest

import program
from one_step import check_step

L = keras.layers
N, T, D = 5, 7, 4
CLASSES = {"rnn": L.SimpleRNN, "lstm": L.LSTM, "gru": L.GRU}


def options():
    """name: (keyword arguments, classes that have them)"""
    every = ("rnn", "lstm", "gru")
    yield "plain", {}, every
    yield "sequences", {"return_sequences": True}, every
    yield "no_bias", {"use_bias": False, "return_sequences": True}, every
    yield "backwards", {"go_backwards": True}, every
    yield "backwards_sequences", {"go_backwards": True, "return_sequences": True}, every
    yield "unrolled", {"unroll": True, "return_sequences": True}, every
    yield "relu", {"activation": "relu"}, every
    yield "softplus", {"activation": "softplus", "return_sequences": True}, every
    yield "linear", {"activation": None}, every
    yield "hard_sigmoid", {"recurrent_activation": "hard_sigmoid"}, ("lstm", "gru")
    yield "softsign", {"recurrent_activation": "softsign", "return_sequences": True}, ("lstm", "gru")
    yield "reset_before", {"reset_after": False}, ("gru",)
    yield "reset_before_sequences", {"reset_after": False, "return_sequences": True, "use_bias": False}, ("gru",)
    yield "regularized", {"kernel_regularizer": "l2", "recurrent_regularizer": "l1", "bias_regularizer": "l2"}, every
    yield "constrained", {"kernel_constraint": "max_norm", "recurrent_constraint": "unit_norm"}, every
    yield "activity", {"activity_regularizer": keras.regularizers.L1L2(0.02, 0.03), "return_sequences": True}, every


PLAIN = {f"{name}_{option}": (CLASSES[name], kwargs) for option, kwargs, names in options() for name in names}


def layer_cases():
    for name, (make, kwargs) in PLAIN.items():
        yield name, lambda make=make, kwargs=kwargs: make(6, **kwargs)
    for mode in ("concat", "sum", "ave", "mul"):
        yield f"bidirectional_{mode}", lambda mode=mode: L.Bidirectional(L.LSTM(5), merge_mode=mode)
        yield (
            f"bidirectional_{mode}_sequences",
            lambda mode=mode: L.Bidirectional(L.GRU(5, return_sequences=True), merge_mode=mode),
        )
    yield "bidirectional_rnn", lambda: L.Bidirectional(L.SimpleRNN(3, return_sequences=True))
    yield (
        "bidirectional_two_layers",
        lambda: L.Bidirectional(
            L.LSTM(5, return_sequences=True), backward_layer=L.GRU(5, return_sequences=True, go_backwards=True)
        ),
    )
    yield (
        "bidirectional_first_backwards",
        lambda: L.Bidirectional(
            L.LSTM(5, return_sequences=True, go_backwards=True), backward_layer=L.LSTM(5, return_sequences=True)
        ),
    )
    yield "cell", lambda: L.RNN(L.LSTMCell(5))
    yield "gru_cell", lambda: L.RNN(L.GRUCell(5, reset_after=False), return_sequences=True)
    yield "stacked", lambda: L.RNN([L.LSTMCell(5), L.GRUCell(3), L.SimpleRNNCell(4)], return_sequences=True)
    yield "stacked_same", lambda: L.RNN(L.StackedRNNCells([L.GRUCell(3), L.GRUCell(4)]), go_backwards=True)
    yield "bidirectional_stacked", lambda: L.Bidirectional(L.RNN([L.GRUCell(3), L.LSTMCell(4)], return_sequences=True))


LAYERS = dict(layer_cases())


def check(folder, rng, name, inputs, outputs, samples=N, **arguments):
    model = keras.Model(inputs, outputs, name=name)
    x = rng.standard_normal((samples,) + model.input_shape[1:]).astype(np.float32)
    y = rng.standard_normal((samples,) + model.output_shape[1:]).astype(np.float32)
    check_step(folder, model, x, y, "mse", **arguments)


@pytest.mark.parametrize("name", LAYERS)
def test_recurrent_layer(name, tmp_path, rng):
    i = keras.Input((T, D))
    check(tmp_path, rng, name, i, LAYERS[name]()(L.Dense(D, name="stem")(i)))


@pytest.mark.parametrize("units, samples", [(1, 1), (17, 3), (64, 33)])
@pytest.mark.parametrize("name", CLASSES)
def test_sizes(name, units, samples, tmp_path, rng):
    i = keras.Input((11, 19))
    check(tmp_path, rng, name, i, CLASSES[name](units, return_sequences=True)(L.Dense(19)(i)), samples=samples)


@pytest.mark.parametrize("name", CLASSES)
def test_states(name, tmp_path, rng):
    """An encoder's states begin the decoder; every state reaches the loss."""
    i = keras.Input((T, D))
    _, *states = CLASSES[name](6, return_state=True)(L.Dense(D)(i))
    y, *last = CLASSES[name](6, return_sequences=True, return_state=True)(L.Dense(3)(i), initial_state=states)
    check(tmp_path, rng, name, i, L.Concatenate()([L.GlobalAveragePooling1D()(y), *last]))


def test_states_of_stacked_cells(tmp_path, rng):
    i = keras.Input((T, D))
    cells = [L.LSTMCell(3), L.GRUCell(4)]
    y, first, second = L.RNN(cells, return_state=True)(L.Dense(D)(i))
    check(tmp_path, rng, "stacked_states", i, L.Concatenate()([y, *first, second]))


def test_states_of_both_directions(tmp_path, rng):
    i = keras.Input((T, D))
    encoded = L.Bidirectional(L.LSTM(3, return_state=True))(L.Dense(D)(i))
    made = L.Bidirectional(L.LSTM(3, return_state=True, return_sequences=True), merge_mode=None)(
        L.Dense(D)(i), initial_state=list(encoded[1:])
    )
    parts = [L.GlobalAveragePooling1D()(y) for y in made[:2]]
    check(tmp_path, rng, "both_states", i, L.Concatenate()([encoded[0], *parts, *made[2:]]))


MASKED = {
    **{name: kwargs for name, kwargs in PLAIN.items() if name.split("_", 1)[1] in ("plain", "sequences", "backwards", "unrolled", "reset_before", "backwards_sequences")},
    "bidirectional": (lambda units: L.Bidirectional(L.LSTM(units)), {}),
    "bidirectional_sequences": (lambda units: L.Bidirectional(L.GRU(units, return_sequences=True)), {}),
    "stacked": (lambda units: L.RNN([L.LSTMCell(units), L.GRUCell(units)], return_sequences=True), {}),
    "stacked_backwards": (lambda units: L.RNN([L.GRUCell(units), L.LSTMCell(units)], go_backwards=True), {}),
    "zeroes": (lambda units: L.RNN(L.LSTMCell(units), return_sequences=True, zero_output_for_mask=True), {}),
    "zeroes_last": (lambda units: L.RNN(L.GRUCell(units), zero_output_for_mask=True), {}),
}


def padded(rng, kind):
    """Sequences whose masked steps are 0: at the end, or anywhere, with one sample that is masked throughout."""
    x = rng.standard_normal((N, T, D)).astype(np.float32)
    if kind == "right":
        for n, length in enumerate((7, 4, 1, 6, 2)):
            x[n, length:] = 0
    else:
        x[rng.random((N, T)) < 0.4] = 0
        x[2] = 0
        x[0, 0], x[1, 0] = 1, 0
    return x


def conv_cases():
    """name: (shape of a sample, layer)"""
    line, image, volume = (3, 7, 2), (3, 5, 6, 2), (2, 3, 4, 3, 2)
    yield "conv1d", (line, lambda: L.ConvLSTM1D(3, 3))
    yield "conv1d_strided", (line, lambda: L.ConvLSTM1D(2, 2, strides=2, padding="same", return_sequences=True))
    yield "conv2d", (image, lambda: L.ConvLSTM2D(3, 3))
    yield "conv2d_sequences", (image, lambda: L.ConvLSTM2D(3, (2, 3), padding="same", return_sequences=True, use_bias=False))
    yield "conv2d_backwards", (image, lambda: L.ConvLSTM2D(2, 2, go_backwards=True, activation="relu", recurrent_activation="silu"))
    yield "conv2d_dilated", (image, lambda: L.ConvLSTM2D(2, 2, dilation_rate=2, kernel_regularizer="l2"))
    yield "conv3d", (volume, lambda: L.ConvLSTM3D(2, 2, padding="same", return_sequences=True))


CONV = dict(conv_cases())


@pytest.mark.parametrize("name", CONV)
def test_convolutional_cells(name, tmp_path, rng):
    shape, make = CONV[name]
    i = keras.Input(shape)
    check(tmp_path, rng, name, i, make()(L.Dense(2, name="stem")(i)), samples=2)


def test_states_of_convolutional_cells(tmp_path, rng):
    i = keras.Input((3, 4, 5, 2))
    _, *states = L.ConvLSTM2D(2, 2, padding="same", return_state=True)(L.Dense(2)(i))
    y, *last = L.ConvLSTM2D(2, 3, padding="same", return_state=True)(i, initial_state=states)
    check(tmp_path, rng, "conv_states", i, L.Concatenate()([y, *last]), samples=2)


@pytest.mark.parametrize("kind", ["right", "any"])
@pytest.mark.parametrize("name", MASKED)
def test_masks(name, kind, tmp_path, rng):
    make, kwargs = MASKED[name]
    i = keras.Input((T, D))
    y = make(5, **kwargs)(L.Masking()(i))
    y = L.Dense(3)(y)
    model = keras.Model(i, y, name=name)
    target = rng.standard_normal((N,) + model.output_shape[1:]).astype(np.float32)
    check_step(tmp_path, model, padded(rng, kind), target, "mse")


def test_shared_layer(tmp_path, rng):
    i = keras.Input((T, D))
    shared = L.LSTM(4, return_sequences=True)
    check(tmp_path, rng, "shared", i, L.Add()([shared(L.Dense(D)(i)), shared(L.Dense(D)(i))]))


def test_nested_model(tmp_path, rng):
    inner = keras.Sequential([keras.Input((T, D)), L.GRU(4, return_sequences=True), L.LSTM(3)])
    i = keras.Input((T, D))
    check(tmp_path, rng, "nested", i, L.Dense(2)(inner(L.Dense(D)(i))))


def test_time_distributed(tmp_path, rng):
    i = keras.Input((3, T, D))
    check(tmp_path, rng, "time_distributed", i, L.LSTM(2)(L.TimeDistributed(L.GRU(4))(i)))


def test_frozen_layer(tmp_path, rng):
    i = keras.Input((T, D))
    layer = L.Bidirectional(L.LSTM(3))
    layer.trainable = False
    check(tmp_path, rng, "frozen", i, layer(L.Dense(D)(i)))


@pytest.mark.parametrize("steps", [1024, 4096])
def test_the_least_memory_grows_with_the_root_of_the_steps(steps, tmp_path):
    """Recompute over time steps keeps about two times sqrt(T) steps of the layer, of 6 numbers per unit each."""
    batch, units, width = 32, 64, 16
    model = keras.Sequential([keras.Input((None, width)), L.LSTM(units), L.Dense(1)])
    model.compile("sgd", "mse")
    model.save(tmp_path / "model.keras")
    plan = program.plan(
        tmp_path / "model.keras", input_shape=f"{steps},{width}", batch_size=batch, forbid="micro-batch,prefetch"
    )
    data = 4 * batch * steps * width
    step = 4 * batch * units * 6
    assert plan["arena_bytes"] > steps * step * 0.9, plan["arena_bytes"]
    least = plan["least_bytes"] - plan["overhead_bytes"] - data
    assert least < 1.5 * 2 * step * steps**0.5, (least, step)
