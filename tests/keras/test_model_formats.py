"""The other files that Keras keeps models in: whole models in .h5, .json with weights, and SavedModel folders.

Files of Keras 3 are written here; those of Keras 2 lie in tests/golden/keras2, with what tf_keras computed from them.
"""

import shutil

import h5py
import keras
import numpy as np
import pytest

import compare
import keras_side
import models
import program
import runs

BATCH, HALF = 4, 3
KERAS2 = program.ROOT / "tests" / "golden" / "keras2"
OLD_DATA = f"{KERAS2 / 'x.npy'},{KERAS2 / 'y.npy'}"
OPTIMIZERS = {
    "momentum": lambda: keras.optimizers.SGD(0.05, momentum=0.9),
    "adam": lambda: keras.optimizers.Adam(0.005),
    "schedule": lambda: keras.optimizers.Adam(keras.optimizers.schedules.ExponentialDecay(0.01, 3, 0.7)),
}


def network():
    L = keras.layers
    inner = keras.Sequential([keras.Input((8, 8, 3)), L.Conv2D(4, 3, use_bias=False), L.BatchNormalization(), L.ReLU()], name="inner")
    i = keras.Input((8, 8, 3))
    x = L.BatchNormalization(trainable=False)(L.Conv2D(3, 1, name="z")(inner(i)))
    x = L.Dropout(0.0)(L.Flatten()(L.MaxPooling2D()(L.LeakyReLU(negative_slope=0.1)(x))))
    return keras.Model(i, L.Dense(5, name="a")(x), name="formats")


