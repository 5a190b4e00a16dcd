"""After keras.io/examples/timeseries/timeseries_anomaly_detection: a convolutional autoencoder of a time series."""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)
TIME_STEPS = 72
values = np.sin(np.arange(300) / 20) + rng.normal(0, 0.1, 300)
x_train = np.stack([values[i : i + TIME_STEPS, None] for i in range(len(values) - TIME_STEPS + 1)])

model = keras.Sequential([
    layers.Input(shape=(x_train.shape[1], x_train.shape[2])),
    layers.Conv1D(filters=32, kernel_size=7, padding="same", strides=2, activation="relu"),
    layers.Dropout(rate=0.2),
    layers.Conv1D(filters=16, kernel_size=7, padding="same", strides=2, activation="relu"),
    layers.Conv1DTranspose(filters=16, kernel_size=7, padding="same", strides=2, activation="relu"),
    layers.Dropout(rate=0.2),
    layers.Conv1DTranspose(filters=32, kernel_size=7, padding="same", strides=2, activation="relu"),
    layers.Conv1DTranspose(filters=1, kernel_size=7, padding="same"),
])
model.compile(optimizer=keras.optimizers.Adam(learning_rate=0.001), loss="mse")
model.fit(x_train, x_train, epochs=2, batch_size=64, validation_split=0.1, shuffle=False, verbose=2,
          callbacks=[keras.callbacks.EarlyStopping(monitor="val_loss", patience=5, mode="min")])
train_mae_loss = np.mean(np.abs(model.predict(x_train, verbose=0) - x_train), axis=1)
print("Reconstruction error threshold:", np.max(train_mae_loss))
