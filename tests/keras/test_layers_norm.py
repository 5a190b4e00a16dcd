"""Normalisation layers along other axes than the last, and those without moving statistics."""

import keras
import numpy as np
import pytest

from test_layers import IMAGE, LINE, N, VECTOR, check, stem
from one_step import check_step

L = keras.layers
VOLUME = (3, 4, 5, 4)


def adapted(**named):
    return L.Normalization(**named)  # check_step gives its weights random values


CASES = {
    "batch_norm_rows": (IMAGE, lambda: L.BatchNormalization(axis=1)),
    "batch_norm_columns": (IMAGE, lambda: L.BatchNormalization(axis=-2, scale=False)),
    "batch_norm_line": (LINE, lambda: L.BatchNormalization(axis=1, center=False)),
    "batch_norm_synchronized": (IMAGE, lambda: L.BatchNormalization(synchronized=True)),
    "layer_norm_two_axes": (IMAGE, lambda: L.LayerNormalization(axis=(-2, -1))),
    "layer_norm_all_axes": (IMAGE, lambda: L.LayerNormalization(axis=(1, 2, 3), center=False)),
    "layer_norm_rows": (IMAGE, lambda: L.LayerNormalization(axis=1)),
    "layer_norm_apart": (IMAGE, lambda: L.LayerNormalization(axis=(1, 3), scale=False)),
    "layer_norm_volume": (VOLUME, lambda: L.LayerNormalization(axis=(2, 4))),
    "layer_norm_by_variance": (IMAGE, lambda: L.LayerNormalization(rms_scaling=True)),
    "layer_norm_by_variance_rows": (IMAGE, lambda: L.LayerNormalization(axis=1, rms_scaling=True)),
    "group_norm": (IMAGE, lambda: L.GroupNormalization(2)),
    "group_norm_one": (IMAGE, lambda: L.GroupNormalization(1, epsilon=1e-5)),
    "group_norm_instance": (IMAGE, lambda: L.GroupNormalization(-1)),
    "group_norm_vector": (VECTOR, lambda: L.GroupNormalization(3, scale=False)),
    "group_norm_rows": (IMAGE, lambda: L.GroupNormalization(4, axis=1)),
    "group_norm_columns": (IMAGE, lambda: L.GroupNormalization(2, axis=-2, center=False)),
    "group_norm_plain": (LINE, lambda: L.GroupNormalization(2, center=False, scale=False)),
    "rms_norm": (IMAGE, lambda: L.RMSNormalization()),
    "rms_norm_vector": (VECTOR, lambda: L.RMSNormalization(epsilon=0.1)),
    "rms_norm_two_axes": (IMAGE, lambda: L.RMSNormalization(axis=(-2, -1))),
    "rms_norm_square": ((4, 4), lambda: L.RMSNormalization(axis=1)),
    "unit_norm": (IMAGE, lambda: L.UnitNormalization()),
    "unit_norm_axes": (IMAGE, lambda: L.UnitNormalization(axis=[1, 2])),
    "normalization": (IMAGE, adapted),
    "normalization_vector": (VECTOR, adapted),
    "normalization_all": (IMAGE, lambda: adapted(axis=None)),
    "normalization_rows": (IMAGE, lambda: adapted(axis=1)),
    "normalization_axes": (IMAGE, lambda: adapted(axis=(1, 3))),
    "normalization_invert": (IMAGE, lambda: adapted(invert=True)),
    "normalization_invert_rows": (IMAGE, lambda: adapted(axis=1, invert=True)),
    "normalization_given": (IMAGE, lambda: L.Normalization(mean=0.5, variance=2.0)),
    "normalization_given_channels": (IMAGE, lambda: L.Normalization(mean=[0.1, 0.2, 0.3, 0.4], variance=[1.0, 2.0, 3.0, 4.0])),
    "rescaling_channels": (IMAGE, lambda: L.Rescaling([0.5, 1.0, 2.0, 0.25], 0.5)),
    "rescaling_channels_offset": (IMAGE, lambda: L.Rescaling(2.0, [0.5, 1.0, 2.0, 0.25])),
    "rescaling_numpy": (IMAGE, lambda: L.Rescaling(np.array([0.5, 1.0, 2.0, 0.25]), np.zeros(4))),
}


@pytest.mark.parametrize("name", CASES)
def test_layer(name, tmp_path, rng):
    shape, make = CASES[name]
    i = keras.Input(shape)
    check(tmp_path, rng, name, i, make()(stem(i, "stem")))


def test_adapted_state_is_written_back(tmp_path, rng):
    """What adapt() found stays in the file, with the integer beside it."""
    layer = L.Normalization()
    layer.adapt(3 + 2 * rng.standard_normal((40, 6)).astype(np.float32))
    model = keras.Sequential([keras.Input((6,)), layer, L.Dense(3)])
    x = rng.standard_normal((N, 6)).astype(np.float32)
    check_step(tmp_path, model, x, rng.standard_normal((N, 3)).astype(np.float32), "mse")


def called_beside_a_shorter_way():
    """Keras calls the BatchNormalization on the PReLU first, though the file lists that call last."""
    i = keras.Input((7, 4))
    norm = L.BatchNormalization(momentum=0.5, name="shared")
    first, second = norm(i), norm(L.PReLU()(i))
    y = L.Dense(3)(L.GlobalMaxPooling1D()(i))
    y = L.Multiply()([y, L.LayerNormalization()(y)])
    return keras.Model(i, L.Dense(3)(L.Concatenate()([L.Flatten()(first), L.Flatten()(second), y])))


def called_inside_a_shared_model():
    i = keras.Input((7, 4))
    shared = keras.Sequential([keras.Input((7, 4)), L.Dense(4), L.BatchNormalization(momentum=0.25)], name="shared")
    short, long = shared(i), shared(L.Activation("tanh")(L.Dense(4)(i)))
    return keras.Model(i, L.Dense(3)(L.Concatenate()([L.Flatten()(L.ReLU()(short)), L.Flatten()(long)])))


def called_on_two_inputs():
    """Averages and vectors of other depths; the call with the longer way to the output comes first."""
    i = keras.Input((7, 4))
    norm = L.BatchNormalization(momentum=0.5, name="shared")
    average = norm(L.GlobalAveragePooling1D()(L.Concatenate()([i, i])))
    vector = L.Activation("tanh")(L.LayerNormalization()(norm(L.Dense(8)(L.Flatten()(i)))))
    return keras.Model(i, L.Dense(3)(L.Concatenate()([average, vector])))


@pytest.mark.parametrize("make", [called_beside_a_shorter_way, called_inside_a_shared_model, called_on_two_inputs])
def test_moving_statistics_follow_the_order_of_calls(make, tmp_path, rng):
    """A BatchNormalization that is called twice moves its statistics twice, in Keras's order of the calls."""
    check_step(tmp_path, make(), rng.standard_normal((N, 7, 4)).astype(np.float32) + 1, rng.standard_normal((N, 3)).astype(np.float32), "mse")
