"""After keras.io/examples/vision/conv_lstm: the next frame of a video."""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)
dataset = (rng.random((12, 6, 16, 16, 1)) > 0.8).astype("float32")


def create_shifted_frames(data):
    return data[:, 0 : data.shape[1] - 1], data[:, 1 : data.shape[1]]


x_train, y_train = create_shifted_frames(dataset[:8])
x_val, y_val = create_shifted_frames(dataset[8:])

inp = layers.Input(shape=(None, *x_train.shape[2:]))
x = layers.ConvLSTM2D(filters=8, kernel_size=(5, 5), padding="same", return_sequences=True, activation="relu")(inp)
x = layers.BatchNormalization()(x)
x = layers.ConvLSTM2D(filters=8, kernel_size=(3, 3), padding="same", return_sequences=True, activation="relu")(x)
x = layers.BatchNormalization()(x)
x = layers.ConvLSTM2D(filters=8, kernel_size=(1, 1), padding="same", return_sequences=True, activation="relu")(x)
x = layers.Conv3D(filters=1, kernel_size=(3, 3, 3), activation="sigmoid", padding="same")(x)
model = keras.models.Model(inp, x)
model.compile(loss=keras.losses.binary_crossentropy, optimizer=keras.optimizers.Adam())
model.fit(x_train, y_train, batch_size=4, epochs=2, validation_data=(x_val, y_val), shuffle=False, verbose=2,
          callbacks=[keras.callbacks.EarlyStopping(monitor="val_loss", patience=10), keras.callbacks.ReduceLROnPlateau(monitor="val_loss", patience=5)])
