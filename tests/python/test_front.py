"""Layers that prepare a model's inputs stay in Keras; the model behind them trains in the engine, with Keras's losses."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import plimsoll

WORDS = ["a red cat", "a blue dog", "the red dog", "the cat"] * 12
NUMBERS = np.random.default_rng(0).normal(size=(48, 3)).astype("float32")
LABELS = np.arange(48) % 3


def text_and_numbers():
    keras.utils.set_random_seed(1)
    vectorize = layers.TextVectorization(output_mode="int", output_sequence_length=5)
    vectorize.adapt(WORDS)
    text, numbers = keras.Input((), dtype="string", name="text"), keras.Input((3,), name="numbers")
    hidden = layers.GlobalAveragePooling1D()(layers.Embedding(12, 8)(vectorize(text)))
    joined = layers.Concatenate()([hidden, layers.Dense(4, activation="relu")(numbers)])
    return keras.Model({"text": text, "numbers": numbers}, layers.Dense(3)(joined))


def looked_up():
    keras.utils.set_random_seed(1)
    lookup = layers.StringLookup(vocabulary=sorted(set(WORDS)), output_mode="one_hot")
    return keras.Sequential([keras.Input((), dtype="string"), lookup, layers.Dense(4, activation="tanh"), layers.Dense(3)])


def hashed():
    keras.utils.set_random_seed(1)
    numbers = keras.Input((1,), dtype="int64", name="numbers")
    made = layers.Flatten()(layers.Embedding(8, 4)(layers.Hashing(num_bins=8)(numbers)))
    return keras.Model(numbers, layers.Dense(3)(made))


CASES = {text_and_numbers: {"text": WORDS, "numbers": NUMBERS}, looked_up: WORDS, hashed: np.arange(48)[:, None] * 7}


@pytest.mark.parametrize("make", CASES)
def test_losses_validation_and_predictions_are_keras_s(make):
    data = tf.data.Dataset.from_tensor_slices((CASES[make], LABELS)).batch(16)
    theirs, ours = make(), make()
    for model in (theirs, ours):
        model.compile(keras.optimizers.Adam(epsilon=1e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    expected = theirs.fit(data, epochs=2, verbose=0, validation_data=data).history
    found = plimsoll.fit(ours, data, epochs=2, verbose=0, validation_data=data, budget="4GiB").history
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-4, err_msg=name)
    np.testing.assert_allclose(plimsoll.predict(ours, data, verbose=0), theirs.predict(data, verbose=0), rtol=1e-3, atol=1e-4)
    for a, b in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)
