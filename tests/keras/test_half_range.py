"""`plimsoll precision`: the layers that it names are those in which Keras, under mixed_float16, gets infinities and zeros."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import program

SAMPLES, INPUTS, CLASSES = 64, 20, 3
UNITS = {"first": 16, "loud": 12, "quiet": 8, "out": CLASSES}
ACTIVATIONS = {"first": "relu", "loud": None, "quiet": "tanh", "out": "softmax"}
FLOAT16_MAX, SCALE = 65504, 2.0**15


@pytest.fixture(autouse=True)
def global_policy():
    yield
    keras.mixed_precision.set_global_policy("float32")


def network(policy, factors, loss_weight):
    keras.mixed_precision.set_global_policy(policy)
    layers = [keras.layers.Dense(units, activation=ACTIVATIONS[name], name=name) for name, units in UNITS.items()]
    model = keras.Sequential([keras.Input((INPUTS,)), *layers], name="half")
    model.compile(keras.optimizers.SGD(1e-3), "sparse_categorical_crossentropy", loss_weights=[loss_weight])
    rng = np.random.default_rng(1)
    for layer in layers:
        layer.kernel.assign(rng.normal(0, 0.3, layer.kernel.shape) * factors.get(layer.name, 1))
        layer.bias.assign(np.zeros(layer.bias.shape))
    return model


def data():
    rng = np.random.default_rng(2)
    return rng.random((SAMPLES, INPUTS), dtype=np.float32), rng.integers(0, CLASSES, SAMPLES).astype(np.int32)


def looked_at(folder, factors, loss_weight=1.0, *flags):
    network("float32", factors, loss_weight).save(folder / "m.keras")
    for name, array in zip("xy", data()):
        np.save(folder / f"{name}.npy", array)
    return program.run(
        "precision", "m.keras", "--data", "x.npy,y.npy", "--batch-size", SAMPLES, "--json", *flags, cwd=folder
    ).json()


def part(answer, layer, kind):
    return next(p for p in answer["layers"] if (p["layer"], p["part"]) == (layer, kind))


def half_outputs(factors):
    """Each layer computed by Keras in float16, from what float32 gives it."""
    exact, half = (network(policy, factors, 1.0) for policy in ("float32", "mixed_float16"))
    x, outputs = data()[0], {}
    for layer in UNITS:
        outputs[layer] = keras.ops.convert_to_numpy(half.get_layer(layer)(x))
        x = keras.ops.convert_to_numpy(exact.get_layer(layer)(x))
        assert outputs[layer].dtype == np.float16
    return outputs


def half_gradients(factors, loss_weight):
    """The gradients of the kernels in float16 times the loss scale, as Keras's LossScaleOptimizer gets them."""
    model = network("mixed_float16", factors, loss_weight)
    x, y = data()
    with tf.GradientTape() as tape:
        loss = loss_weight * tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(y, tf.cast(model(x), tf.float32)))
        scaled = loss * SCALE
    kernels = {name: model.get_layer(name).kernel.value for name in UNITS}
    return {name: grad.numpy() for name, grad in zip(kernels, tape.gradient(scaled, list(kernels.values())))}


def test_an_ordinary_model_needs_none(tmp_path):
    answer = looked_at(tmp_path, {})
    assert answer["float32_layers"] == [] and answer["loss_scale"] == SCALE and answer["samples"] == SAMPLES
    for layer, output in half_outputs({}).items():
        assert np.isfinite(output).all() and part(answer, layer, "outputs")["become_infinite"] == 0
    assert "--float32-layers" not in answer["command"] and "--precision mixed_float16" in answer["command"]


def test_a_layer_whose_outputs_overflow(tmp_path):
    factors = {"loud": 7e4, "quiet": 1e-5}  # the weights still fit: the outputs do not
    answer = looked_at(tmp_path, factors)
    infinite = {layer: int(np.isinf(output).sum()) for layer, output in half_outputs(factors).items()}
    assert infinite["loud"] > 0 and sum(infinite.values()) == infinite["loud"]
    for layer, count in infinite.items():
        assert part(answer, layer, "outputs")["become_infinite"] == pytest.approx(count, abs=2), layer
    assert answer["float32_layers"] == ["loud"]
    assert "--float32-layers loud" in answer["command"]


def test_gradients_that_vanish(tmp_path):
    weight = 1e-12
    answer = looked_at(tmp_path, {}, weight)
    vanished = {layer for layer, gradient in half_gradients({}, weight).items() if np.mean(gradient == 0) > 0.5}
    assert vanished == set(UNITS)
    assert answer["float32_layers"] == list(UNITS)
    kept = {layer for layer, gradient in half_gradients({}, 1.0).items() if np.mean(gradient == 0) < 0.25}
    assert {"loud", "quiet", "out"} <= kept  # the first layer's ReLU has zeros of its own


def test_weights_that_vanish(tmp_path):
    factors = {"loud": 1e-9, "quiet": 1.0}
    answer = looked_at(tmp_path, factors)
    kernel = network("float32", factors, 1.0).get_layer("loud").kernel.numpy().astype(np.float16)
    assert np.mean(kernel == 0) > 0.25
    assert "loud" in answer["float32_layers"]


def test_a_layer_that_stays_in_float32_is_not_looked_at(tmp_path):
    answer = looked_at(tmp_path, {"loud": 7e4, "quiet": 1e-5}, 1.0, "--float32-layers", "loud")
    assert "loud" not in {p["layer"] for p in answer["layers"]}


def test_the_text_says_it_in_80_columns(tmp_path):
    looked_at(tmp_path, {"loud": 7e4, "quiet": 1e-5})
    text = program.run("precision", "m.keras", "--data", "x.npy,y.npy", "--batch-size", SAMPLES, cwd=tmp_path).stdout
    assert text.startswith("1 layer of this model needs float32 under mixed_float16: loud.\n")
    assert "become infinite" in text and text.rstrip().endswith("--save trained.keras")
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("flags, told", ((("--precision", "mixed_float16"), "takes no --precision"), (("--device", "t4-16g"), "needs the CPU")))
def test_what_it_cannot_do_is_one_error(tmp_path, flags, told):
    network("float32", {}, 1.0).save(tmp_path / "m.keras")
    for name, array in zip("xy", data()):
        np.save(tmp_path / f"{name}.npy", array)
    refused = program.run("precision", "m.keras", "--data", "x.npy,y.npy", *flags, "--json", cwd=tmp_path, expect=2)
    assert told in json.loads(refused.stdout)["error"]["what"]
