"""After keras.io/examples/vision/oxford_pets_image_segmentation: a small U-Net like Xception."""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)
inputs = keras.Input(shape=(32, 32, 3))
x = layers.Activation("relu")(layers.BatchNormalization()(layers.Conv2D(16, 3, strides=2, padding="same")(inputs)))
previous = x
for filters in [32, 64]:
    for _ in range(2):
        x = layers.SeparableConv2D(filters, 3, padding="same")(layers.Activation("relu")(x))
        x = layers.BatchNormalization()(x)
    x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
    x = layers.add([x, layers.Conv2D(filters, 1, strides=2, padding="same")(previous)])
    previous = x
for filters in [64, 32, 16]:
    for _ in range(2):
        x = layers.BatchNormalization()(layers.Conv2DTranspose(filters, 3, padding="same")(layers.Activation("relu")(x)))
    x = layers.UpSampling2D(2)(x)
    x = layers.add([x, layers.Conv2D(filters, 1, padding="same")(layers.UpSampling2D(2)(previous))])
    previous = x
model = keras.Model(inputs, layers.Conv2D(3, 3, activation="softmax", padding="same")(x))
model.compile(optimizer=keras.optimizers.Adam(1e-4), loss="sparse_categorical_crossentropy")
model.fit(rng.random((32, 32, 32, 3)).astype("float32"), rng.integers(0, 3, (32, 32, 32, 1)), batch_size=16, epochs=2, shuffle=False, verbose=2)
