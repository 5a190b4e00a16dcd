"""What decides which channels leave, against gradients of TensorFlow; the search for a target; what cannot be done."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import program
import shrink_models

L = keras.layers


def save(model, folder, x=None, y=None):
    model.save(folder / "model.keras")
    return folder / "model.keras", program.arrays(folder, x=x, y=y) if x is not None else None


def kept_columns(before, after):
    """Which columns of a kernel are left."""
    return [int(np.flatnonzero((before == column[:, None]).all(0))[0]) for column in after.T]


def mlp(rng):
    inputs = keras.Input((20,))
    x = L.Dense(24, activation="tanh")(inputs)
    model = keras.Model(inputs, L.Dense(3, activation="softmax")(L.Dense(12, activation="relu")(x)))
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"], jit_compile=False)
    return model, rng.normal(0, 1, (64, 20)).astype("float32"), rng.integers(0, 3, 64).astype("int32")


def test_importance_is_the_first_order_effect_on_the_loss(tmp_path, rng):
    model, x, y = mlp(rng)
    path, data = save(model, tmp_path, x, y)
    program.run("shrink", "prune", path, "--ratio", 0.5, "--multiple", 1, "--importance", "loss", "--importance-batches",
                2, "--batch-size", 32, "--data", data, "-o", tmp_path / "small.keras")
    effects = [0] * 4
    for first in (0, 32):
        with tf.GradientTape() as tape:
            loss = model.compute_loss(y=y[first : first + 32], y_pred=model(x[first : first + 32], training=True))
        weights = model.trainable_variables[:4]
        effects = [e + w.numpy() * g.numpy() for e, w, g in zip(effects, weights, tape.gradient(loss, weights))]
    kernel, bias, reader, _ = effects
    score = np.abs(kernel.sum(0)) + np.abs(bias) + np.abs(reader.sum(1))
    small = keras.models.load_model(tmp_path / "small.keras")
    kept = kept_columns(model.layers[1].kernel.numpy(), small.layers[1].kernel.numpy())
    assert sorted(kept) == sorted(np.argsort(score)[12:]) and kept == sorted(kept)


def test_importance_is_the_scale_of_batch_norm(tmp_path, rng):
    inputs = keras.Input((8, 8, 3))
    norm = L.BatchNormalization()
    x = L.Activation("relu")(norm(L.Conv2D(16, 3)(inputs)))
    model = keras.Model(inputs, L.Dense(3)(L.GlobalAveragePooling2D()(x)))
    norm.gamma.assign(rng.permutation(16) + 1.0)
    path, _ = save(model, tmp_path)
    program.run("shrink", "prune", path, "--ratio", 0.25, "--multiple", 1, "--importance", "batchnorm", "-o",
                tmp_path / "small.keras")
    small = keras.models.load_model(tmp_path / "small.keras")
    assert sorted(small.layers[2].gamma.numpy()) == list(range(5, 17))


def test_search_reaches_its_target(tmp_path, rng):
    model = shrink_models.build("resnet", rng)
    x, y = shrink_models.batch(model, rng, 32)
    path, data = save(model, tmp_path, x, y)
    small = tmp_path / "small.keras"
    found = program.run("shrink", path, "--target", "110KiB", "--data", data, "--epochs", 1, "--batch-size", 16, "--json",
                        "-o", small).json()
    assert found["after"]["file_bytes_without_optimizer"] <= 110 * 1024 < found["before"]["file_bytes_without_optimizer"]
    losses = {one["way"]: one["metrics"]["loss"] for one in found["tried"] if one["reaches"]}
    assert len(losses) == 2 and losses[found["chosen"]] == min(losses.values())
    loaded = keras.models.load_model(small)
    assert loaded.evaluate(x, y, verbose=0) == pytest.approx(found["after"]["metrics"]["loss"], rel=1e-4)
    assert sorted(p.name for p in tmp_path.glob("*.keras")) == ["model.keras", "small.keras"]


def test_time_target_may_change_the_input(tmp_path, rng):
    path, _ = save(shrink_models.build("unet", rng), tmp_path)
    found = program.run("shrink", path, "--target-time", "0.7x", "--json", "-o", tmp_path / "small.keras").json()
    assert found["after"]["training"]["seconds"] <= 0.7 * found["before"]["training"]["seconds"]
    assert {one["way"].split(":")[0] for one in found["tried"]} == {"prune by magnitude", "input of 3/4", "input of 1/2"}


def test_target_that_cannot_be_met_says_the_least(tmp_path, rng):
    path, _ = save(shrink_models.build("resnet", rng), tmp_path)
    ended = program.run("shrink", path, "--target", "4KiB", "-o", tmp_path / "small.keras", expect=3)
    assert "--target 4KiB cannot be reached" in ended.stderr and "at least" in ended.stderr
    ended = program.run("shrink", "prune", path, "--target", "4KiB", "-o", tmp_path / "small.keras", expect=3)
    assert "the least that can" in ended.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["model.keras"]


def test_drop_above_the_limit_writes_nothing(tmp_path, rng):
    model, x, y = mlp(rng)
    model.fit(x, y, epochs=60, verbose=0)
    path, data = save(model, tmp_path, x, y)
    ended = program.run("shrink", path, "--target", "18500B", "--data", data, "--max-drop", 0, "-o",
                        tmp_path / "small.keras", expect=3)
    assert "points of accuracy" in ended.stderr and not (tmp_path / "small.keras").exists()


def test_what_cannot_be_cut_says_why(tmp_path):
    inputs = keras.Input((4, 6))
    x = L.Permute((2, 1))(L.Dense(8, name="mixed")(inputs))
    x = L.UnitNormalization()(L.Dense(5, name="normed")(x))
    keras.Model(inputs, L.Dense(2, activation="softmax", name="out")(L.Flatten()(x))).save(tmp_path / "model.keras")
    ended = program.run("shrink", "prune", tmp_path / "model.keras", "--ratio", 0.5, "-o", tmp_path / "s.keras", expect=2)
    for line in ("mixed: permute (Permute) moves the channels to another axis", "normed: unit_normalization", "out: "):
        assert line in ended.stderr, ended.stderr
    for flags, words in ((("prune",), "nothing says how much"), (("prune", "--ratio", 0.5, "--free"), "exclude each other"),
                         (("prune", "--ratio", 0.5, "--importance", "loss"), "needs --data"),
                         (("resize",), "nothing says what"), (("resize", "--drop-layer", "none"), "--drop-layer none"),
                         (("resize", "--kernel", 3), "--kernel 3: no convolution"), ((), "nothing says how small")):
        way, *rest = flags or (None,)
        ended = program.run("shrink", *([way] if way else []), tmp_path / "model.keras", *rest, "-o", tmp_path / "s.keras",
                            expect=2)
        assert words in ended.stderr, (flags, ended.stderr)


def test_resized_kernels_layers_and_inputs(tmp_path, rng):
    """A kernel keeps its middle, an unchanged layer its weights, and a picture's Dense the rows of the nearest pixels."""
    inputs = keras.Input((8, 8, 3))
    x = L.Conv2D(6, 5, padding="same", name="large")(inputs)
    x = L.Conv2D(6, 1, name="left_out")(x)
    model = keras.Model(inputs, L.Dense(4, name="rows")(L.Flatten()(x)))
    path, _ = save(model, tmp_path)
    small = tmp_path / "small.keras"
    program.run("shrink", "resize", path, "--kernel", 3, "--drop-layer", "left_out", "--input-size", 4, "-o", small)
    loaded = keras.models.load_model(small)
    assert loaded.input_shape == (None, 4, 4, 3) and [l.name for l in loaded.layers[1:]] == ["large", "flatten", "rows"]
    np.testing.assert_array_equal(loaded.get_layer("large").kernel, model.get_layer("large").kernel.numpy()[1:4, 1:4])
    rows = model.get_layer("rows").kernel.numpy().reshape(8, 8, 6, 4)[1::2, 1::2].reshape(-1, 4)
    np.testing.assert_allclose(loaded.get_layer("rows").kernel, 4 * rows)
    data = program.arrays(tmp_path, x=rng.normal(0, 1, (3, 4, 4, 3)).astype("float32"))
    np.testing.assert_allclose(program.predict(tmp_path, small, data), loaded.predict(np.load(data), verbose=0), atol=1e-5)


def test_gradual_rounds_end_at_the_same_widths(tmp_path, rng):
    model, x, y = mlp(rng)
    path, data = save(model, tmp_path, x, y)
    found = program.run("shrink", "prune", path, "--ratio", 0.5, "--multiple", 1, "--rounds", 2, "--epochs", 2, "--data",
                        data, "--json", "-o", tmp_path / "small.keras").json()
    assert [(g["before"], g["after"]) for g in found["groups"] if "stays_because" not in g] == [(24, 12), (12, 6)]
    assert keras.models.load_model(tmp_path / "small.keras").count_params() == found["after"]["parameters"]
