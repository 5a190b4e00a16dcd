"""`fit --noise-scale` against numpy: the gradients of a linear model are written down by hand."""

import keras
import numpy as np
import pytest

import program


def test_the_noise_scale_of_a_linear_model(tmp_path):
    rng = np.random.default_rng(5)
    x = rng.normal(size=(64, 5)).astype(np.float32)
    y = (x @ rng.normal(size=(5, 1)) + 2 + rng.normal(size=(64, 1))).astype(np.float32)
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1, name="dense")])
    model.compile(optimizer=keras.optimizers.SGD(1e-20), loss="mse")
    model.save(tmp_path / "linear.keras")
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    flags = ["--data", "x.npy,y.npy", "--batch-size", 16, "--shuffle", "false", "--epochs", 10, "--noise-scale"]
    ended = program.run("fit", "linear.keras", *flags, "--micro-batch", 4, "--json", cwd=tmp_path)
    kernel, bias = model.layers[0].get_weights()
    residual = x @ kernel + bias - y
    each = np.concatenate([2 * residual * x, 2 * residual], 1).astype(np.float64)  # per sample; the weights do not move
    noise = signal = 0
    for step in (0, 10, 20, 30):
        window = each[step % 4 * 16 :][:16]
        small, large = (window[:4].mean(0) ** 2).sum(), (window.mean(0) ** 2).sum()
        signal += (16 * large - 4 * small) / 12
        noise += (small - large) / (1 / 4 - 1 / 16)
    assert ended.json()["gradient_noise_steps"] == 4
    assert ended.json()["gradient_noise_scale"] == pytest.approx(noise / signal, rel=1e-4)
    said = program.run("fit", "linear.keras", *flags, "--micro-batch", 4, cwd=tmp_path).stderr
    assert f"gradient noise scale: about {noise / signal:.0f} samples, from 4 steps" in said
    whole = program.run("fit", "linear.keras", *flags, "--forbid", "micro-batch", cwd=tmp_path).stderr
    assert "gradient noise scale: unknown, because the batch ran in one piece" in whole
