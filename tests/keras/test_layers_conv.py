"""Convolutions of one, two and three dimensions in random configurations: output, loss and every gradient against Keras.

The shapes include odd sizes, sizes of 1, strides larger than the kernel, and kernels larger than the image."""

import keras
import numpy as np
import pytest

from random_layers import FORMATS, check_layers, draw, image, pick, sizes

L = keras.layers


def window(rng, rank):
    """Either strides or dilation: Keras refuses both at once for most layers."""
    options = {"kernel_size": sizes(rng, rank, 1, 4), "padding": pick(rng, "valid", "same", "same")}
    if rng.random() < 0.5:
        options["strides"] = sizes(rng, rank, 1, 3)
    elif rng.random() < 0.6:
        options["dilation_rate"] = sizes(rng, rank, 1, 3)
    return options


def ending(rng):
    return {"use_bias": bool(rng.random() < 0.7), "activation": pick(rng, None, None, "relu", "tanh")}


def convolution(rank):
    def make(rng):
        groups = pick(rng, 1, 1, 2, 3)
        options = window(rng, rank) | ending(rng)
        options |= {"filters": groups * int(rng.integers(1, 4)), "groups": groups}
        if rank == 1 and rng.random() < 0.3:
            options["padding"] = "causal"
        options["data_format"] = pick(rng, *FORMATS)
        shape = image(rng, rank, options["data_format"], groups * int(rng.integers(1, 4)))
        return shape, getattr(L, f"Conv{rank}D"), options

    return make


def transposed(rank):
    def make(rng):
        options = window(rng, rank) | ending(rng) | {"filters": int(rng.integers(1, 5))}
        if "strides" in options and rng.random() < 0.4:
            options["output_padding"] = tuple(int(rng.integers(0, s)) for s in options["strides"])
        options["data_format"] = pick(rng, *FORMATS)
        return image(rng, rank, options["data_format"], int(rng.integers(1, 5))), getattr(L, f"Conv{rank}DTranspose"), options

    return make


def depthwise(rank, separable=False):
    def make(rng):
        options = window(rng, rank) | ending(rng) | {"depth_multiplier": int(rng.integers(1, 4))}
        if separable:
            options["filters"] = int(rng.integers(1, 5))
        options["data_format"] = pick(rng, *FORMATS)
        kind = getattr(L, f"{'Separable' if separable else 'Depthwise'}Conv{rank}D")
        return image(rng, rank, options["data_format"], int(rng.integers(1, 5))), kind, options

    return make


FAMILIES = {
    **{f"conv{rank}d": convolution(rank) for rank in (1, 2, 3)},
    **{f"conv{rank}d_transpose": transposed(rank) for rank in (1, 2, 3)},
    **{f"depthwise_conv{rank}d": depthwise(rank) for rank in (1, 2)},
    **{f"separable_conv{rank}d": depthwise(rank, separable=True) for rank in (1, 2)},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_random_convolutions(family, tmp_path):
    rng = np.random.default_rng(20 + list(FAMILIES).index(family))
    check_layers(tmp_path, rng, family, draw(rng, FAMILIES[family], 7))


def test_volumes_of_many_channels(tmp_path, rng):
    """Shapes for the fast kernels: channels in multiples of 16, planes of several tiles."""
    same = {"padding": "same", "activation": "relu"}
    check_layers(
        tmp_path,
        rng,
        "wide_volumes",
        [
            ((4, 6, 8, 16), L.Conv3D, {"filters": 32, "kernel_size": 3, **same}),
            ((4, 6, 8, 16), L.Conv3D, {"filters": 16, "kernel_size": 3, "strides": 2, **same}),
            ((4, 6, 8, 16), L.Conv3D, {"filters": 32, "kernel_size": 1}),
            ((4, 6, 8, 16), L.Conv3D, {"filters": 16, "kernel_size": (1, 3, 3), **same}),
            ((4, 6, 8, 16), L.Conv3D, {"filters": 16, "kernel_size": (3, 1, 1), **same}),
            ((3, 4, 4, 32), L.Conv3DTranspose, {"filters": 16, "kernel_size": 2, "strides": 2}),
        ],
    )
