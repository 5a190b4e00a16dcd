"""Every optimizer class with its options: losses, weights and state over twelve steps, and from a file with state."""

import keras
import numpy as np
import pytest

import compare
import keras_side
import program
import runs
from test_optimizers import BATCH, EPOCHS, N, network, targets

L, O, S, C = keras.layers, keras.optimizers, keras.optimizers.schedules, keras.constraints

CASES = {
    "adam_amsgrad": lambda: O.Adam(0.01, amsgrad=True, weight_decay=0.05),
    "adamw_amsgrad": lambda: O.AdamW(0.01, amsgrad=True),
    "nadam": lambda: O.Nadam(0.01),
    "nadam_betas": lambda: O.Nadam(0.01, beta_1=0.7, beta_2=0.9, epsilon=1e-4, weight_decay=0.05),
    "adamax": lambda: O.Adamax(0.01),
    "adamax_clipped": lambda: O.Adamax(0.01, beta_1=0.8, beta_2=0.9, global_clipnorm=0.1),
    "adagrad": lambda: O.Adagrad(0.05),
    "adagrad_options": lambda: O.Adagrad(0.05, initial_accumulator_value=0.5, epsilon=1e-3, weight_decay=0.05),
    "adadelta": lambda: O.Adadelta(1.0),
    "adadelta_options": lambda: O.Adadelta(0.5, rho=0.8, epsilon=1e-3),
    "rmsprop": lambda: O.RMSprop(0.01),
    "rmsprop_momentum": lambda: O.RMSprop(0.01, rho=0.8, momentum=0.6),
    "rmsprop_centered": lambda: O.RMSprop(0.01, centered=True, epsilon=1e-3),
    "rmsprop_all": lambda: O.RMSprop(0.01, momentum=0.5, centered=True, epsilon=1e-3, weight_decay=0.05),
    # A small first accumulator: the update is a difference of its roots, which would otherwise be mostly rounding.
    "ftrl": lambda: O.Ftrl(0.1, initial_accumulator_value=0.001),
    "ftrl_options": lambda: O.Ftrl(
        0.1,
        learning_rate_power=-0.7,
        initial_accumulator_value=0.3,
        l1_regularization_strength=0.01,
        l2_regularization_strength=0.02,
        l2_shrinkage_regularization_strength=0.03,
        beta=0.1,
    ),
    "lion": lambda: O.Lion(0.003),
    "lion_decay": lambda: O.Lion(0.003, beta_1=0.8, beta_2=0.95, weight_decay=0.1),
    "lamb": lambda: O.Lamb(0.01),
    "lamb_decay": lambda: O.Lamb(0.01, beta_1=0.8, beta_2=0.95, epsilon=1e-4, weight_decay=0.05),
    "adafactor": lambda: O.Adafactor(0.05),
    "adafactor_options": lambda: O.Adafactor(0.05, beta_2_decay=-0.6, epsilon_2=1e-2, clip_threshold=0.5, relative_step=False),
    "muon": lambda: O.Muon(0.01),
    "muon_options": lambda: O.Muon(
        0.01, momentum=0.8, nesterov=False, ns_steps=3, rms_rate=None, adam_lr_ratio=0.5, exclude_layers=["small"]
    ),
    "schedule_free": lambda: O.ScheduleFreeAdamW(0.01),
    "schedule_free_warmup": lambda: O.ScheduleFreeAdamW(0.01, beta_1=0.8, warmup_steps=5, weight_decay=0.05),
    "loss_scale_factor": lambda: O.Adam(0.01, loss_scale_factor=64.0, clipnorm=0.1),
    "accumulation": lambda: O.Adam(0.01, gradient_accumulation_steps=3),
    "accumulation_across_epochs": lambda: O.SGD(0.1, momentum=0.9, gradient_accumulation_steps=5, clipnorm=0.1),
    "accumulation_schedule": lambda: O.Nadam(S.ExponentialDecay(0.02, 4, 0.5), gradient_accumulation_steps=2),
    "accumulation_scaled": lambda: O.LossScaleOptimizer(O.Adamax(0.01, gradient_accumulation_steps=2), 1024.0, 3),
    "scaled_rmsprop": lambda: O.LossScaleOptimizer(O.RMSprop(0.01, momentum=0.5), 1024.0, 3),
}

AVERAGED = {
    "ema": lambda: O.SGD(0.1, momentum=0.5, use_ema=True, ema_momentum=0.8),
    "ema_overwrite": lambda: O.Adam(0.01, use_ema=True, ema_momentum=0.7, ema_overwrite_frequency=3),
    "ema_accumulation": lambda: O.Adam(
        0.01, use_ema=True, ema_momentum=0.7, ema_overwrite_frequency=2, gradient_accumulation_steps=2
    ),
    "ema_amsgrad": lambda: O.LossScaleOptimizer(O.Adam(0.01, amsgrad=True, use_ema=True, ema_momentum=0.7), 64.0, 4),
}


def data(rng, n=N):
    return rng.standard_normal((n, 6)).astype(np.float32), targets(rng, n)


