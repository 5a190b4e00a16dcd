#!/usr/bin/env python3
"""Writes the architectures for the GPU benchmark as Keras JSON.

    bench/gpu/make_models.py [FOLDER [NAME...]]        default: build-models, and the models of bench/gpu/run.sh

resnet50 is torchvision's network (stride in the 3x3 convolution, no bias before BatchNormalization, 1,000 logits), so that both sides do
the same work. The seed models are those of bench/gpu/peers.py. The others are models of keras.applications at their own input size,
which do the same work as torchvision's of the same name up to padding and biases, and a U-Net. A NAME is one of these, or any other
class of keras.applications (NASNetMobile).
"""

import pathlib
import sys

import keras
from keras import layers


def convolution(x, filters, size, stride, name, activate=True):
    # Keras's "same" padding equals torchvision's only if the stride is 1.
    if size > 1 and stride > 1:
        x = layers.ZeroPadding2D(size // 2, name=f"{name}_pad")(x)
    padding = "same" if stride == 1 else "valid"
    x = layers.Conv2D(filters, size, strides=stride, padding=padding, use_bias=False, name=f"{name}_conv")(x)
    x = layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name=f"{name}_bn")(x)
    return layers.ReLU(name=f"{name}_relu")(x) if activate else x


def bottleneck(x, filters, stride, name):
    shortcut = x
    if stride != 1 or x.shape[-1] != 4 * filters:
        shortcut = convolution(x, 4 * filters, 1, stride, f"{name}_0", activate=False)
    y = convolution(x, filters, 1, 1, f"{name}_1")
    y = convolution(y, filters, 3, stride, f"{name}_2")
    y = convolution(y, 4 * filters, 1, 1, f"{name}_3", activate=False)
    return layers.ReLU(name=f"{name}_out")(layers.Add(name=f"{name}_add")([y, shortcut]))


def resnet50():
    inputs = keras.Input((224, 224, 3))
    x = convolution(inputs, 64, 7, 2, "stem")
    x = layers.ZeroPadding2D(1, name="pool_pad")(x)
    x = layers.MaxPooling2D(3, strides=2, name="pool")(x)
    for stage, (filters, blocks) in enumerate([(64, 3), (128, 4), (256, 6), (512, 3)]):
        for block in range(blocks):
            x = bottleneck(x, filters, 2 if stage > 0 and block == 0 else 1, f"stage{stage}_{block}")
    x = layers.GlobalAveragePooling2D(name="average")(x)
    return keras.Model(inputs, layers.Dense(1000, activation="softmax", name="head")(x), name="resnet50")


def seed(size, filters):
    inputs = keras.Input((size, size, 3))
    x = inputs
    for f in filters:
        x = layers.MaxPooling2D()(layers.Conv2D(f, 3, activation="relu")(x))
    return keras.Model(inputs, layers.Dense(10, activation="softmax")(layers.Flatten()(x)), name=f"seed{size}")


def unet(size=256, filters=(64, 128, 256, 512, 1024)):
    """Two 3x3 convolutions with BatchNormalization per level, transposed convolutions upwards, one logit per pixel and class."""

    def level(x, f, name):
        return convolution(convolution(x, f, 3, 1, f"{name}a"), f, 3, 1, f"{name}b")

    inputs = keras.Input((size, size, 3))
    x, skips = inputs, []
    for i, f in enumerate(filters[:-1]):
        x = level(x, f, f"down{i}")
        skips.append(x)
        x = layers.MaxPooling2D()(x)
    x = level(x, filters[-1], "bottom")
    for i, (f, skip) in enumerate(zip(filters[-2::-1], skips[::-1])):
        x = layers.Concatenate()([skip, layers.Conv2DTranspose(f, 2, strides=2)(x)])
        x = level(x, f, f"up{i}")
    return keras.Model(inputs, layers.Conv2D(2, 1, activation="softmax")(x), name="unet")


def recurrent(layer, name, length=256, units=1024):
    """Two recurrent layers over embedded tokens; the output of the last step is classified."""
    inputs = keras.Input((length,), dtype="int32")
    x = layers.Embedding(10000, 256)(inputs)
    x = layer(units)(layer(units, return_sequences=True)(x))
    return keras.Model(inputs, layers.Dense(10, activation="softmax")(x), name=name)


def application(name):
    def make():
        model = getattr(keras.applications, name)(weights=None)
        if None in model.input_shape[1:]:  # MobileNetV3 takes any size; it was published for this one
            model = getattr(keras.applications, name)(weights=None, input_shape=(224, 224, 3))
        return model

    return make


MODELS = {
    "resnet50": resnet50,
    "seed64": lambda: seed(64, [32]),
    "seed128": lambda: seed(128, [32, 64]),
    "unet": unet,
    "lstm": lambda: recurrent(layers.LSTM, "lstm"),
    "gru": lambda: recurrent(layers.GRU, "gru"),
    "mobilenetv2": application("MobileNetV2"),
    "mobilenetv3": application("MobileNetV3Large"),
    "efficientnetb0": application("EfficientNetB0"),
    "densenet121": application("DenseNet121"),
    "vgg16": application("VGG16"),
    "convnexttiny": application("ConvNeXtTiny"),
}


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build-models")
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or MODELS:
        model = MODELS.get(name, application(name))()
        (folder / f"{name}.json").write_text(model.to_json())
        print(folder / f"{name}.json", f"{model.count_params():,} parameters")


if __name__ == "__main__":
    main()
