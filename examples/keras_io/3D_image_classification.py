"""After keras.io/examples/vision/3D_image_classification: scans in three dimensions."""

import os
import tempfile

import keras
import numpy as np
import tensorflow as tf
from keras import layers

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)


def rescale(volume, label):
    return tf.expand_dims((volume + 1000.0) / 1400.0, axis=3), label


x = (rng.random((24, 32, 32, 16)) * 1400 - 1000).astype("float32")
y = (np.arange(24) % 2).astype("float32")
train_dataset = tf.data.Dataset.from_tensor_slices((x[:16], y[:16])).map(rescale).batch(2).prefetch(2)
validation_dataset = tf.data.Dataset.from_tensor_slices((x[16:], y[16:])).map(rescale).batch(2).prefetch(2)

inputs = keras.Input((32, 32, 16, 1))
h = inputs
for filters in (8, 8, 16):
    h = layers.Conv3D(filters=filters, kernel_size=3, activation="relu", padding="same")(h)
    h = layers.MaxPool3D(pool_size=2)(h)
    h = layers.BatchNormalization()(h)
h = layers.GlobalAveragePooling3D()(h)
h = layers.Dense(units=32, activation="relu")(h)
h = layers.Dropout(0.3)(h)
model = keras.Model(inputs, layers.Dense(units=1, activation="sigmoid")(h), name="3dcnn")
schedule = keras.optimizers.schedules.ExponentialDecay(0.0001, decay_steps=100000, decay_rate=0.96, staircase=True)
model.compile(loss="binary_crossentropy", optimizer=keras.optimizers.Adam(learning_rate=schedule), metrics=["acc"], run_eagerly=False)
with tempfile.TemporaryDirectory() as folder:
    model.fit(train_dataset, validation_data=validation_dataset, epochs=2, shuffle=True, verbose=2, callbacks=[
        keras.callbacks.ModelCheckpoint(os.path.join(folder, "3d_image_classification.keras"), save_best_only=True),
        keras.callbacks.EarlyStopping(monitor="val_acc", patience=15)])
