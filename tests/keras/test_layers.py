"""Every layer in every configuration: output, loss, the gradients of its weights and of its input, updated statistics.

A 1x1 convolution (or a Dense) comes before each layer. The gradient of its kernel is a random projection of the layer's input
gradient, so it shows an error anywhere in that gradient."""

import keras
import numpy as np
import pytest

import program
from one_step import check_step

L = keras.layers
IMAGE, ODD, VECTOR, LINE = (8, 8, 4), (9, 7, 4), (6,), (11, 4)
N = 5


def frozen(layer):
    layer.trainable = False
    return layer


def two_ways(trainable=True):
    i = keras.Input((4,))
    ways = [L.Dense(5, activation="tanh")(i), L.Dense(5, trainable=trainable)(i)]
    return keras.Model(i, L.add(ways) * 0.5)


# name: (shape of a sample, function that makes the layer)
CASES = {
    "dense": (VECTOR, lambda: L.Dense(7)),
    "dense_no_bias": (VECTOR, lambda: L.Dense(7, use_bias=False, activation="tanh")),
    "dense_on_images": (IMAGE, lambda: L.Dense(5, activation="relu")),
    "conv_valid": (ODD, lambda: L.Conv2D(6, 3)),
    "conv_same": (ODD, lambda: L.Conv2D(6, 3, padding="same", activation="relu")),
    "conv_strides_same": (ODD, lambda: L.Conv2D(6, 3, strides=2, padding="same")),
    "conv_strides_same_even": (IMAGE, lambda: L.Conv2D(6, 3, strides=2, padding="same", use_bias=False)),
    "conv_strides_valid": (ODD, lambda: L.Conv2D(6, (3, 2), strides=(2, 3))),
    "conv_stride_over_kernel": (ODD, lambda: L.Conv2D(6, 1, strides=2)),
    "conv_even_kernel_same": (ODD, lambda: L.Conv2D(6, (4, 2), padding="same")),
    "conv_dilation": (ODD, lambda: L.Conv2D(6, 3, dilation_rate=2)),
    "conv_dilation_same": (ODD, lambda: L.Conv2D(6, 3, dilation_rate=(3, 2), padding="same")),
    "conv_groups": (IMAGE, lambda: L.Conv2D(6, 3, groups=2)),
    "conv_groups_strides_same": (ODD, lambda: L.Conv2D(8, 3, strides=2, groups=4, padding="same")),
    "conv_wide": ((8, 8, 32), lambda: L.Conv2D(32, 3, padding="same", activation="relu")),
    "conv_5x5": ((11, 11, 3), lambda: L.Conv2D(17, 5, strides=2, padding="same")),
    "depthwise": (ODD, lambda: L.DepthwiseConv2D(3)),
    "depthwise_same_strides": (ODD, lambda: L.DepthwiseConv2D(3, strides=2, padding="same", use_bias=False)),
    "depthwise_multiplier": (ODD, lambda: L.DepthwiseConv2D(3, depth_multiplier=3, padding="same")),
    "depthwise_dilation": (ODD, lambda: L.DepthwiseConv2D(3, dilation_rate=2, activation="relu")),
    "depthwise_wide": ((8, 8, 32), lambda: L.DepthwiseConv2D(5, padding="same")),
    "transpose_valid": (ODD, lambda: L.Conv2DTranspose(5, 3)),
    "transpose_same_strides": (ODD, lambda: L.Conv2DTranspose(5, 3, strides=2, padding="same", activation="relu")),
    "transpose_valid_strides": (ODD, lambda: L.Conv2DTranspose(5, 2, strides=2, use_bias=False)),
    "transpose_kernel_under_stride": (IMAGE, lambda: L.Conv2DTranspose(5, 2, strides=3)),
    "transpose_output_padding": (IMAGE, lambda: L.Conv2DTranspose(5, 3, strides=2, padding="same", output_padding=1)),
    "transpose_output_padding_valid": (IMAGE, lambda: L.Conv2DTranspose(5, 3, strides=(3, 2), output_padding=(2, 0))),
    "transpose_output_padding_zero": (
        IMAGE,
        lambda: L.Conv2DTranspose(5, 3, strides=2, padding="same", output_padding=0),
    ),
    "max_pool": (IMAGE, lambda: L.MaxPooling2D()),
    "max_pool_same": (ODD, lambda: L.MaxPooling2D(3, strides=2, padding="same")),
    "max_pool_overlap": (ODD, lambda: L.MaxPooling2D((3, 2), strides=1)),
    "max_pool_drops_edge": (ODD, lambda: L.MaxPooling2D(2)),
    "average_pool": (IMAGE, lambda: L.AveragePooling2D(2)),
    "average_pool_same": (ODD, lambda: L.AveragePooling2D(3, strides=2, padding="same")),
    "average_pool_overlap": (ODD, lambda: L.AveragePooling2D((2, 3), strides=(1, 2))),
    "global_max_pool": (ODD, lambda: L.GlobalMaxPooling2D()),
    "global_max_pool_keepdims": (ODD, lambda: L.GlobalMaxPooling2D(keepdims=True)),
    "global_average_pool": (ODD, lambda: L.GlobalAveragePooling2D()),
    "global_average_pool_keepdims": (ODD, lambda: L.GlobalAveragePooling2D(keepdims=True)),
    "upsample_nearest": (ODD, lambda: L.UpSampling2D()),
    "upsample_nearest_3x2": (ODD, lambda: L.UpSampling2D((3, 2))),
    "upsample_bilinear": (ODD, lambda: L.UpSampling2D(2, interpolation="bilinear")),
    "upsample_bilinear_3x2": (ODD, lambda: L.UpSampling2D((3, 2), interpolation="bilinear")),
    "zero_padding": (ODD, lambda: L.ZeroPadding2D(2)),
    "zero_padding_asymmetric": (ODD, lambda: L.ZeroPadding2D(((1, 3), (0, 2)))),
    "flatten": (ODD, lambda: L.Flatten()),
    "reshape": (IMAGE, lambda: L.Reshape((16, 16))),
    "reshape_unknown": (IMAGE, lambda: L.Reshape((4, -1, 2))),
    "relu_layer": (IMAGE, lambda: L.ReLU()),
    "relu_max_value": (IMAGE, lambda: L.ReLU(0.75)),
    "relu_negative_slope": (IMAGE, lambda: L.ReLU(negative_slope=0.125)),
    "relu_threshold": (IMAGE, lambda: L.ReLU(threshold=0.25)),
    "relu_everything": (IMAGE, lambda: L.ReLU(max_value=1.0, negative_slope=0.25, threshold=0.5)),
    "leaky_relu_layer": (IMAGE, lambda: L.LeakyReLU()),
    "leaky_relu_slope": (IMAGE, lambda: L.LeakyReLU(negative_slope=0.05)),
    "elu_layer": (IMAGE, lambda: L.ELU(alpha=0.5)),
    "softmax_layer": (IMAGE, lambda: L.Softmax()),
    **{
        f"activation_{a}": (IMAGE, lambda a=a: L.Activation(a))
        for a in ("relu", "leaky_relu", "elu", "gelu", "sigmoid", "tanh", "softmax", "silu", "hard_sigmoid", "hard_silu", "linear")
    },
    "activation_relu6": (IMAGE, lambda: L.Activation("relu6")),
    "batch_norm": (IMAGE, lambda: L.BatchNormalization()),
    "batch_norm_momentum": (IMAGE, lambda: L.BatchNormalization(momentum=0.5, epsilon=0.1)),
    "batch_norm_vector": (VECTOR, lambda: L.BatchNormalization()),
    "batch_norm_no_scale": (IMAGE, lambda: L.BatchNormalization(scale=False)),
    "batch_norm_no_center": (IMAGE, lambda: L.BatchNormalization(center=False)),
    "batch_norm_plain": (IMAGE, lambda: L.BatchNormalization(center=False, scale=False)),
    "batch_norm_frozen": (IMAGE, lambda: frozen(L.BatchNormalization())),
    "batch_norm_frozen_no_scale": (IMAGE, lambda: frozen(L.BatchNormalization(scale=False))),
    "layer_norm": (IMAGE, lambda: L.LayerNormalization()),
    "layer_norm_vector": (VECTOR, lambda: L.LayerNormalization(epsilon=1e-6)),
    "layer_norm_plain": (IMAGE, lambda: L.LayerNormalization(center=False, scale=False)),
    "layer_norm_no_center": (VECTOR, lambda: L.LayerNormalization(center=False)),
    "rescaling": (IMAGE, lambda: L.Rescaling(0.25, 1.5)),
    "dropout_zero": (IMAGE, lambda: L.Dropout(0.0)),
    "conv_frozen": (IMAGE, lambda: frozen(L.Conv2D(6, 3))),
    "conv1d": (LINE, lambda: L.Conv1D(6, 3)),
    "conv1d_same_strides": (LINE, lambda: L.Conv1D(6, 4, strides=2, padding="same", activation="relu")),
    "conv1d_causal": (LINE, lambda: L.Conv1D(6, 3, dilation_rate=2, padding="causal", use_bias=False)),
    "conv1d_causal_strides": (LINE, lambda: L.Conv1D(6, 3, strides=2, padding="causal")),
    "conv1d_groups": (LINE, lambda: L.Conv1D(6, 3, groups=2, dilation_rate=3)),
    "depthwise1d": (LINE, lambda: L.DepthwiseConv1D(3, depth_multiplier=2, padding="same")),
    "separable1d": (LINE, lambda: L.SeparableConv1D(5, 3, strides=2)),
    "transpose1d": (LINE, lambda: L.Conv1DTranspose(5, 3, strides=2, padding="same")),
    "max_pool1d": (LINE, lambda: L.MaxPooling1D()),
    "max_pool1d_same": (LINE, lambda: L.MaxPooling1D(3, strides=2, padding="same")),
    "average_pool1d": (LINE, lambda: L.AveragePooling1D(3, strides=1)),
    "average_pool1d_same": (LINE, lambda: L.AveragePooling1D(3, strides=2, padding="same")),
    "global_max_pool1d": (LINE, lambda: L.GlobalMaxPooling1D()),
    "global_average_pool1d": (LINE, lambda: L.GlobalAveragePooling1D()),
    "global_average_pool1d_keepdims": (LINE, lambda: L.GlobalAveragePooling1D(keepdims=True)),
    "upsample1d": (LINE, lambda: L.UpSampling1D(3)),
    "zero_padding1d": (LINE, lambda: L.ZeroPadding1D(2)),
    "zero_padding1d_asymmetric": (LINE, lambda: L.ZeroPadding1D((0, 3))),
    "cropping1d": (LINE, lambda: L.Cropping1D((1, 3))),
    "cropping2d": (ODD, lambda: L.Cropping2D(((1, 2), (0, 1)))),
    "time_distributed_dense": (LINE, lambda: L.TimeDistributed(L.Dense(5, activation="relu"))),
    "time_distributed_conv": ((3,) + ODD, lambda: L.TimeDistributed(L.Conv2D(6, 3, padding="same"))),
    "time_distributed_batch_norm": (LINE, lambda: L.TimeDistributed(L.BatchNormalization(momentum=0.6))),
    "time_distributed_batch_norm_of_images": ((3, 4, 3, 4), lambda: L.TimeDistributed(L.BatchNormalization(momentum=0.6))),
    "time_distributed_frozen_batch_norm": (LINE, lambda: L.TimeDistributed(frozen(L.BatchNormalization()))),
    "time_distributed_sequential": (
        (3,) + ODD,
        lambda: L.TimeDistributed(
            keras.Sequential([L.Conv2D(6, 3, activation="relu"), L.MaxPooling2D(), L.Flatten(), L.Dense(4)])
        ),
    ),
    "time_distributed_functional": (LINE, lambda: L.TimeDistributed(two_ways())),
    "time_distributed_model_batch_norm": (
        (3, 4, 3, 4),
        lambda: L.TimeDistributed(keras.Sequential([L.Conv2D(3, 1), L.BatchNormalization(momentum=0.6), L.ReLU()])),
    ),
    "time_distributed_frozen_model": (LINE, lambda: L.TimeDistributed(frozen(two_ways()))),
    "time_distributed_half_frozen_model": (LINE, lambda: L.TimeDistributed(two_ways(trainable=False))),
    "time_distributed_nested_model": (LINE, lambda: L.TimeDistributed(keras.Sequential([two_ways(), L.Dense(2)]))),
    "time_distributed_dropout": (LINE, lambda: L.TimeDistributed(L.Dropout(0.0))),
    "time_distributed_twice": (IMAGE, lambda: L.TimeDistributed(L.TimeDistributed(L.Dense(5)))),
}

