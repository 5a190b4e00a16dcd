"""Models saved under Keras's mixed policies: the precision they run in, and that Keras can continue with the saved file."""

import json
import re
import zipfile

import keras
import numpy as np
import pytest

import keras_side
import models
import program
import runs

HALF, BATCH, SHAPE, CLASSES = 3, 8, (10, 10, 3), 4
CARD, OLD_CARD = "h200-141g", "t4-16g"
POLICIES = ("mixed_bfloat16", "mixed_float16")


@pytest.fixture(autouse=True)
def global_policy():
    yield
    keras.mixed_precision.set_global_policy("float32")


def network(policy, last="float32"):
    """As in Keras's guide: all layers have the policy, except the last one, which is float32."""
    keras.mixed_precision.set_global_policy(policy)
    L = keras.layers
    layers = [
        L.Conv2D(6, 3, activation="relu", name="conv"),
        L.BatchNormalization(name="norm"),
        L.MaxPooling2D(name="pool"),
        L.Flatten(name="flat"),
        L.Dense(8, activation=L.LeakyReLU(0.1, name="inner"), name="hidden"),
        L.Dense(CLASSES, name="logits"),
        L.Activation("softmax", dtype=last, name="out"),
    ]
    model = keras.Sequential([keras.Input(SHAPE), *layers], name="policies")
    model.compile(keras.optimizers.Adam(0.005), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return keras_side.randomize(model)


def saved(folder, policy, **named):
    path = folder / f"{policy}.keras"
    network(policy, **named).save(path)
    return path


@pytest.mark.parametrize("policy", POLICIES)
def test_the_layers_say_what_the_run_computes_in(policy, tmp_path):
    """The plan equals, in bytes and predicted seconds, that of the float32 model with the equivalent flags."""
    own = program.plan(saved(tmp_path, policy), device=CARD, batch_size=64)
    said = program.plan(
        saved(tmp_path, "float32"), device=CARD, batch_size=64, precision=policy, float32_layers="out"
    )
    assert own["precision"] == policy
    for key in ("arena_bytes", "peak_bytes", "step_seconds", "levers"):
        assert own[key] == said[key], key


def test_a_flag_says_otherwise(tmp_path):
    path = saved(tmp_path, "mixed_bfloat16")
    whole = program.plan(path, device=CARD, batch_size=64, precision="float32")
    assert whole["precision"] == "float32"
    assert whole["arena_bytes"] > program.plan(path, device=CARD, batch_size=64)["arena_bytes"]
    assert program.plan(path, device=CARD, batch_size=64, precision="mixed_float16")["precision"] == "mixed_float16"


def test_auto_is_what_the_device_has(tmp_path):
    path = saved(tmp_path, "float32")
    for device, precision in ((CARD, "mixed_bfloat16"), (OLD_CARD, "mixed_float16"), ("cpu", "float32")):
        assert program.plan(path, device=device, precision="auto")["precision"] == precision


@pytest.mark.parametrize("policy, bound", (("mixed_bfloat16", 8e-3), ("mixed_float16", 1e-3)))
def test_the_cpu_trains_as_keras_does_under_the_policy(policy, bound, tmp_path, rng):
    """The bound is two to three units in the last place of the half precision. `fit` itself checks the measured arena."""
    x, y = models.labelled(rng, 2 * HALF * BATCH, SHAPE, CLASSES)
    model = network(policy)
    # Adam would turn the rounding error of a gradient near zero into a whole step.
    model.compile(keras.optimizers.SGD(0.005), "sparse_categorical_crossentropy")
    model.save(tmp_path / "half.keras")
    trained = program.fit(
        tmp_path, tmp_path / "half.keras", runs.data_of(tmp_path, x, y), batch_size=BATCH, epochs=1,
        steps=2 * HALF, device="cpu",
    )
    wanted = keras_side.train(model, x, y, BATCH)
    np.testing.assert_allclose(trained.losses, wanted, rtol=bound)
    assert np.any(trained.losses != np.asarray(wanted))
    loaded = keras_side.load(trained.saved)
    if policy == "mixed_float16":
        for name in ("dynamic_scale", "step_counter"):
            assert float(getattr(loaded.optimizer, name)) == float(getattr(model.optimizer, name))
    for got, want in zip(keras_side.values(loaded), keras_side.values(model), strict=True):
        np.testing.assert_allclose(got, want, atol=bound * np.abs(want).max())


def test_a_card_without_bfloat16_says_what_to_do(tmp_path):
    ended = program.run("plan", saved(tmp_path, "mixed_bfloat16"), "--device", OLD_CARD, expect=2)
    assert "Tesla T4 has no bfloat16" in ended.stderr and "--precision mixed_float16" in ended.stderr


def test_two_mixed_policies_are_listed(tmp_path):
    ended = program.run("plan", saved(tmp_path, "mixed_bfloat16", last="mixed_float16"), "--device", CARD, expect=2)
    assert "P205" in ended.stderr and "'out' (Activation): dtype=mixed_float16, while other layers have mixed" in ended.stderr


def test_half_precision_through_and_through_is_listed(tmp_path):
    ended = program.run("plan", saved(tmp_path, "mixed_bfloat16", last="float16"), "--device", CARD, expect=2)
    assert "P205" in ended.stderr and "dtype=float16" in ended.stderr


def test_half_precision_is_a_remedy_where_nothing_fits(tmp_path):
    for device, precision in ((CARD, "mixed_bfloat16"), (OLD_CARD, "mixed_float16")):
        ended = program.run(
            "plan", "seed-2", "--device", device, "--batch-size", 4096, "--budget", "700MiB", "--forbid",
            "micro-batch,recompute,offload", expect=3,
        )
        assert re.search(rf"changed +half precision\n +--precision {precision}\n", ended.stdout), ended.stdout
    half = program.run("plan", "seed-2", "--device", CARD, "--budget", "1MiB", "--precision", "auto", expect=3)
    assert "half precision" not in half.stdout + half.stderr


@pytest.mark.parametrize("policy", POLICIES)
def test_keras_goes_on_with_what_was_trained_in_float32(policy, tmp_path, rng):
    """Three steps in Keras under the policy, then three here in float32: bitwise the same as from the same weights under float32."""
    x, y = models.labelled(rng, 2 * HALF * BATCH, SHAPE, CLASSES)
    half = HALF * BATCH
    model = network(policy)
    keras_side.train(model, x[:half], y[:half], BATCH)
    model.save(tmp_path / "half.keras")
    data = runs.data_of(tmp_path, x[half:], y[half:])
    named = {"batch_size": BATCH, "epochs": 1, "steps": HALF, "device": "cpu", "precision": "float32"}
    trained = program.fit(tmp_path, tmp_path / "half.keras", data, **named)

    loaded = keras_side.load(trained.saved)
    assert isinstance(loaded.optimizer, keras.optimizers.LossScaleOptimizer) == (policy == "mixed_float16")
    inner = getattr(loaded.optimizer, "inner_optimizer", loaded.optimizer)
    before = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    done = int(before.iterations.numpy())  # steps that overflow with the initial scale do not count
    assert int(inner.iterations.numpy()) == done + HALF
    assert any(np.any(v.numpy() != 0) for v in inner.variables[2:])
    got = keras_side.values(loaded)
    losses = keras_side.train(loaded, x[:half], y[:half], BATCH)
    assert np.all(np.isfinite(losses)) and int(inner.iterations.numpy()) > done + HALF

    twin = network("float32")
    keras_side.train(twin, x[:BATCH], y[:BATCH], BATCH)  # builds its optimizer
    for to, value in zip(twin.weights, keras_side.values(model)):
        to.assign(value)
    for to, value in zip(twin.optimizer.variables, before.variables):
        to.assign(value.numpy())
    twin.save(tmp_path / "twin.keras")
    as_float32 = program.fit(tmp_path, tmp_path / "twin.keras", data, name="twin_out", **named)
    assert trained.losses.tolist() == as_float32.losses.tolist()
    for a, b in zip(got, keras_side.values(keras_side.load(as_float32.saved)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_layers_made_mixed_by_hand(tmp_path, rng):
    """Keras scales the loss depending on the policy at compile time, not on the layers' policies: the optimizer has no loss scale."""
    x, y = models.labelled(rng, HALF * BATCH, SHAPE, CLASSES)
    L = keras.layers
    layers = [L.Flatten(), L.Dense(8, activation="relu", dtype="mixed_float16"), L.Dense(CLASSES, activation="softmax")]
    model = keras_side.randomize(keras.Sequential([keras.Input(SHAPE), *layers]))
    model.compile(keras.optimizers.Adam(0.005), "sparse_categorical_crossentropy")
    keras_side.train(model, x, y, BATCH)
    model.save(tmp_path / "by_hand.keras")
    assert program.plan(tmp_path / "by_hand.keras", device=CARD)["precision"] == "mixed_float16"
    named = {"batch_size": BATCH, "epochs": 1, "steps": HALF, "device": "cpu", "precision": "float32"}
    for flags in ((), ("--learning-rate", "0.001")):
        trained = program.fit(tmp_path, tmp_path / "by_hand.keras", runs.data_of(tmp_path, x, y), *flags, **named)
        loaded = keras_side.load(trained.saved)
        assert int(loaded.optimizer.iterations.numpy()) == 2 * HALF
        assert any(np.any(v.numpy() != 0) for v in loaded.optimizer.variables[2:])


def test_the_scale_of_a_file_is_not_lost(tmp_path, rng):
    """A run in float32 does not use the scale. The saved file keeps it; if a flag changes the config, that has the scale, too."""
    x, y = models.labelled(rng, HALF * BATCH, SHAPE, CLASSES)
    model = network("mixed_float16")
    keras_side.train(model, x, y, BATCH)
    model.optimizer.dynamic_scale.assign(512.0)
    model.optimizer.step_counter.assign(77)
    model.save(tmp_path / "scaled.keras")
    named = {"batch_size": BATCH, "epochs": 1, "steps": HALF, "device": "cpu", "precision": "float32"}
    data = runs.data_of(tmp_path, x, y)
    for flags, policy in (((), "mixed_float16"), (("--learning-rate", "0.001"), "float32")):
        trained = program.fit(tmp_path, tmp_path / "scaled.keras", data, *flags, **named)
        keras.mixed_precision.set_global_policy(policy)
        loaded = keras_side.load(trained.saved).optimizer
        assert float(loaded.dynamic_scale.numpy()) == 512.0 and int(loaded.step_counter.numpy()) == 77
        assert int(loaded.inner_optimizer.iterations.numpy()) >= HALF


@pytest.mark.parametrize("policy", POLICIES)
def test_config_is_written_back_as_it_was_read(policy, tmp_path, rng):
    x, y = models.labelled(rng, BATCH, SHAPE, CLASSES)
    path = saved(tmp_path, policy)
    trained = program.fit(
        tmp_path, path, runs.data_of(tmp_path, x, y), batch_size=BATCH, epochs=1, device="cpu", precision="float32"
    )
    with zipfile.ZipFile(path) as a, zipfile.ZipFile(trained.saved) as b:
        assert json.loads(a.read("config.json")) == json.loads(b.read("config.json"))
