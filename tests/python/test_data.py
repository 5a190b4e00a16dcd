"""Every source of data that Keras's fit takes."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from models import assert_same_history, assert_same_state, cnn, images, two_ends, two_ends_data

import plimsoll

X, Y = images(90)


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return X[i * 24 : (i + 1) * 24], Y[i * 24 : (i + 1) * 24]


def endless():
    while True:
        for i in range(3):
            yield X[i * 30 : (i + 1) * 30], Y[i * 30 : (i + 1) * 30]


def weighted():
    for i in range(3):
        yield X[i * 30 : (i + 1) * 30], Y[i * 30 : (i + 1) * 30], np.linspace(0.5, 2, 30)


def dataset():
    return tf.data.Dataset.from_tensor_slices((X, Y)).map(lambda a, b: (a * 2, b))


SOURCES = {
    "tensors": lambda: {"x": tf.constant(X), "y": tf.constant(Y), "batch_size": 32},
    "tf.data": lambda: {"x": dataset().batch(32)},
    "tf.data, whole batches": lambda: {"x": dataset().batch(32, drop_remainder=True)},
    "tf.data, repeated": lambda: {"x": dataset().batch(32).repeat(), "steps_per_epoch": 4},
    "PyDataset": lambda: {"x": Batches()},
    "PyDataset with workers": lambda: {"x": Batches(workers=2)},
    "endless generator": lambda: {"x": endless(), "steps_per_epoch": 2},
    "generator with weights": lambda: {"x": weighted(), "epochs": 1, "steps_per_epoch": 3},
    "one list": lambda: {"x": [X], "y": [Y], "batch_size": 32},
    "validation from tf.data": lambda: {"x": X, "y": Y, "batch_size": 32, "validation_data": dataset().batch(20)},
}


@pytest.mark.parametrize("name", SOURCES)
def test_sources(name):
    named = {"epochs": 2, "verbose": 0, "shuffle": False}
    theirs, ours = cnn(), cnn()
    expected = theirs.fit(**{**named, **SOURCES[name]()})
    found = plimsoll.fit(ours, **{**named, **SOURCES[name]()})
    assert_same_history(found, expected)
    assert_same_state(ours, theirs)


def test_a_dataset_of_dictionaries():
    x, y = two_ends_data(60)
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(16)
    theirs, ours = two_ends(), two_ends()
    expected = theirs.fit(data, epochs=2, verbose=0)
    assert_same_history(plimsoll.fit(ours, data, epochs=2, verbose=0), expected)
    np.testing.assert_allclose(plimsoll.evaluate(ours, data, verbose=0), theirs.evaluate(data, verbose=0), rtol=2e-4)


def test_a_table_of_pandas():
    pandas = pytest.importorskip("pandas")
    from models import dense

    rng = np.random.default_rng(0)
    x, y = pandas.DataFrame(rng.random((50, 4))), pandas.Series(rng.random(50))
    theirs, ours = dense(), dense()
    expected = theirs.fit(x, y, batch_size=16, epochs=2, verbose=0, shuffle=False)
    assert_same_history(plimsoll.fit(ours, x, y, batch_size=16, epochs=2, verbose=0, shuffle=False), expected)


def test_a_source_that_ends_early_warns_as_keras_does():
    with pytest.warns(UserWarning, match="ran out of data"):
        found = plimsoll.fit(cnn(), weighted(), steps_per_epoch=5, epochs=1, verbose=0)
    assert len(found.history["loss"]) == 1


def test_batches_above_the_first_are_refused_with_the_remedy():
    def growing():
        yield X[:8], Y[:8]
        yield X[:8], Y[:8]
        yield X[:16], Y[:16]

    with pytest.raises(plimsoll.DataError, match="16"):
        plimsoll.fit(cnn(), growing(), epochs=1, verbose=0)
