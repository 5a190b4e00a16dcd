"""Optimizers, clipping, weight decay and every schedule: losses, weights and state over twelve steps.

Targets are not centred, so that gradients are sums of equal signs, with a small relative rounding error.
The network has one kernel with large and one with small gradients, so that per-tensor and global clipping differ."""

import os
import pathlib
import subprocess

import keras
import numpy as np
import pytest

import compare
import program
import runs
import keras_side

L, O, S = keras.layers, keras.optimizers, keras.optimizers.schedules
N, BATCH, EPOCHS = 46, 16, 4  # three steps per epoch, the last with 14 samples; twelve in all

CASES = {
    "sgd": lambda: O.SGD(0.1),
    "sgd_momentum": lambda: O.SGD(0.05, momentum=0.9),
    "sgd_nesterov": lambda: O.SGD(0.05, momentum=0.9, nesterov=True),
    "sgd_weight_decay": lambda: O.SGD(0.1, weight_decay=0.05),
    "sgd_momentum_weight_decay": lambda: O.SGD(0.05, momentum=0.8, weight_decay=0.05),
    "sgd_clipvalue": lambda: O.SGD(0.1, clipvalue=0.02),
    "sgd_clipnorm": lambda: O.SGD(0.1, clipnorm=0.1),
    "sgd_global_clipnorm": lambda: O.SGD(0.1, global_clipnorm=0.1),
    "sgd_clip_never": lambda: O.SGD(0.1, global_clipnorm=1e6),
    "sgd_clip_and_decay": lambda: O.SGD(0.1, clipnorm=0.1, weight_decay=0.05),
    "adam": lambda: O.Adam(),
    "adam_betas": lambda: O.Adam(0.01, beta_1=0.7, beta_2=0.9, epsilon=1e-4),
    "adam_weight_decay": lambda: O.Adam(0.01, weight_decay=0.05),
    "adam_clipnorm": lambda: O.Adam(0.01, clipnorm=0.1),
    "adam_global_clipnorm": lambda: O.Adam(0.01, global_clipnorm=0.1),
    "adam_clipvalue": lambda: O.Adam(0.01, clipvalue=0.01),
    "adamw": lambda: O.AdamW(0.01),
    "adamw_decay": lambda: O.AdamW(0.01, weight_decay=0.1, global_clipnorm=0.2),
    "exponential_decay": lambda: O.SGD(S.ExponentialDecay(0.2, 4, 0.5)),
    "exponential_decay_staircase": lambda: O.SGD(S.ExponentialDecay(0.2, 4, 0.5, staircase=True)),
    "piecewise_constant": lambda: O.SGD(S.PiecewiseConstantDecay([2, 7], [0.2, 0.05, 0.1])),
    "polynomial_decay": lambda: O.SGD(S.PolynomialDecay(0.2, 8, 0.01, power=2.0)),
    "polynomial_decay_cycle": lambda: O.SGD(S.PolynomialDecay(0.2, 5, 0.01, cycle=True)),
    "inverse_time_decay": lambda: O.SGD(S.InverseTimeDecay(0.2, 3, 0.5)),
    "inverse_time_decay_staircase": lambda: O.SGD(S.InverseTimeDecay(0.2, 3, 0.5, staircase=True)),
    "cosine_decay": lambda: O.SGD(S.CosineDecay(0.2, 9, alpha=0.1)),
    "cosine_decay_warmup": lambda: O.Adam(S.CosineDecay(0.001, 8, warmup_target=0.02, warmup_steps=4)),
    "cosine_decay_restarts": lambda: O.SGD(
        S.CosineDecayRestarts(0.2, 4, t_mul=1.5, m_mul=0.8, alpha=0.05), momentum=0.5
    ),
    "loss_scale": lambda: O.LossScaleOptimizer(O.SGD(0.05, momentum=0.9), 1024.0, 3),  # doubles every third step
}


def targets(rng, n):
    return (1.5 + rng.standard_normal((n, 3))).astype(np.float32)


def network():
    i = keras.Input((6,))
    x = L.Rescaling(0.05)(L.Dense(8, activation="tanh", name="large")(i))
    return keras.Model(i, L.Dense(3, name="small")(x), name="network")


@pytest.mark.parametrize("name", CASES)
def test_optimizer(name, tmp_path, rng):
    model = keras_side.randomize(network())
    model.compile(CASES[name](), "mse")
    x, y = rng.standard_normal((N, 6)).astype(np.float32), targets(rng, N)
    runs.check_run(tmp_path, name, model, x, y, BATCH, epochs=EPOCHS, few=True)


OVERFLOWING = {
    "sgd": lambda: O.SGD(1e-3),
    "nesterov": lambda: O.SGD(1e-4, momentum=0.9, nesterov=True),
    "adam": lambda: O.Adam(0.01),
    "clipped": lambda: O.Adam(0.01, global_clipnorm=0.1),
    "schedule": lambda: O.Adam(S.ExponentialDecay(0.02, 4, 0.5)),
}