def start(rng, optimizer, trained=HALF):
    model = keras_side.randomize(network())
    model.compile(OPTIMIZERS[optimizer](), keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    x, y = models.labelled(rng, 2 * HALF * BATCH, (8, 8, 3), 5)
    half = HALF * BATCH
    keras_side.train(model, x[: trained * BATCH], y[: trained * BATCH], BATCH)
    return model, (x[:half], y[:half]), (x[half:], y[half:])


def check_same(where, got, want):
    runs.check_weights(where, keras_side.values(got), keras_side.values(want), want.weights)
    runs.check_state(where, keras_side.state(got), keras_side.state(want))


def check_file(where, got, model, folder):
    """Compares a .h5 file with that of Keras. Keras 3 itself loads only the iteration and the learning rate of a functional model from
    it: it builds the optimizer for the variables of the outermost model alone, which has none."""
    model.save(folder / "want.h5")
    with h5py.File(got) as a, h5py.File(folder / "want.h5") as b:
        for group in ("model_weights", "optimizer_weights"):
            datasets = []
            b[group].visititems(lambda name, item: datasets.append(name) if isinstance(item, h5py.Dataset) else None)
            listed = [n if isinstance(n, str) else n.decode() for n in a["optimizer_weights"].attrs["weight_names"]]
            wanted = list(b["optimizer_weights"].attrs["weight_names"])
            assert len(listed) == len(wanted)
            if group == "model_weights":
                for name in datasets:
                    compare.close("run weight", f"{where}: {name}", a[group][name][()], b[group][name][()], compare.RUN_WEIGHT)
                continue
            assert a[group][listed[0]][()] == b[group][wanted[0]][()]
            for mine, name in zip(listed[1:], wanted[1:]):
                compare.close("run state", f"{where}: {name}", a[group][mine][()], b[group][name][()], compare.STATE)
    loaded = keras_side.load(got)
    runs.check_weights(where, keras_side.values(loaded), keras_side.values(model), model.weights)
    assert int(loaded.optimizer.iterations.numpy()) == int(model.optimizer.iterations.numpy())


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_h5_continues_here(optimizer, tmp_path, rng):
    model, _, second = start(rng, optimizer)
    model.save(tmp_path / "half.h5")
    trained = program.fit(tmp_path, tmp_path / "half.h5", runs.data_of(tmp_path, *second), batch_size=BATCH, steps=HALF, ending=".h5")
    keras_side.train(model, *second, BATCH)
    check_file(f"{optimizer}: three in Keras, three here", trained.saved, model, tmp_path)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_h5_continues_here_and_again_in_keras(optimizer, tmp_path, rng):
    model, first, second = start(rng, optimizer)
    model.save(tmp_path / "half.h5")
    trained = program.fit(tmp_path, tmp_path / "half.h5", runs.data_of(tmp_path, *second), batch_size=BATCH, steps=HALF)
    keras_side.train(model, *second, BATCH)
    loaded = keras_side.load(trained.saved)
    check_same(f"{optimizer}: three in Keras, three here", loaded, model)
    keras_side.train(model, *first, BATCH)
    keras_side.train(loaded, *first, BATCH)
    check_same(f"{optimizer}: three in Keras, three here, three in Keras", loaded, model)


def test_h5_that_was_never_trained(tmp_path, rng):
    """Its file has no moments, and the saved one has them."""
    model, first, second = start(rng, "adam", trained=0)
    model.save(tmp_path / "new.h5")
    trained = program.fit(tmp_path, tmp_path / "new.h5", runs.data_of(tmp_path, *first), batch_size=BATCH, steps=HALF, ending=".h5")
    keras_side.train(model, *first, BATCH)
    check_file("three here", trained.saved, model, tmp_path)


def test_h5_keeps_its_configuration(tmp_path, rng):
    model, first, _ = start(rng, "adam")
    model.save(tmp_path / "model.h5")
    trained = program.fit(tmp_path, tmp_path / "model.h5", runs.data_of(tmp_path, *first), batch_size=BATCH, ending=".h5")
    with h5py.File(tmp_path / "model.h5") as a, h5py.File(trained.saved) as b:
        assert dict(a.attrs) == dict(b.attrs)
        assert list(a["model_weights"].attrs["layer_names"]) == [n.decode() for n in b["model_weights"].attrs["layer_names"]]


def test_h5_with_another_optimizer(tmp_path, rng):
    model, first, _ = start(rng, "momentum")
    model.save(tmp_path / "model.h5")
    trained = program.fit(tmp_path, tmp_path / "model.h5", runs.data_of(tmp_path, *first), batch_size=BATCH, steps=HALF, ending=".h5",
                          optimizer="adam", learning_rate=0.01)
    model.compile(keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    keras_side.train(model, *first, BATCH)
    assert isinstance(keras_side.load(trained.saved).optimizer, keras.optimizers.Adam)
    check_file("adam after momentum", trained.saved, model, tmp_path)


def test_long_lists_are_split(tmp_path):
    """Keras splits lists of more than 64,512 bytes over several attributes."""
    layers = [keras.layers.ReLU(name=f"{k:03}" + "n" * 400) for k in range(170)]
    model = keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(2, name="d" * 400)])
    model.compile("sgd", keras.losses.MeanSquaredError())  # Keras 3 does not load a .h5 with "mse"
    model.save(tmp_path / "long.h5")
    x, y = np.ones((4, 4), np.float32), np.ones((4, 2), np.float32)
    with h5py.File(tmp_path / "long.h5") as file:
        assert "layer_names1" in file["model_weights"].attrs
    trained = program.fit(tmp_path, tmp_path / "long.h5", runs.data_of(tmp_path, x, y), batch_size=4, steps=1, ending=".h5")
    keras_side.train(model, x, y, 4)
    check_file("long lists", trained.saved, model, tmp_path)


