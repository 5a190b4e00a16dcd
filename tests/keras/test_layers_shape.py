"""Layers that move values, and EinsumDense: output, loss, gradients, as in test_layers.py."""

import keras
import numpy as np
import pytest

from one_step import check_step

L = keras.layers
IMAGE, VOLUME, VECTOR, LINE = (6, 5, 4), (5, 4, 6, 3), (6,), (7, 4)
N = 5

# name: (shape of a sample, function that makes the layer)
CASES = {
    "permute_line": (LINE, lambda: L.Permute((2, 1))),
    "permute_image": (IMAGE, lambda: L.Permute((3, 1, 2))),
    "permute_nothing": (IMAGE, lambda: L.Permute((1, 2, 3))),
    "permute_volume": (VOLUME, lambda: L.Permute((4, 2, 1, 3))),
    "repeat_vector": (VECTOR, lambda: L.RepeatVector(3)),
    "flatten_channels_first": (IMAGE, lambda: L.Flatten(data_format="channels_first")),
    "flatten_vector": (VECTOR, lambda: L.Flatten(data_format="channels_first")),
    "reshape_free": (IMAGE, lambda: L.Reshape((-1, 4))),
    "zero_padding3d": (VOLUME, lambda: L.ZeroPadding3D()),
    "zero_padding3d_uneven": (VOLUME, lambda: L.ZeroPadding3D(((0, 1), (2, 0), (1, 3)))),
    "zero_padding3d_first": (VOLUME, lambda: L.ZeroPadding3D((1, 0, 2), data_format="channels_first")),
    "cropping3d": (VOLUME, lambda: L.Cropping3D()),
    "cropping3d_uneven": (VOLUME, lambda: L.Cropping3D(((0, 1), (2, 0), (1, 3)))),
    "cropping3d_first": ((2, 5, 4, 6), lambda: L.Cropping3D(((1, 2), (0, 1), (2, 2)), data_format="channels_first")),
    "einsum_dense": (LINE, lambda: L.EinsumDense("abc,cd->abd", output_shape=(None, 9), bias_axes="d")),
    "einsum_no_bias": (VECTOR, lambda: L.EinsumDense("ab,bc->ac", output_shape=9, activation="relu")),
    "einsum_heads": (LINE, lambda: L.EinsumDense("abc,cde->abde", output_shape=(None, 2, 3), bias_axes="de")),
    "einsum_join": (IMAGE, lambda: L.EinsumDense("abcd,cde->abe", output_shape=(None, 7), bias_axes="e")),
    "einsum_sequence": (LINE, lambda: L.EinsumDense("abc,bd->adc", output_shape=(5, None), bias_axes="d")),
    "einsum_left": (IMAGE, lambda: L.EinsumDense("...x,xy->...y", output_shape=9, bias_axes="y")),
    "einsum_right": (IMAGE, lambda: L.EinsumDense("ab...,bc->ac...", output_shape=9, bias_axes="c")),
    "einsum_batched": (LINE, lambda: L.EinsumDense("abc,bcd->abd", output_shape=(7, 6), bias_axes="bd")),
    "einsum_scale": (LINE, lambda: L.EinsumDense("abc,c->abc", output_shape=(None, 4))),
    "einsum_turned": (LINE, lambda: L.EinsumDense("abc,dc->adb", output_shape=(5, 7), bias_axes="b")),
}


@pytest.mark.parametrize("name", CASES)
def test_layer(name, tmp_path, rng):
    shape, make = CASES[name]
    i = keras.Input(shape)
    model = keras.Model(i, make()(L.Dense(shape[-1], name="stem")(i)), name=name)
    x = rng.standard_normal((N,) + model.input_shape[1:]).astype(np.float32)
    # The output shape of an EinsumDense has a None where its configuration has one.
    y = rng.standard_normal(model(x).shape).astype(np.float32)
    check_step(tmp_path, model, x, y, "mse")