@pytest.mark.parametrize("flags", [(), ("--micro-batch", "5")], ids=["whole", "cut"])
@pytest.mark.parametrize("name", OVERFLOWING)
def test_scaled_loss_overflows(name, flags, tmp_path, rng):
    """Large errors times a scale near the largest float32: the scale halves until all gradients are finite.

    Until then nothing changes and no step counts. Later the scale doubles again and overflows once more."""
    model = keras_side.randomize(network())
    model.compile(O.LossScaleOptimizer(OVERFLOWING[name](), 2.0**122, 3), "mse")
    x, y = rng.standard_normal((N, 6)).astype(np.float32), 1000 * targets(rng, N)
    trained, loaded = runs.check_run(tmp_path, name, model, x, y, BATCH, flags, epochs=2 * EPOCHS, few=True)
    skipped = len(trained.losses) - int(loaded.optimizer.inner_optimizer.iterations)
    assert 1 < skipped < len(trained.losses) - 5, skipped


def test_scaled_loss_goes_on(tmp_path, rng):
    """Resuming from a checkpoint gives bitwise the uninterrupted result; continuing from the saved file does what Keras does."""
    model = keras_side.randomize(network())
    model.compile(O.LossScaleOptimizer(O.Adam(S.ExponentialDecay(0.02, 4, 0.5)), 2.0**122, 3), "mse")
    file = tmp_path / "model.keras"
    model.save(file)
    x, y = rng.standard_normal((N, 6)).astype(np.float32), 1000 * targets(rng, N)
    data = program.arrays(tmp_path, x=x, y=y)
    whole = program.fit(tmp_path, file, data, name="whole", batch_size=BATCH, epochs=4)
    flags = ["--checkpoint", tmp_path / "state", "--checkpoint-every", "1"]
    program.fit(tmp_path, file, data, *flags, name="part", batch_size=BATCH, epochs=1)
    resumed = program.fit(tmp_path, file, data, *flags, "--resume", name="resumed", batch_size=BATCH, epochs=4)
    loaded, again = keras_side.load(whole.saved), keras_side.load(resumed.saved)
    for a, b in zip(keras_side.values(loaded), keras_side.values(again), strict=True):
        assert np.array_equal(a, b)
    assert {k: v.tobytes() for k, v in keras_side.state(loaded).items()} == {
        k: v.tobytes() for k, v in keras_side.state(again).items()
    }
    runs.check_run(tmp_path, "goes on", loaded, x, y, BATCH, file=whole.saved, epochs=2, few=True)


def test_learning_rate_by_flag(tmp_path, rng):
    model = keras_side.randomize(network())
    model.compile(O.SGD(0.5), "mse")
    file = tmp_path / "model.keras"
    model.save(file)
    model.optimizer.learning_rate = 0.0625
    x, y = rng.standard_normal((N, 6)).astype(np.float32), targets(rng, N)
    runs.check_run(tmp_path, "flag", model, x, y, BATCH, ("--learning-rate", "0.0625"), file=file, few=True)


def test_learning_rate_of_a_scaled_optimizer_by_flag(tmp_path, rng):
    """The flag sets the rate of the inner optimizer: Keras accepts none for the wrapper and would not load a file that has one."""
    model = keras_side.randomize(network())
    model.compile(O.LossScaleOptimizer(O.SGD(0.5)), "mse")
    file = tmp_path / "model.keras"
    model.save(file)
    model.optimizer.learning_rate = 0.0625
    x, y = rng.standard_normal((N, 6)).astype(np.float32), targets(rng, N)
    _, loaded = runs.check_run(tmp_path, "flag", model, x, y, BATCH, ("--learning-rate", "0.0625"), file=file, few=True)
    assert float(loaded.optimizer.inner_optimizer.get_config()["learning_rate"]) == 0.0625


def test_a_scale_that_mixed_float16_added_loads(tmp_path, rng):
    """Keras loads the file with all its state under the default policy and under mixed_float16, and continues training.

    mixed_float16 trains only on GPUs, so the file comes from a test that adds the scale in float32."""
    maker = pathlib.Path(program.PROGRAM[0]).parent / "test_execute"
    if not maker.exists():
        pytest.skip("there is no test_execute beside the program")
    file = tmp_path / "scaled.keras"
    subprocess.run(
        [maker, "--gtest_filter=SavedForKeras.*"],
        env={**os.environ, "PLIMSOLL_SAVED_FOR_KERAS": str(file)},
        check=True,
        capture_output=True,
    )
    expected = np.load(program.ROOT / "tests" / "golden" / "mlp_expected.npz")
    for policy in ("float32", "mixed_float16"):
        keras.config.set_dtype_policy(policy)
        try:
            loaded = keras_side.load(file)
        finally:
            keras.config.set_dtype_policy("float32")
        optimizer = loaded.optimizer
        assert type(optimizer) is O.LossScaleOptimizer and type(optimizer.inner_optimizer) is O.AdamW
        assert int(optimizer.step_counter) == 5 and float(optimizer.dynamic_scale) == 2.0**15
        assert int(optimizer.inner_optimizer.iterations) == 5
        for i, variable in enumerate(optimizer.inner_optimizer.variables):
            compare.close("run state", variable.path, variable.numpy(), expected[f"state/{i}"], compare.STATE)
        x, y = rng.standard_normal((4, 6)).astype(np.float32), rng.standard_normal((4, 2)).astype(np.float32)
        loaded.train_on_batch(x, y)
        assert int(optimizer.inner_optimizer.iterations) == 6
