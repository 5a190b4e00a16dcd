"""Optimizers, clipping, weight decay and every schedule: losses, weights and state over twelve steps.

Targets are not centred, so that gradients are sums of like signs and their rounding is relative to themselves.
The network has one kernel with large and one with small gradients, so that per-tensor and global clipping differ."""

import keras
import numpy as np
import pytest

import program
import runs
import keras_side

L, O, S = keras.layers, keras.optimizers, keras.optimizers.schedules
N, BATCH, EPOCHS = 46, 16, 4  # three steps an epoch, the last of 14 samples: twelve in all

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


def test_learning_rate_by_flag(tmp_path, rng):
    model = keras_side.randomize(network())
    model.compile(O.SGD(0.5), "mse")
    file = tmp_path / "model.keras"
    model.save(file)
    model.optimizer.learning_rate = 0.0625
    x, y = rng.standard_normal((N, 6)).astype(np.float32), targets(rng, N)
    runs.check_run(tmp_path, "flag", model, x, y, BATCH, ("--learning-rate", "0.0625"), file=file, few=True)


def test_accumulation_of_the_optimizer_is_refused(tmp_path, rng):
    """gradient_accumulation_steps in the file counts batches and carries sums over epochs: listed, never ignored."""
    model = keras_side.randomize(network())
    model.compile(O.Adam(0.01, gradient_accumulation_steps=2), "mse")
    file = tmp_path / "model.keras"
    model.save(file)
    ended = program.run("plan", file, expect=2)
    assert "P205" in ended.stderr and "gradient_accumulation_steps" in ended.stderr, ended.stderr
