"""Networks whose channels are tied in every way that `plimsoll shrink` follows, with weights of a trained network's size."""

import keras
import numpy as np

L = keras.layers


def block(x, filters, stride=1, kernel=3):
    x = L.Conv2D(filters, kernel, strides=stride, padding="same", use_bias=False)(x)
    return L.Activation("relu")(L.BatchNormalization()(x))


def resnet():
    inputs = x = keras.Input((12, 12, 3))
    x = block(x, 16)
    for filters, stride in ((16, 1), (32, 2)):
        short = x if stride == 1 else L.BatchNormalization()(L.Conv2D(filters, 1, strides=stride)(x))
        y = block(x, filters, stride)
        y = L.BatchNormalization()(L.Conv2D(filters, 3, padding="same")(y))
        x = L.Activation("relu")(L.Add()([short, y]))
    return keras.Model(inputs, L.Dense(5, activation="softmax")(L.GlobalAveragePooling2D()(x)))


def densenet():
    inputs = keras.Input((12, 12, 3))
    x = block(inputs, 16)
    for _ in range(2):
        y = L.Activation("relu")(L.BatchNormalization()(x))
        y = L.Conv2D(24, 1, use_bias=False)(y)
        y = L.Activation("relu")(L.BatchNormalization()(y))
        x = L.Concatenate()([x, L.Conv2D(8, 3, padding="same", use_bias=False)(y)])
    x = L.Activation("relu")(L.BatchNormalization()(x))
    x = L.AveragePooling2D(2)(L.Conv2D(16, 1)(x))
    return keras.Model(inputs, L.Dense(5, activation="softmax")(L.Flatten()(x)))


def mobilenet():
    """Inverted bottlenecks with depthwise convolutions, and squeeze-and-excitation with a Reshape."""
    inputs = keras.Input((12, 12, 3))
    x = block(inputs, 16)
    y = block(x, 32, kernel=1)
    y = L.DepthwiseConv2D(3, padding="same", use_bias=False)(y)
    y = L.ReLU(max_value=6.0)(L.BatchNormalization()(y))
    gate = L.Reshape((1, 1, 32))(L.GlobalAveragePooling2D()(y))
    gate = L.Conv2D(8, 1, activation="swish")(gate)
    y = L.Multiply()([y, L.Conv2D(32, 1, activation="sigmoid")(gate)])
    y = L.BatchNormalization()(L.Conv2D(16, 1, use_bias=False)(y))
    x = L.Add()([x, y])
    x = L.SeparableConv2D(24, 3, padding="same", activation="relu")(x)
    return keras.Model(inputs, L.Dense(5, activation="softmax")(L.GlobalAveragePooling2D()(x)))


def unet():
    inputs = keras.Input((16, 16, 3))
    a = block(inputs, 16)
    b = block(L.MaxPooling2D(2)(a), 32)
    c = block(L.MaxPooling2D(2)(b), 32)
    x = L.Conv2DTranspose(32, 2, strides=2, activation="relu")(c)
    x = block(L.Concatenate()([b, x]), 32)
    x = L.UpSampling2D(2)(x)
    x = block(L.Concatenate()([a, x]), 16)
    return keras.Model(inputs, L.Conv2D(2, 1, activation="sigmoid")(x))


def attention():
    """Embedded tokens, an attention block and a feed-forward block, with LayerNormalization."""
    inputs = keras.Input((10,), dtype="int32")
    x = L.Embedding(50, 32)(inputs)
    x = L.LayerNormalization()(L.Add()([x, L.MultiHeadAttention(4, 8)(x, x)]))
    y = L.Dense(32)(L.Dense(64, activation="gelu")(x))
    x = L.LayerNormalization()(L.Add()([x, y]))
    return keras.Model(inputs, L.Dense(5, activation="softmax")(L.GlobalAveragePooling1D()(x)))


def nested():
    """A nested model, grouped convolutions, and a decoder that makes a picture of a vector."""
    body = keras.Sequential([keras.Input((6, 6, 32)), L.Conv2D(32, 3, padding="same", groups=4, activation="relu"),
                             L.GroupNormalization(groups=-1), L.PReLU(shared_axes=[1, 2])], name="body")
    inputs = keras.Input((12, 12, 3))
    x = body(L.Conv2D(32, 3, strides=2, padding="same", activation="elu")(inputs))
    x = L.Flatten()(L.ZeroPadding2D()(L.MaxPooling2D(2)(x)))
    x = L.Dense(3 * 3 * 16, activation="relu")(x)
    x = L.Conv2DTranspose(24, 3, strides=2, padding="same", activation="tanh")(L.Reshape((3, 3, 16))(x))
    return keras.Model(inputs, L.Dense(5, activation="softmax")(L.GlobalMaxPooling2D()(x)))


def recurrent():
    inputs = keras.Input((8,), dtype="int32")
    x = L.Embedding(30, 16)(inputs)
    x = L.LSTM(32, return_sequences=True)(x)
    x = L.GRU(16)(x)
    return keras.Model(inputs, L.Dense(5, activation="softmax")(x))


MODELS = {f.__name__: f for f in (resnet, densenet, mobilenet, unet, attention, nested, recurrent)}


def build(name, rng):
    """The model, compiled, with moving statistics and scales that are not those of the start."""
    model = MODELS[name]()
    for layer in model._flatten_layers():
        if isinstance(layer, L.BatchNormalization):
            n = layer.gamma.shape[0]
            layer.set_weights([rng.uniform(0.5, 1.5, n), rng.normal(0, 0.3, n), rng.normal(0, 0.3, n),
                               rng.uniform(0.5, 1.5, n)])
        elif getattr(layer, "bias", None) is not None and hasattr(layer.bias, "assign"):
            layer.bias.assign(rng.normal(0, 0.2, layer.bias.shape))
    loss = "binary_crossentropy" if name == "unet" else "sparse_categorical_crossentropy"
    model.compile(optimizer=keras.optimizers.Adam(1e-3), loss=loss, jit_compile=False)
    return model


def batch(model, rng, samples=8):
    if model.inputs[0].dtype == "int32":
        x = rng.integers(0, 30, (samples, *model.input_shape[1:])).astype("int32")
    else:
        x = rng.normal(0, 1, (samples, *model.input_shape[1:])).astype("float32")
    if len(model.output_shape) > 2:
        return x, rng.integers(0, 2, (samples, *model.output_shape[1:])).astype("float32")
    return x, rng.integers(0, model.output_shape[-1], samples).astype("int32")