def pieces(x, cut, axis):
    """Applies another operation to each piece, so that exchanged pieces are detected."""
    parts = keras.ops.split(x, cut, axis=axis)
    return L.Concatenate(axis=axis)([L.Activation("tanh")(parts[-1]), *parts[:-1]])


# Layers of two tensors. Each operand has its own convolution before it.
MERGES = {
    "add": lambda a, b: L.Add()([a, b]),
    "add_of_three": lambda a, b: L.Add()([a, b, a]),
    "multiply": lambda a, b: L.Multiply()([a, b]),
    "multiply_broadcast": lambda a, b: L.Multiply()([a, L.GlobalAveragePooling2D(keepdims=True)(b)]),
    "add_broadcast": lambda a, b: L.Add()([L.GlobalMaxPooling2D(keepdims=True)(a), b]),
    "multiply_by_itself": lambda a, b: L.Multiply()([a, a]),
    "concatenate": lambda a, b: L.Concatenate()([a, b]),
    "concatenate_of_three": lambda a, b: L.Concatenate()([b, a, b]),
    "concatenate_rows": lambda a, b: L.Concatenate(axis=1)([a, b]),
    "split": lambda a, b: pieces(L.Add()([a, b]), 2, -1),
    "split_at": lambda a, b: pieces(L.Add()([a, b]), [3, 4], 1),
}