def test_json_with_weights(tmp_path, rng):
    model, first, second = start(rng, "adam")
    (tmp_path / "model.json").write_text(model.to_json())
    model.save_weights(tmp_path / "w.weights.h5")
    data = runs.data_of(tmp_path, *second)
    flags = ["--weights", tmp_path / "w.weights.h5"]  # the .json of a compiled model names its optimizer and loss
    x = program.arrays(tmp_path, prefix="only_", x=second[0])
    got = program.predict(tmp_path, tmp_path / "model.json", x, "--weights", tmp_path / "w.weights.h5")
    compare.close("output", "json and weights", got, model.predict(second[0], verbose=0), compare.OUTPUT)
    trained = program.fit(tmp_path, tmp_path / "model.json", data, *flags, batch_size=BATCH, steps=HALF, ending=".weights.h5")
    keras_side.train(model, *second, BATCH)
    again = network()
    again.compile(OPTIMIZERS["adam"](), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    again.optimizer.build(again.trainable_variables)
    again.load_weights(trained.saved)
    check_same("json and weights", again, model)
    trained = program.fit(tmp_path, tmp_path / "model.json", data, *flags, batch_size=BATCH, steps=HALF, name="legacy", ending=".h5")
    again.load_weights(trained.saved)
    runs.check_weights("legacy weights", keras_side.values(again), keras_side.values(model), model.weights)


def test_weights_of_another_file(tmp_path, rng):
    """--weights replaces those of any model, by those of any file."""
    model, first, _ = start(rng, "adam")
    model.save(tmp_path / "other.h5")
    model.save(tmp_path / "other.keras")
    want = model.predict(first[0], verbose=0)
    keras_side.randomize(model, seed=9).save(tmp_path / "model.keras")
    x = program.arrays(tmp_path, x=first[0])
    for name in ("other.h5", "other.keras"):
        got = program.predict(tmp_path, tmp_path / "model.keras", x, "--weights", tmp_path / name)
        compare.close("output", name, got, want, compare.OUTPUT)


@pytest.mark.parametrize("name", ("model.h5", "model.keras", "model.json"))
def test_content_decides_and_not_the_name(name, tmp_path, rng):
    model, first, _ = start(rng, "adam")
    want, x = model.predict(first[0], verbose=0), program.arrays(tmp_path, x=first[0])
    model.save(tmp_path / "right.h5")
    shutil.copy(tmp_path / "right.h5", tmp_path / name)
    compare.close("output", name, program.predict(tmp_path, tmp_path / name, x), want, compare.OUTPUT)


@pytest.mark.parametrize("name", ("adam.h5", "momentum.h5", "old-adam.h5", "old-momentum.h5", "saved-model", "old-saved-model"))
def test_models_of_keras2(name, tmp_path):
    """Three steps in Keras 2 and three here equal six in Keras 2, and Keras 3 loads the result."""
    want = np.load(KERAS2 / (name.removesuffix(".h5").replace("saved-model", "adam") + ".npz"))
    got = program.predict(tmp_path, KERAS2 / name, KERAS2 / "x.npy")
    compare.close("output", name, got, want["predictions"], compare.OUTPUT)
    compare.close("evaluate loss", name, program.evaluate(KERAS2 / name, OLD_DATA, batch_size=32)["loss"], want["loss"], compare.LOSS)
    x, y = np.load(KERAS2 / "x.npy")[12:], np.load(KERAS2 / "y.npy")[12:]
    data = runs.data_of(tmp_path, x, y)
    trained = program.fit(tmp_path, KERAS2 / name, data, batch_size=BATCH, steps=HALF)
    loaded = keras_side.load(trained.saved)
    # The bias before BatchNormalization has a gradient of zero: what is there is rounding, also in the moving mean. Keras 2's fused
    # kernel takes n / (n - 1) times the variance into the moving variance, Keras 3 and Plimsoll take the variance itself.
    apart = {"base/conv2d/bias", "base/batch_normalization/moving_mean", "base/batch_normalization/moving_variance"}
    kept = [k for k, variable in enumerate(loaded.weights) if variable.path not in apart]
    assert len(kept) == len(loaded.weights) - len(apart)
    values = keras_side.values(loaded)
    runs.check_weights(name, [values[k] for k in kept], [want[f"w{k}"] for k in kept], [loaded.weights[k] for k in kept])
    assert int(loaded.optimizer.iterations.numpy()) == 2 * HALF
    predictions = loaded.predict(np.load(KERAS2 / "x.npy"), verbose=0)
    compare.close("output", name, program.predict(tmp_path, trained.saved, KERAS2 / "x.npy"), predictions, compare.OUTPUT)
    if name.endswith(".h5"):
        again = program.fit(tmp_path, KERAS2 / name, data, batch_size=BATCH, steps=HALF, name="again", ending=".h5")
        with h5py.File(KERAS2 / name) as a, h5py.File(again.saved) as b:
            check_same_layout(a, b)
        compare.close("output", name, program.predict(tmp_path, again.saved, KERAS2 / "x.npy"), predictions, compare.OUTPUT)


@pytest.mark.parametrize("name", ("functions.h5", "functions.keras"))
def test_functions_of_keras2(name, tmp_path):
    """Keras 2 keeps a function of TensorFlow as a TFOpLambda, which Keras 3 cannot load. Plimsoll writes operations of keras.ops."""
    want, data = np.load(KERAS2 / "functions.npz"), KERAS2 / "functions-x.npz"
    compare.close("output", name, program.predict(tmp_path, KERAS2 / name, data, batch_size=BATCH), want["predictions"], compare.OUTPUT)
    trained = program.fit(tmp_path, KERAS2 / name, data, batch_size=BATCH, epochs=1, steps=HALF)
    compare.close("run loss", name, trained.losses, want["losses"], compare.RUN_LOSS)
    loaded = keras_side.load(trained.saved)
    kept = [k for k, variable in enumerate(loaded.weights) if not variable.path.endswith("key/bias")]  # its gradient is zero but for rounding
    values = keras_side.values(loaded)
    runs.check_weights(name, [values[k] for k in kept], [want[f"w{k}"] for k in kept], [loaded.weights[k] for k in kept])
    assert int(loaded.optimizer.iterations.numpy()) == HALF and len(kept) == len(values) - 1
    with np.load(data) as arrays:
        predictions = loaded.predict({t.name: arrays[t.name] for t in loaded.inputs}, verbose=0)
    compare.close("output", name, program.predict(tmp_path, trained.saved, data, batch_size=BATCH), predictions, compare.OUTPUT)


def check_same_layout(a, b):
    """The same groups, datasets and texts, as Keras 2 reads them: in the order of the lists."""
    def texts(group, name):
        return [n if isinstance(n, str) else n.decode() for n in group.attrs[name]]

    for name in ("keras_version", "backend", "model_config", "training_config"):
        assert a.attrs[name] == b.attrs[name], name
    assert texts(a["model_weights"], "layer_names") == texts(b["model_weights"], "layer_names")
    for layer in texts(a["model_weights"], "layer_names"):
        assert texts(a["model_weights"][layer], "weight_names") == texts(b["model_weights"][layer], "weight_names")
    names = texts(a["optimizer_weights"], "weight_names")
    assert names == texts(b["optimizer_weights"], "weight_names")
    assert b["optimizer_weights"][names[0]][()] == 2 * HALF
    for name in names:
        assert a["optimizer_weights"][name].shape == b["optimizer_weights"][name].shape
        assert a["optimizer_weights"][name].dtype == b["optimizer_weights"][name].dtype


@pytest.mark.parametrize("weights", ("weights.h5", "sequential.weights.h5"))
def test_json_and_weights_of_keras2(weights, tmp_path):
    got = program.predict(tmp_path, KERAS2 / "sequential.json", KERAS2 / "x.npy", "--weights", KERAS2 / weights)
    compare.close("output", weights, got, np.load(KERAS2 / "sequential.npz")["predictions"], compare.OUTPUT)


def test_sequential_keras_file_of_keras2(tmp_path):
    """It names the modules of Keras 3; its version tells that Keras 2 wrote it."""
    got = program.predict(tmp_path, KERAS2 / "sequential.keras", KERAS2 / "x.npy")
    compare.close("output", "sequential.keras", got, np.load(KERAS2 / "sequential.npz")["predictions"], compare.OUTPUT)


def test_exported_model_is_refused_with_the_way_back(tmp_path):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.export(tmp_path / "exported", verbose=False)
    text = program.run("plan", tmp_path / "exported", expect=2).stderr
    assert "error P203" in text and "model.export" in text and "model.save('model.keras')" in text, text
