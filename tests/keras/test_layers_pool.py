"""Pooling and up-sampling of one, two and three dimensions in random configurations: output, loss and gradients against Keras."""

import keras
import numpy as np
import pytest

from random_layers import FORMATS, check_layers, draw, image, pick, sizes

L = keras.layers


def pooling(kind, rank):
    def make(rng):
        options = {"pool_size": sizes(rng, rank, 1, 4), "padding": pick(rng, "valid", "same")}
        if rng.random() < 0.7:
            options["strides"] = sizes(rng, rank, 1, 3)
        options["data_format"] = pick(rng, *FORMATS)
        return image(rng, rank, options["data_format"], int(rng.integers(1, 6))), getattr(L, f"{kind}Pooling{rank}D"), options

    return make


def global_pooling(kind, rank):
    def make(rng):
        options = {"keepdims": bool(rng.random() < 0.5), "data_format": pick(rng, *FORMATS)}
        return image(rng, rank, options["data_format"], int(rng.integers(1, 6))), getattr(L, f"Global{kind}Pooling{rank}D"), options

    return make


def adaptive_pooling(kind, rank):
    def make(rng):
        options = {"output_size": sizes(rng, rank, 1, 5), "data_format": pick(rng, *FORMATS)}
        shape = image(rng, rank, options["data_format"], int(rng.integers(1, 5)))
        space = shape[:-1] if options["data_format"] == "channels_last" else shape[1:]
        # Keras also pools with windows that are one element larger. If those do not fit, their gradient is memory that
        # TensorFlow did not set.
        options["output_size"] = tuple(
            out if kind == "Average" or -(-n // out) < n else n for n, out in zip(space, options["output_size"])
        )
        return shape, getattr(L, f"Adaptive{kind}Pooling{rank}D"), options

    return make


def up_sampling(rank):
    def make(rng):
        options = {"size": sizes(rng, rank, 1, 3)}
        if rank > 1:
            options["data_format"] = pick(rng, *FORMATS)
        if rank == 2:
            options["interpolation"] = pick(rng, "nearest", "bilinear", "bicubic", "lanczos3", "lanczos5")
        if rank == 1:
            options["size"] = options["size"][0]
        return image(rng, rank, options.get("data_format", "channels_last"), int(rng.integers(1, 4))), getattr(L, f"UpSampling{rank}D"), options

    return make


RANKS, KINDS = (1, 2, 3), ("Max", "Average")
FAMILIES = {
    **{f"{kind}_pooling_{r}d": pooling(kind, r) for kind in KINDS for r in RANKS},
    **{f"global_{kind}_pooling_{r}d": global_pooling(kind, r) for kind in KINDS for r in RANKS},
    **{f"adaptive_{kind}_pooling_{r}d": adaptive_pooling(kind, r) for kind in KINDS for r in RANKS},
    **{f"up_sampling_{r}d": up_sampling(r) for r in RANKS},
}
# Families that share a model, so that the test takes less time.
GROUPS = {
    "pooling": [f for f in FAMILIES if f.startswith(KINDS)],
    "global": [f for f in FAMILIES if f.startswith("global")],
    "adaptive": [f for f in FAMILIES if f.startswith("adaptive")],
    "up_sampling": [f for f in FAMILIES if f.startswith("up")],
}


@pytest.mark.parametrize("group", GROUPS)
def test_random_pooling(group, tmp_path):
    rng = np.random.default_rng(40 + list(GROUPS).index(group))
    count = {"global": 3, "up_sampling": 8}.get(group, 5)
    check_layers(tmp_path, rng, group, [layer for f in GROUPS[group] for layer in draw(rng, FAMILIES[f], count)])


def test_windows_of_more_than_255_elements(tmp_path, rng):
    check_layers(
        tmp_path,
        rng,
        "large_windows",
        [
            ((20, 18, 2), L.MaxPooling2D, {"pool_size": (17, 16), "strides": (1, 2)}),
            ((20, 18, 2), L.MaxPooling2D, {"pool_size": 17, "strides": 3, "padding": "same"}),
            ((8, 9, 8, 1), L.MaxPooling3D, {"pool_size": 7, "strides": 1}),
            ((300, 1), L.MaxPooling1D, {"pool_size": 280, "strides": 5}),
            ((20, 18, 2), L.AveragePooling2D, {"pool_size": (17, 16), "strides": (1, 2), "padding": "same"}),
        ],
    )