def stem(x, name):
    channels = x.shape[-1]
    return (L.Conv2D(channels, 1, name=name) if len(x.shape) == 4 else L.Dense(channels, name=name))(x)


def check(folder, rng, name, inputs, outputs):
    model = keras.Model(inputs, outputs, name=name)
    x = rng.standard_normal((N,) + model.input_shape[1:]).astype(np.float32)
    y = rng.standard_normal((N,) + model.output_shape[1:]).astype(np.float32)
    check_step(folder, model, x, y, "mse")


@pytest.mark.parametrize("name", CASES)
def test_layer(name, tmp_path, rng):
    shape, make = CASES[name]
    i = keras.Input(shape)
    check(tmp_path, rng, name, i, make()(stem(i, "stem")))


@pytest.mark.parametrize("name", MERGES)
def test_merge(name, tmp_path, rng):
    i = keras.Input(IMAGE)
    check(tmp_path, rng, name, i, MERGES[name](stem(i, "left"), stem(i, "right")))


def test_layer_at_the_input(tmp_path, rng):
    """The first layer needs no input gradient, but gradients of its weights."""
    i = keras.Input(ODD)
    check(tmp_path, rng, "first_layer", i, L.Conv2D(3, 3)(L.MaxPooling2D(2)(i)))


def test_a_random_layer_over_many_steps(tmp_path, rng):
    model = keras.Sequential([keras.Input((200, 2)), L.TimeDistributed(L.GaussianNoise(0.3)), L.Flatten(), L.Dense(1)])
    model.compile("sgd", "mse")
    model.save(tmp_path / "model.keras")
    x, y = rng.standard_normal((N, 200, 2)).astype(np.float32), rng.standard_normal((N, 1)).astype(np.float32)
    data = program.arrays(tmp_path, x=x, y=y)
    trained = program.fit(tmp_path, tmp_path / "model.keras", data, batch_size=N, epochs=1, steps=1)
    assert np.all(np.isfinite(trained.losses))
