"""After keras.io/examples/vision/autoencoder: a convolutional autoencoder that removes noise."""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)
clean = rng.random((96, 28, 28, 1)).astype("float32")
noisy = np.clip(clean + 0.4 * rng.standard_normal(clean.shape), 0, 1).astype("float32")

inputs = layers.Input(shape=(28, 28, 1))
x = layers.Conv2D(32, (3, 3), activation="relu", padding="same")(inputs)
x = layers.MaxPooling2D((2, 2), padding="same")(x)
x = layers.Conv2D(32, (3, 3), activation="relu", padding="same")(x)
x = layers.MaxPooling2D((2, 2), padding="same")(x)
x = layers.Conv2DTranspose(32, (3, 3), strides=2, activation="relu", padding="same")(x)
x = layers.Conv2DTranspose(32, (3, 3), strides=2, activation="relu", padding="same")(x)
x = layers.Conv2D(1, (3, 3), activation="sigmoid", padding="same")(x)
autoencoder = keras.Model(inputs, x)
autoencoder.compile(optimizer="adam", loss="binary_crossentropy")
autoencoder.fit(x=noisy, y=clean, epochs=2, batch_size=32, shuffle=False, verbose=2)
