"""Products, normalisations, convolutions and whole pieces of networks written with keras.ops and Python's operators."""

import importlib
import inspect
import json
import re

import keras
import numpy as np
import pytest

import program
from operation_group import check_group

L, ops = keras.layers, keras.ops
LINE, IMAGE = (6, 4), (8, 6, 4)
RNG = np.random.default_rng(3)


def constant(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def attention(t):
    scores = ops.matmul(t.a, ops.transpose(t.b, (0, 2, 1))) / 2.0
    return ops.softmax(scores, axis=-1) @ t.c


def causal(t):
    scores = t.a @ ops.swapaxes(t.b, 1, 2)
    scores = ops.where(np.tril(np.ones((6, 6), bool)), scores, -1e9)
    return ops.matmul(ops.softmax(scores), t.c)


def heads(x, count=2):
    return ops.reshape(x, (-1, 6, count, 4 // count))


LINEAR = {
    "matmul": lambda t: t.a @ ops.transpose(t.b, (0, 2, 1)),
    "matmul_constant": lambda t: ops.matmul(t.a, constant(4, 5)),
    "matmul_left": lambda t: ops.matmul(constant(3, 6), t.a),
    "matmul_vector": lambda t: ops.matmul(t.a, constant(4)),
    "matmul_row": lambda t: ops.matmul(t.a[:, 0], constant(4, 5)),
    "matmul_outer": lambda t: t.a[:, :, None, :] @ ops.expand_dims(t.b, -1),
    "matmul_broadcast": lambda t: ops.matmul(ops.expand_dims(t.a, 1), constant(1, 3, 4, 2)),
    "einsum": lambda t: ops.einsum("bij,bkj->bik", t.a, t.b),
    "einsum_turned": lambda t: ops.einsum("bij,bik->bkj", t.a, t.b),
    "einsum_constant": lambda t: ops.einsum("bij,jk->bki", t.a, constant(4, 5)),
    "einsum_sum": lambda t: ops.einsum("bij->bj", t.a),
    "einsum_transpose": lambda t: ops.einsum("bij->bji", t.a),
    "einsum_product": lambda t: ops.einsum("bij,bij->bij", t.a, t.b),
    "einsum_outer": lambda t: ops.einsum("bi,bj->bij", t.a[:, 0], t.b[:, 1]),
    "einsum_ellipsis": lambda t: ops.einsum("...j,jk->...k", t.a, constant(4, 3)),
    "einsum_three": lambda t: ops.einsum("bij,jk,bkl->bil", t.a, constant(4, 4), ops.swapaxes(t.b, 1, 2)),
    "einsum_heads": lambda t: ops.einsum("btnh,bsnh->bnts", heads(t.a), heads(t.b)),
    "tensordot": lambda t: ops.tensordot(t.a, constant(4, 5), axes=1),
    "tensordot_axes": lambda t: ops.tensordot(t.a, constant(3, 6), axes=[[1], [1]]),
    "tensordot_two": lambda t: ops.tensordot(t.a, constant(6, 4, 2)),
    "dot": lambda t: ops.dot(t.a, constant(4, 3)),
    "dot_vector": lambda t: ops.dot(t.a, constant(4)),
    "inner": lambda t: ops.inner(t.a, constant(3, 4)),
    "cross": lambda t: ops.cross(t.a[..., 1:], t.b[..., :3]),
    "attention": attention,
    "attention_causal": causal,
    "dot_product_attention": lambda t: ops.dot_product_attention(heads(t.a), heads(t.b), heads(t.c)),
    "dot_product_attention_causal": lambda t: ops.dot_product_attention(
        heads(t.a), heads(t.b), heads(t.c), is_causal=True, scale=0.3
    ),
    "softmax_rows": lambda t: ops.softmax(t.a, axis=1),
    "log_softmax": lambda t: ops.log_softmax(t.a),
    "log_softmax_rows": lambda t: ops.log_softmax(t.a, axis=1),
    "normalize": lambda t: ops.normalize(t.a, axis=-1),
    "normalize_one": lambda t: ops.normalize(t.a, axis=1, order=1),
    "normalize_three": lambda t: ops.normalize(t.a, axis=-1, order=3),
    "layer_norm": lambda t: ops.layer_normalization(t.a, constant(4), constant(4), axis=-1, epsilon=1e-3),
    "layer_norm_rows": lambda t: ops.layer_normalization(t.a, constant(6), constant(6), axis=1, epsilon=1e-2),
    "rms_norm": lambda t: ops.rms_normalization(t.a, constant(4), axis=-1, epsilon=1e-3),
    "sparsemax": lambda t: ops.sparsemax(t.a),
    "sparsemax_rows": lambda t: ops.sparsemax(t.a, axis=1),
    "binary_crossentropy": lambda t: ops.binary_crossentropy(t.unit**2, ops.sigmoid(t.a)),
    "binary_crossentropy_logits": lambda t: ops.binary_crossentropy(t.unit**2, t.a, from_logits=True),
    "categorical_crossentropy": lambda t: ops.categorical_crossentropy(ops.softmax(t.a), t.positive),
    "categorical_crossentropy_logits": lambda t: ops.categorical_crossentropy(
        ops.softmax(t.a, axis=1), t.b, from_logits=True, axis=1
    ),
    "sparse_crossentropy": lambda t: ops.sparse_categorical_crossentropy(t.ids % 4, ops.softmax(t.a)),
    "sparse_crossentropy_logits": lambda t: ops.sparse_categorical_crossentropy(t.ids % 4, t.a, from_logits=True),
    "cdist": lambda t: ops.cdist(t.a, t.b[:, :3] + 0.1),
    "cdist_constant": lambda t: ops.cdist(t.a, constant(5, 4)),
    "batch_norm": lambda t: ops.batch_normalization(
        t.a, constant(4), np.abs(constant(4)) + 0.5, axis=-1, offset=constant(4), scale=constant(4)
    ),
}

IMAGES = {
    "max_pool": lambda t: ops.max_pool(t.a, 2),
    "max_pool_same": lambda t: ops.max_pool(t.a, (3, 2), strides=2, padding="same"),
    "average_pool": lambda t: ops.average_pool(t.a, 2, strides=1),
    "max_pool_1d": lambda t: ops.max_pool(t.a[:, 0], 2),
    "conv": lambda t: ops.conv(t.a, constant(3, 3, 4, 5), padding="same"),
    "conv_strides": lambda t: ops.conv(t.a, constant(3, 2, 4, 5), strides=2, padding="valid"),
    "conv_dilation": lambda t: ops.conv(t.a, constant(3, 2, 4, 5), dilation_rate=2, padding="valid"),
    "conv_1d": lambda t: ops.conv(t.a[:, 1], constant(3, 4, 5), padding="same"),
    "depthwise": lambda t: ops.depthwise_conv(t.a, constant(3, 3, 4, 2), padding="same"),
    "separable": lambda t: ops.separable_conv(t.a, constant(3, 3, 4, 1), constant(1, 1, 4, 5), padding="same"),
    "blur": lambda t: ops.image.gaussian_blur(t.a, (3, 3), (0.7, 1.2)),
    "blur_oblong": lambda t: ops.image.gaussian_blur(t.a, (3, 2), (0.7, 1.2)),
    "patches": lambda t: ops.image.extract_patches(t.a, 2),
    "patches_rest": lambda t: ops.image.extract_patches(t.a, (3, 2)),
    "patches_overlap": lambda t: ops.image.extract_patches(t.a, (3, 2), strides=(2, 1), padding="same"),
    "patches_dilated": lambda t: ops.image.extract_patches(t.a, 2, strides=1, dilation_rate=2),
    "patches_3d": lambda t: ops.image.extract_patches(t.a[..., None], (2, 3, 2)),
    "patches_3d_overlap": lambda t: ops.image.extract_patches(t.a[..., None], (2, 2, 2), strides=(2, 1, 1)),
    "unfold": lambda t: ops.unfold(t.a, (3, 2), padding=1, stride=2),
    "unfold_dilated": lambda t: ops.unfold(t.a, 2, dilation=(2, 1)),
    "fold": lambda t: ops.fold(ops.reshape(t.a, (-1, 12, 16)), (6, 7), (2, 3), padding=1, stride=2),
    "fold_overlap": lambda t: ops.fold(ops.reshape(t.a, (-1, 12, 16)), 5, 2),
    # TensorFlow cannot differentiate it.
    "slice_update": lambda t: ops.slice_update(ops.stop_gradient(t.a), (0, 2, 1, 0), ops.stop_gradient(t.b)[:, :3, 1:4]),
    "crop": lambda t: ops.image.crop_images(t.a, top_cropping=1, left_cropping=2, target_height=4, target_width=3),
    "crop_end": lambda t: ops.image.crop_images(t.a, bottom_cropping=2, left_cropping=1, right_cropping=1, target_height=5),
    "pad_images": lambda t: ops.image.pad_images(t.a, 1, 2, target_height=12, target_width=9),
    "pad_images_first": lambda t: ops.image.pad_images(t.a, 1, 0, 2, 3, data_format="channels_first"),
    "grey": lambda t: ops.image.rgb_to_grayscale(t.a[..., :3]),
    "grey_already": lambda t: ops.image.rgb_to_grayscale(t.a[..., :1]),
    "sobel": lambda t: ops.image.sobel_edges(t.a),
    "sobel_first": lambda t: ops.image.sobel_edges(t.a, data_format="channels_first"),
    "channel_attention": lambda t: t.a * ops.sigmoid(ops.mean(t.b, axis=(1, 2), keepdims=True)),
    "layer_scale": lambda t: t.a + ops.gelu(t.b, approximate=False) * np.array([0.1, 0.2, 0.5, 1.0], np.float32),
    "instance_norm": lambda t: (t.a - ops.mean(t.a, axis=(1, 2), keepdims=True))
    / ops.sqrt(ops.var(t.a, axis=(1, 2), keepdims=True) + 1e-3),
    "window_partition": lambda t: ops.reshape(
        ops.transpose(ops.reshape(t.a, (-1, 4, 2, 3, 2, 4)), (0, 1, 3, 2, 4, 5)), (-1, 12, 4, 4)
    ),
    "upsample": lambda t: ops.repeat(ops.repeat(t.a, 2, axis=1), 2, axis=2),
    "reflect": lambda t: L.Conv2D(3, 3, name="reflect_c")(ops.pad(t.a, [[0, 0], [1, 1], [1, 1], [0, 0]], mode="reflect")),
}


@pytest.mark.parametrize("group", ["linear", "images"])
def test_network(group, tmp_path, rng):
    cases, shape = {"linear": (LINEAR, LINE), "images": (IMAGES, IMAGE)}[group]
    check_group(tmp_path, rng, cases, shape)


def refused(folder, make, dtype="float32"):
    x = keras.Input((6, 4), name="x", dtype=dtype)
    model = keras.Model(x, make(x))
    model.save(folder / "model.keras")
    told = program.run("plan", folder / "model.keras", "--batch-size", 4, "--optimizer", "sgd", "--loss", "mse", expect=None)
    assert told.code != 0
    return told.stderr


# What couples samples, or needs what Plimsoll does not have, is named.
REFUSED = {
    "sum_over_the_batch": (lambda x: x - ops.mean(x, axis=0, keepdims=True), "axis=0, which is the batch"),
    "sum_over_all": (lambda x: x / ops.sum(x), "axis=None, which includes the batch"),
    "sampling": (
        lambda x: ops.image.affine_transform(x[..., None], np.eye(3, dtype="float32").reshape(-1)[:8]),
        "it samples images at computed positions",
    ),
    "reshape_of_samples": (lambda x: ops.reshape(x, (-1, 12)), "must be -1 and stay the batch"),
    "batch_moved": (lambda x: ops.transpose(ops.transpose(x, (1, 0, 2)), (1, 0, 2)), "it moves the batch"),
    "stack_on_the_batch": (lambda x: ops.stack([x, x], axis=0)[0], "axis=0, which is the batch"),
    "one_sample": (lambda x: x - x[0], "a part of the batch"),
    "gram_of_samples": (lambda x: ops.einsum("bij,cij->bc", x, x), "all samples with all samples"),
    "ravel": (lambda x: x + ops.ravel(x)[0], "it joins the samples of a batch"),
    "angle": (lambda x: ops.angle(x), "complex numbers"),
    "inverse": (lambda x: ops.inv(x @ ops.swapaxes(x, 1, 2)), "factorises or inverts"),
    "double": (lambda x: ops.cast(x, "float64"), "dtype=float64"),
    "half": (lambda x: ops.cast(x, "bfloat16") * 2, "dtype=bfloat16"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name, tmp_path):
    make, words = REFUSED[name]
    told = refused(tmp_path, make)
    assert words in told, told
    assert "P205" in told, told


# Operations that are refused without a reason of their own: docs/keras.md lists them.
WITHOUT_REASON = {
    "Argpartition", "ConvTranspose", "HSVToRGB", "I0", "Nanmedian", "Nanpercentile", "Nanquantile", "RGBToHSV", "SSIM",
    "UnravelIndex",
}  # fmt: skip


def operation_classes():
    modules = [importlib.import_module(f"keras.src.ops.{name}") for name in ("core", "einops", "image", "linalg", "math", "nn", "numpy")]
    for module in modules:
        for name, made in inspect.getmembers(module, inspect.isclass):
            if issubclass(made, keras.Operation) and made.__module__ == module.__name__ and not name.startswith("_"):
                yield module.__name__, name


def test_every_operation_is_read_or_refused_with_a_reason(tmp_path):
    """All classes of keras.ops in one file, each called on one tensor: what the program does not know, it lists."""
    tensor = {"class_name": "__keras_tensor__", "config": {"shape": [None, 6, 4], "dtype": "float32", "keras_history": ["x", 0, 0]}}
    layers = [{"class_name": "InputLayer", "module": "keras.layers", "name": "x", "inbound_nodes": [], "config": {"name": "x", "batch_shape": [None, 6, 4], "dtype": "float32"}}]
    names = set()
    for module, name in operation_classes():
        names.add(name)
        node = {"args": [tensor], "kwargs": {}}
        layers.append({"class_name": name, "module": module, "registered_name": name, "name": f"op_{len(layers)}", "config": {"name": f"op_{len(layers)}"}, "inbound_nodes": [node]})
    config = {"name": "all", "layers": layers, "input_layers": [["x", 0, 0]], "output_layers": [["x", 0, 0]]}
    (tmp_path / "all.json").write_text(json.dumps({"module": "keras", "class_name": "Functional", "config": config}))
    told = program.run("plan", tmp_path / "all.json", "--batch-size", 2, "--optimizer", "sgd", "--loss", "mse", expect=None)
    unknown = {found[1] for found in re.finditer(r"layer 'op_\d+' \((\w+)\)(: class \w+ of [\w.]+)?$", told.stderr, re.M)}
    assert len(names) > 300 and "Cholesky" in names
    assert "Cholesky" in told.stderr, told.stderr
    assert unknown == WITHOUT_REASON & names, sorted(unknown ^ (WITHOUT_REASON & names))
