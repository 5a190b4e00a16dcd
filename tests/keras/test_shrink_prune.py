"""plimsoll shrink prune and resize: Keras loads the smaller file, predicts what we predict, and trains on with the same losses.

Whether the right slices were taken is seen in two ways: channels that are constant may leave without any change of the
predictions, and the optimizer's moments, set to functions of their weights before, still are those functions after.
"""

import os

import keras
import numpy as np
import pytest

import compare
import program
import shrink_models

MOMENT = 0.5  # each first moment is this times its weight before the cut, each second one the same without its sign


def trained(model, rng):
    """One step, so that the optimizer has its variables; then moments that are functions of the weights."""
    x, y = shrink_models.batch(model, rng)
    before = model.get_weights()
    model.fit(x, y, batch_size=len(x), epochs=1, verbose=0)
    model.set_weights(before)
    for variable, first, second in pairs(model):
        first.assign(MOMENT * variable)
        second.assign(MOMENT * abs(variable.numpy()))
    return x, y


def pairs(model):
    """Each trained variable with its two moments, as Adam lists them."""
    moments = model.optimizer.variables[2:]
    return [(v, moments[2 * i], moments[2 * i + 1]) for i, v in enumerate(model.trainable_variables)]


def shrink(folder, way, model, *flags, expect=0, name="small"):
    small = folder / f"{name}.keras"
    ended = program.run("shrink", way, model, "-o", small, "--json", "--batch-size", 8, *flags, expect=expect)
    return small, ended.json()


def check_announced(small, report, loaded):
    """Parameters, bytes and arenas of the file are those that were printed."""
    after = report["after"]
    assert after["parameters"] == loaded.count_params() < report["before"]["parameters"]
    assert after["file_bytes"] == os.path.getsize(small)
    planned = program.plan(small, batch_size=8)
    assert planned["arena_bytes"] == after["training"]["arena_bytes"]
    assert planned["peak_bytes"] == after["training"]["peak_bytes"]


def check_as_keras(folder, small, loaded, x, y):
    """Keras and the program predict the same, and train on with the same losses."""
    data = program.arrays(folder, x=x, y=y)
    compare.close("shrunk", "prediction", program.predict(folder, small, str(data).split(",")[0], batch_size=8),
                  loaded.predict(x, verbose=0), compare.OUTPUT, scale=1.0)
    ours = program.fit(folder, small, data, batch_size=8, epochs=4, steps=4).losses
    theirs = [loaded.train_on_batch(x, y) for _ in range(4)]
    compare.close("shrunk", "losses", ours, np.array(theirs), compare.RUN_LOSS)


FLAGS = {"attention": ("--ratio", 0.5), "mobilenet": ("--multiplications", 0.5), "unet": ("--target", "100KiB")}


@pytest.mark.parametrize("name", shrink_models.MODELS)
def test_pruned(name, tmp_path, rng):
    model = shrink_models.build(name, rng)
    x, y = trained(model, rng)
    whole = tmp_path / "whole.keras"
    model.save(whole)
    small, report = shrink(tmp_path, "prune", whole, "--multiple", 1, *FLAGS.get(name, ("--ratio", 0.4)))
    loaded = keras.models.load_model(small)
    check_announced(small, report, loaded)
    if name == "mobilenet":
        assert report["after"]["multiplications"] <= 0.5 * report["before"]["multiplications"]
    if name == "unet":
        assert report["after"]["file_bytes_without_optimizer"] <= 100 * 1024
    for variable, first, second in pairs(loaded):
        if variable.path.endswith("bias") or variable.path.endswith("beta"):
            continue  # constants of channels that left are folded into biases
        np.testing.assert_array_equal(first, MOMENT * variable.numpy(), variable.path)
        np.testing.assert_array_equal(second, MOMENT * abs(variable.numpy()), variable.path)
    assert loaded.optimizer.iterations.numpy() == 1
    check_as_keras(tmp_path, small, loaded, x, y)


def test_resized_with_norms(tmp_path, rng):
    """Through LayerNormalization only resize cuts: the statistics change, so predictions may."""
    model = shrink_models.build("attention", rng)
    x, y = trained(model, rng)
    whole = tmp_path / "whole.keras"
    model.save(whole)
    small, report = shrink(tmp_path, "resize", whole, "--width", 0.5)
    loaded = keras.models.load_model(small)
    check_announced(small, report, loaded)
    assert {layer.output_dim for layer in loaded.layers if isinstance(layer, keras.layers.Embedding)} == {16}
    check_as_keras(tmp_path, small, loaded, x, y)


def make_constant(model, rng):
    """Makes a third of the channels constant: kernels or scales of zeros, with the biases and shifts as they are."""
    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.BatchNormalization):
            values = layer.gamma.numpy()
            values[rng.permutation(len(values))[: len(values) // 3]] = 0
            layer.gamma.assign(values)
        elif isinstance(layer, (keras.layers.Dense, keras.layers.Conv2D)) and layer is not model.layers[-1]:
            if isinstance(layer, (keras.layers.Conv2DTranspose, keras.layers.DepthwiseConv2D)):
                continue
            values = layer.kernel.numpy()
            values[..., rng.permutation(values.shape[-1])[: values.shape[-1] // 3]] = 0
            layer.kernel.assign(values)


def dense_net(rng):
    """Constants that are not zero reach a Dense, a convolution without padding, and one without a bias before its BatchNorm."""
    L = keras.layers
    inputs = keras.Input((9, 9, 3))
    x = L.Conv2D(18, 3, activation="sigmoid")(inputs)
    x = L.BatchNormalization()(L.Conv2D(24, 3, use_bias=False)(x))
    x = L.Concatenate()([L.Activation("swish")(x), L.Activation("tanh")(x)])
    x = L.Flatten()(L.AveragePooling2D(2)(x))
    x = L.Dense(30, activation="softplus")(x)
    model = keras.Model(inputs, L.Dense(5, activation="softmax")(x))
    for layer in model.layers:
        if getattr(layer, "bias", None) is not None:
            layer.bias.assign(rng.normal(0, 0.5, layer.bias.shape))
        if isinstance(layer, L.BatchNormalization):
            n = layer.gamma.shape[0]
            layer.set_weights([rng.uniform(0.5, 1.5, n), rng.normal(0, 1, n), rng.normal(0, 0.3, n), rng.uniform(0.5, 1.5, n)])
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
    return model


@pytest.mark.parametrize("name", ["dense_net", "resnet", "densenet", "mobilenet"])
def test_constant_channels_leave_without_a_change(name, tmp_path, rng):
    model = dense_net(rng) if name == "dense_net" else shrink_models.build(name, rng)
    make_constant(model, rng)
    x, _ = shrink_models.batch(model, rng)
    model.save(tmp_path / "whole.keras")
    small, report = shrink(tmp_path, "prune", tmp_path / "whole.keras", "--free")
    assert report["after"]["parameters"] < report["before"]["parameters"]
    if name == "dense_net":
        left = {group["layers"]: group["after"] for group in report["groups"] if "stays_because" not in group}
        conv, norm = model.get_layer("conv2d_1"), model.get_layer("batch_normalization")
        alive = np.any(conv.kernel.numpy() != 0, axis=(0, 1, 2)) & (norm.gamma.numpy() != 0)
        assert left == {"conv2d": 12, "conv2d_1": alive.sum(), "dense": 20}
    loaded = keras.models.load_model(small)
    compare.close("constant channels", name, loaded.predict(x, verbose=0), model.predict(x, verbose=0), compare.OUTPUT,
                  scale=1.0)
