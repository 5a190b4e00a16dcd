"""Fourier transforms of keras.ops, used as layers. Keras keeps a complex number as two tensors."""

import keras
import numpy as np
import pytest

import program
from one_step import check_step
from operation_group import check_group

L, ops = keras.layers, keras.ops
LINE, SIGNAL = (6, 4), (3, 50)

TRANSFORMS = {
    "fft": lambda t: ops.fft((t.a, t.b)),
    "fft_rows": lambda t: ops.fft((ops.swapaxes(t.a, 1, 2), ops.zeros_like(ops.swapaxes(t.a, 1, 2))))[0],
    "fft_odd": lambda t: ops.fft((t.a[:, :, :3], t.b[:, :, :3])),
    "fft2": lambda t: ops.fft2((t.a, t.b)),
    "fft2_real": lambda t: ops.fft2((t.a, ops.zeros_like(t.a)))[0],
    "ifft2": lambda t: ops.ifft2((t.a, t.b)),
    "back": lambda t: ops.ifft2(ops.fft2((t.a, t.b))),
    "rfft": lambda t: ops.rfft(t.a),
    # Where the length is another one, TensorFlow has no gradient.
    "rfft_short": lambda t: ops.rfft(ops.stop_gradient(t.a), fft_length=3),
    "rfft_long": lambda t: ops.rfft(ops.stop_gradient(ops.swapaxes(t.a, 1, 2)), fft_length=9),
    "irfft": lambda t: ops.irfft((t.a, t.b)),
    "irfft_odd": lambda t: ops.irfft((t.a, t.b), fft_length=7),
    "irfft_short": lambda t: ops.irfft((ops.stop_gradient(t.a), ops.stop_gradient(t.b)), fft_length=5),
    "irfft_long": lambda t: ops.irfft((ops.stop_gradient(t.a), ops.stop_gradient(t.b)), fft_length=10),
    "irfft_of_rfft": lambda t: ops.irfft(ops.rfft(t.a), fft_length=4),
}
FRAMES = {
    "stft": lambda t: ops.stft(t.a, 10, 4, 16),
    "stft_hamming": lambda t: ops.stft(t.a, 16, 8, 16, window="hamming"),
    "stft_odd": lambda t: ops.stft(t.a, 9, 5, 12, center=False),
    "stft_without": lambda t: ops.stft(t.a, 8, 3, 8, window=None, center=False),
    "stft_one": lambda t: ops.stft(t.a[:, 0], 12, 6, 13),
    "power": lambda t: ops.log(ops.add(*(ops.square(one) for one in ops.stft(t.a, 10, 4, 16))) + 0.5),
    "istft": lambda t: ops.istft(ops.stft(t.a, 16, 4, 16), 16, 4, 16),
    "istft_length": lambda t: ops.istft(ops.stft(t.a, 10, 4, 16), 10, 4, 16, length=41, window="hamming"),
    "istft_without": lambda t: ops.istft(ops.stft(t.a, 8, 3, 8, center=False), 8, 3, 8, window=None, center=False),
}


def test_transforms(tmp_path, rng):
    check_group(tmp_path, rng, TRANSFORMS, LINE)


def test_frames_of_signals(tmp_path, rng):
    check_group(tmp_path, rng, FRAMES, SIGNAL)


def test_encoder_that_mixes_tokens_by_a_transform(tmp_path, rng):
    """FNet: the attention of an encoder is replaced by the real part of a Fourier transform. 300 tokens, in micro-batches."""
    i = keras.Input((300, 8))
    x = L.Dense(8)(i)
    x = L.LayerNormalization()(x + ops.fft2((x, ops.zeros_like(x)))[0] * 0.1)
    x = L.LayerNormalization()(x + L.Dense(8)(L.Dense(16, activation="relu")(x)))
    model = keras.Model(i, L.Dense(3)(L.GlobalAveragePooling1D()(x)))
    x = rng.standard_normal((6, 300, 8)).astype(np.float32)
    check_step(tmp_path, model, x, rng.standard_normal((6, 3)).astype(np.float32), "mse", flags=("--micro-batch", "2"))


REFUSED = {
    "batch": (lambda x: ops.rfft(x[:, 0, 0])[0], "a transform over the batch"),
    "long": (lambda x: ops.rfft(ops.tile(x, (1, 1, 1100)))[0], "4400 elements (the most are 4096)"),
    "gaps": (lambda x: ops.istft(ops.rfft(x), 4, 4, 4), "windows that are 0 where they overlap"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name, tmp_path):
    make, words = REFUSED[name]
    i = keras.Input((6, 4))
    model = keras.Model(i, L.Dense(2)(L.Reshape((-1, 1))(make(i))))
    model.compile("sgd", "mse")
    model.save(tmp_path / "model.keras")
    told = program.run("plan", tmp_path / "model.keras", "--batch-size", 2, expect=2).stderr
    assert words in told, told
