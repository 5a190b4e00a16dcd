"""Code that moves the batch, or puts parts of a sample into it, trains with Keras's losses or is refused."""

import keras
import numpy as np
import pytest
import view_layers
from test_own_code import assert_same_training, floats, with_layer

import plimsoll


@pytest.mark.parametrize("layer, shape", [
    (view_layers.Qkv, (6, 8)),
    (lambda: view_layers.Qkv(how="unstack"), (6, 8)),
    (lambda: view_layers.Qkv(how="tf"), (6, 8)),
    (view_layers.Windows, (8, 8, 4)),
])
def test_layers_train_as_in_keras(layer, shape):
    assert_same_training(with_layer(layer, shape), floats(40, *shape), floats(40, 1))


def test_windows_in_micro_batches():
    make = with_layer(view_layers.Windows, (8, 8, 4))
    x, y = floats(32, 8, 8, 4), floats(32, 1)
    keras.utils.set_random_seed(3)
    whole = make()
    keras.utils.set_random_seed(3)
    cut = make()
    expected = plimsoll.fit(whole, x, y, batch_size=16, epochs=2, shuffle=False, verbose=0).history["loss"]
    found = plimsoll.fit(cut, x, y, batch_size=16, epochs=2, shuffle=False, verbose=0, micro_batch=4)
    assert found.plan.batch["micro"] == 4
    np.testing.assert_allclose(found.history["loss"], expected, rtol=1e-5)


@pytest.mark.parametrize("layer, reason", [(view_layers.BatchMean, "joins samples of the batch"), (view_layers.HalfOfTheBatch, "part of the batch")])
def test_what_joins_samples_is_refused_with_its_line(layer, reason):
    model = with_layer(layer, (4, 8))()
    with pytest.raises(plimsoll.Unsupported) as caught:
        plimsoll.fit(model, floats(16, 4, 8), floats(16, 1), verbose=0)
    assert reason in str(caught.value) and "view_layers.py:" in str(caught.value)
