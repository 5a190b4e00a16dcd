"""After keras.io/examples/vision/mixup: samples are mixed in tf.data, before the model."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)
x, y = rng.random((64, 28, 28, 1)).astype("float32"), tf.one_hot(rng.integers(0, 10, 64), 10)
two = [tf.data.Dataset.from_tensor_slices((x, y)).batch(16) for _ in range(2)]


def mix_up(one, two):
    (images_one, labels_one), (images_two, labels_two) = one, two
    return images_one * 0.7 + images_two[::-1] * 0.3, labels_one * 0.7 + labels_two[::-1] * 0.3


train = tf.data.Dataset.zip(tuple(two)).map(mix_up)
model = keras.Sequential([
    layers.Input(shape=(28, 28, 1)),
    layers.Conv2D(64, (5, 5), (2, 2), activation="relu"),
    layers.Conv2D(64, (5, 5), (2, 2), activation="relu"),
    layers.Dropout(0.3),
    layers.GlobalAveragePooling2D(),
    layers.Dense(128, activation="relu"),
    layers.Dense(10, activation="softmax"),
])
model.compile(loss="categorical_crossentropy", optimizer="adam", metrics=["accuracy"])
model.fit(train, epochs=2, verbose=2)
