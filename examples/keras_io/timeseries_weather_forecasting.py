"""After keras.io/examples/timeseries/timeseries_weather_forecasting: windows of measurements, read by an LSTM."""

import os
import tempfile

import keras
import numpy as np

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)
past, future, step, batch_size = 72, 12, 6, 32
features = rng.normal(size=(480, 7))  # pressure, temperature, ...
train_data, val_data = features[:300], features[300:]
sequence_length = int(past / step)


def windows(data):
    x = data[: len(data) - past - future]
    y = data[past + future :, 1:2]
    return keras.preprocessing.timeseries_dataset_from_array(x, y, sequence_length=sequence_length, sampling_rate=step, batch_size=batch_size)


dataset_train, dataset_val = windows(train_data), windows(val_data)
for batch in dataset_train.take(1):
    inputs, targets = batch
inputs = keras.layers.Input(shape=(inputs.shape[1], inputs.shape[2]))
lstm_out = keras.layers.LSTM(32)(inputs)
outputs = keras.layers.Dense(1)(lstm_out)
model = keras.Model(inputs=inputs, outputs=outputs)
model.compile(optimizer=keras.optimizers.Adam(learning_rate=0.001), loss="mse")
with tempfile.TemporaryDirectory() as folder:
    es_callback = keras.callbacks.EarlyStopping(monitor="val_loss", min_delta=0, patience=5)
    modelckpt_callback = keras.callbacks.ModelCheckpoint(monitor="val_loss", filepath=os.path.join(folder, "model_checkpoint.weights.h5"), verbose=1,
                                                         save_weights_only=True, save_best_only=True)
    model.fit(dataset_train, epochs=2, validation_data=dataset_val, callbacks=[es_callback, modelckpt_callback], verbose=2)
