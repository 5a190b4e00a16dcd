"""CTC loss: value and gradients against Keras, training of a reader of images, and data that do not fit."""

import keras
import numpy as np
import pytest

import compare
import keras_side
import program
import runs
from one_step import check_step

L = keras.layers
N, T, CLASSES = 10, 12, 7


def reader(steps=T, classes=CLASSES, activation=None):
    return keras.Sequential(
        [keras.Input((steps, 5)), L.Dense(8, activation="tanh"), L.Dense(classes, activation=activation, name="out")]
    )


def labels(rng, most, n=N):
    """Words of 0 to `most` labels, padded with 0; every path of 2 * most + 1 steps can spell them."""
    y = rng.integers(1, CLASSES, (n, most)).astype(np.int32)
    for row, used in enumerate(rng.integers(0, most + 1, n)):
        y[row, used:] = 0
    y[0] = rng.integers(1, CLASSES, most)
    return y


CASES = {
    "words": lambda rng: labels(rng, 4),
    "one_label": lambda rng: labels(rng, 1),
    "no_label": lambda rng: np.zeros((N, 3), np.int32),
    "repeats": lambda rng: np.full((N, 5), 2, np.int32),
    "only_path": lambda rng: np.tile(np.array([1, 2, 3, 4, 5, 6] * 2, np.int32), (N, 1)),  # as many labels as steps
    "same_length": lambda rng: np.pad(labels(rng, 5), ((0, 0), (0, T - 5))),
    "int64": lambda rng: labels(rng, 3).astype(np.int64),
}


@pytest.mark.parametrize("name", CASES)
def test_one_step(name, tmp_path, rng):
    x = rng.standard_normal((N, T, 5)).astype(np.float32)
    check_step(tmp_path, reader(), x, CASES[name](rng), keras.losses.CTC())


def test_a_softmax_before_it_is_no_secret(tmp_path, rng):
    """Keras applies its softmax again."""
    x = rng.standard_normal((N, T, 5)).astype(np.float32)
    check_step(tmp_path, reader(activation="softmax"), x, labels(rng, 4), "ctc")


def ocr():
    """After the example of captchas: convolutions, a column per step, a bidirectional LSTM."""
    i = keras.Input((20, 8, 1))
    x = L.MaxPooling2D((1, 2))(L.Conv2D(4, 3, activation="relu", padding="same")(i))
    x = L.Dense(8, activation="tanh")(L.Reshape((20, 16))(x))
    x = L.Bidirectional(L.LSTM(6, return_sequences=True))(x)
    return keras.Model(i, L.Dense(CLASSES, name="out")(x))


@pytest.mark.parametrize("flags", [(), ("--micro-batch", "3")], ids=["whole", "by_3"])
def test_a_reader_of_images_is_trained_as_in_keras(flags, tmp_path, rng):
    model = keras_side.randomize(ocr())
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), keras.losses.CTC())
    x = rng.standard_normal((24, 20, 8, 1)).astype(np.float32)
    runs.check_run(tmp_path, "ocr", model, x, labels(rng, 5, 24), 8, flags, epochs=4)


def test_evaluation_and_sample_weights(tmp_path, rng):
    model = keras_side.randomize(reader())
    model.compile("sgd", keras.losses.CTC(), metrics=["accuracy"])
    model.save(tmp_path / "model.keras")
    x, y = rng.standard_normal((N, T, 5)).astype(np.float32), labels(rng, 4)
    weights = rng.random(N).astype(np.float32)
    for name, given in (("plain", None), ("weighted", weights)):
        data = program.arrays(tmp_path, prefix=name, x=x, y=y, w=given)
        got = program.evaluate(tmp_path / "model.keras", data, batch_size=4)
        want = np.mean(np.array(keras.losses.CTC(reduction=None)(y, model(x))) * (1 if given is None else given))
        compare.close("loss", name, got["loss"], want, compare.LOSS)
        assert got["skipped_metrics"] == ["accuracy"], got


def fit_refused(tmp_path, model, x, y, code):
    model.compile("sgd", keras.losses.CTC())
    model.save(tmp_path / "model.keras")
    data = program.arrays(tmp_path, x=x, y=y)
    return program.run(
        "fit", tmp_path / "model.keras", "--data", data, "--save", tmp_path / "o.keras", expect=code
    ).stderr


def test_labels_that_do_not_fit(tmp_path, rng):
    x = rng.standard_normal((N, T, 5)).astype(np.float32)
    text = fit_refused(tmp_path, reader(), x, np.ones((N, T + 1), np.int32), 4)
    assert "P402" in text and "(13,)" in text and "(12,)" in text, text
    y = labels(rng, 4)
    y[3, 1] = CLASSES
    text = fit_refused(tmp_path, reader(), x, y, 4)
    assert "P404" in text and "sample 3" in text, text


def test_outputs_that_have_no_steps(tmp_path, rng):
    model = keras.Sequential([keras.Input((5,)), L.Dense(4, name="out")])
    text = fit_refused(tmp_path, model, np.zeros((N, 5), np.float32), np.ones((N, 2), np.int32), 2)
    assert "[steps, classes]" in text, text


def test_a_mask_is_refused(tmp_path, rng):
    model = keras.Sequential([keras.Input((T, 5)), L.Masking(), L.Dense(CLASSES, name="out")])
    text = fit_refused(tmp_path, model, np.zeros((N, T, 5), np.float32), np.ones((N, 2), np.int32), 2)
    assert "its loss ctc with a mask" in text, text
