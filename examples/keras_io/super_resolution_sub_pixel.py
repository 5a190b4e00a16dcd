"""After keras.io/examples/vision/super_resolution_sub_pixel: depth to space, written as a layer."""

import keras
import numpy as np
from keras import layers, ops

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)


class DepthToSpace(layers.Layer):
    def __init__(self, block_size):
        super().__init__()
        self.block_size = block_size

    def call(self, inputs):
        batch, height, width, depth = ops.shape(inputs)
        depth = depth // (self.block_size**2)
        x = ops.reshape(inputs, [batch, height, width, self.block_size, self.block_size, depth])
        x = ops.transpose(x, [0, 1, 3, 2, 4, 5])
        return ops.reshape(x, [batch, height * self.block_size, width * self.block_size, depth])


inputs = keras.Input(shape=(24, 24, 1))
x = layers.Conv2D(32, 5, activation="relu", kernel_initializer="orthogonal", padding="same")(inputs)
x = layers.Conv2D(32, 3, activation="relu", kernel_initializer="orthogonal", padding="same")(x)
x = layers.Conv2D(9, 3, activation="relu", kernel_initializer="orthogonal", padding="same")(x)
model = keras.Model(inputs, DepthToSpace(3)(x))
model.compile(optimizer=keras.optimizers.Adam(learning_rate=0.001), loss=keras.losses.MeanSquaredError())
model.fit(rng.random((32, 24, 24, 1)).astype("float32"), rng.random((32, 72, 72, 1)).astype("float32"), batch_size=8, epochs=2,
          callbacks=[keras.callbacks.EarlyStopping(monitor="loss", patience=10)], shuffle=False, verbose=2)