def finalize(model):
    """What Keras's fit does at its end, which train_on_batch does not."""
    model.optimizer.finalize_variable_values(model.trainable_variables)


@pytest.mark.parametrize("name", CASES)
def test_optimizer(name, tmp_path, rng):
    """Twelve steps from a new optimizer; then five more from the file that Plimsoll wrote."""
    model = keras_side.randomize(network())
    model.compile(CASES[name](), "mse")
    x, y = data(rng)
    trained, loaded = runs.check_run(tmp_path, name, model, x, y, BATCH, epochs=EPOCHS, few=True)
    if "muon" not in name:  # each step multiplies the rounding of the step before
        runs.check_run(tmp_path, f"{name} goes on", loaded, x, y, BATCH, file=trained.saved, epochs=2, few=True)


@pytest.mark.parametrize("name", AVERAGED)
def test_moving_averages(name, tmp_path, rng):
    model = keras_side.randomize(network())
    model.compile(AVERAGED[name](), "mse")
    x, y = data(rng)
    runs.check_run(tmp_path, name, model, x, y, BATCH, epochs=EPOCHS, few=True, after=finalize)


@pytest.mark.parametrize("name", ["nadam", "adafactor", "schedule_free", "rmsprop_all", "accumulation", "ema_overwrite"])
def test_state_of_keras_is_continued(name, tmp_path, rng):
    """Five steps in Keras, then both sides go on from that file."""
    model = keras_side.randomize(network())
    model.compile({**CASES, **AVERAGED}[name](), "mse")
    x, y = data(rng)
    keras_side.train(model, x[: 5 * 8], y[: 5 * 8], 8, eager=True)
    runs.check_run(
        tmp_path, name, model, x, y, BATCH, epochs=2, few=True, after=finalize if name in AVERAGED else None
    )


@pytest.mark.parametrize("name", ["lamb", "adafactor", "accumulation", "rmsprop_all"])
def test_micro_batches(name, tmp_path, rng):
    model = keras_side.randomize(network())
    model.compile(CASES[name](), "mse")
    x, y = data(rng)
    runs.check_run(tmp_path, name, model, x, y, BATCH, ("--micro-batch", "5"), epochs=EPOCHS, few=True)


CONSTRAINTS = {
    "non_negative": (C.NonNeg(), C.NonNeg()),
    "max_norm": (C.MaxNorm(0.7, axis=0), C.MaxNorm(0.2)),
    "max_norm_axes": (C.MaxNorm(0.7, axis=[0, 1]), None),
    "unit_norm": (C.UnitNorm(axis=1), C.UnitNorm()),
    "min_max_norm": (C.MinMaxNorm(0.5, 0.9, rate=0.6, axis=-1), C.MinMaxNorm(0.1, 0.2)),
}


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_constraint(name, tmp_path, rng):
    kernel, bias = CONSTRAINTS[name]
    i = keras.Input((6,))
    h = L.Dense(8, activation="tanh", kernel_constraint=kernel, bias_constraint=bias)(i)
    model = keras_side.randomize(keras.Model(i, L.Dense(3, kernel_constraint=kernel)(h), name="network"))
    averages = {"use_ema": True, "ema_overwrite_frequency": 2} if name == "unit_norm" else {}
    model.compile(O.SGD(0.05, momentum=0.5, **averages), "mse")
    x, y = data(rng)
    after = finalize if averages else None
    runs.check_run(tmp_path, name, model, x, y, BATCH, epochs=EPOCHS, few=True, after=after)


def test_state_of_a_weight_without_a_gradient(tmp_path, rng):
    """Keras has state for every trainable weight, and loads none of it if one is missing."""
    i = keras.Input((6,))
    h = L.Dense(8, activation="tanh")(i)
    model = keras.Model(i, {"used": L.Dense(3, name="used")(h), "unused": L.Dense(2, name="unused")(h)}, name="network")
    keras_side.randomize(model)
    model.compile(O.Adam(0.01), {"used": "mse", "unused": None})
    x, y = data(rng)
    file = tmp_path / "model.keras"
    model.save(file)
    trained = program.fit(
        tmp_path, file, runs.data_of(tmp_path, {"x": x}, {"used": y}), batch_size=BATCH, epochs=1
    )
    loaded = keras_side.load(trained.saved)
    assert int(loaded.optimizer.iterations) == 3
    assert len(loaded.optimizer.variables) == 2 + 2 * 6
    moments = [v.numpy() for v in loaded.optimizer.variables[2:]]
    assert any(compare.largest(m) > 0 for m in moments)


def test_several_optimizers_are_refused(tmp_path, rng):
    model = keras_side.randomize(network())
    model.compile(O.MultiOptimizer(O.OptimizerMap(O.SGD(0.1), {"large/.*": O.Adam()})), "mse")
    file = tmp_path / "model.keras"
    model.save(file)
    ended = program.run("plan", file, expect=2)
    assert "P205" in ended.stderr and "MultiOptimizer" in ended.stderr and "--optimizer" in ended.stderr, ended.stderr
