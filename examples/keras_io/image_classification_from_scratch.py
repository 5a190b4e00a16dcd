"""After keras.io/examples/vision/image_classification_from_scratch: a small Xception, pictures varied in the data pipeline."""

import os
import tempfile

import keras
import numpy as np
import tensorflow as tf
from keras import layers

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)
image_size = (48, 48)

data_augmentation_layers = [layers.RandomFlip("horizontal"), layers.RandomRotation(0.1)]


def data_augmentation(images):
    for layer in data_augmentation_layers:
        images = layer(images)
    return images


images = (rng.random((48, *image_size, 3)) * 255).astype("float32")
train_ds = tf.data.Dataset.from_tensor_slices((images, rng.integers(0, 2, 48))).batch(16)
val_ds = tf.data.Dataset.from_tensor_slices((images[:16], rng.integers(0, 2, 16))).batch(16)
train_ds = train_ds.map(lambda img, label: (data_augmentation(img), label)).prefetch(tf.data.AUTOTUNE)


def make_model(input_shape, num_classes):
    inputs = keras.Input(shape=input_shape)
    x = layers.Rescaling(1.0 / 255)(inputs)
    x = layers.Conv2D(16, 3, strides=2, padding="same")(x)
    x = layers.BatchNormalization()(x)
    x = layers.Activation("relu")(x)
    previous_block_activation = x
    for size in [24, 32]:
        x = layers.Activation("relu")(x)
        x = layers.SeparableConv2D(size, 3, padding="same")(x)
        x = layers.BatchNormalization()(x)
        x = layers.Activation("relu")(x)
        x = layers.SeparableConv2D(size, 3, padding="same")(x)
        x = layers.BatchNormalization()(x)
        x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
        residual = layers.Conv2D(size, 1, strides=2, padding="same")(previous_block_activation)
        x = layers.add([x, residual])
        previous_block_activation = x
    x = layers.SeparableConv2D(48, 3, padding="same")(x)
    x = layers.BatchNormalization()(x)
    x = layers.Activation("relu")(x)
    x = layers.GlobalAveragePooling2D()(x)
    units = 1 if num_classes == 2 else num_classes
    x = layers.Dropout(0.25)(x)
    return keras.Model(inputs, layers.Dense(units, activation=None)(x))


model = make_model(input_shape=image_size + (3,), num_classes=2)
with tempfile.TemporaryDirectory() as folder:
    callbacks = [keras.callbacks.ModelCheckpoint(os.path.join(folder, "save_at_{epoch}.keras"))]
    model.compile(optimizer=keras.optimizers.Adam(3e-4), loss=keras.losses.BinaryCrossentropy(from_logits=True),
                  metrics=[keras.metrics.BinaryAccuracy(name="acc")])
    model.fit(train_ds, epochs=2, callbacks=callbacks, validation_data=val_ds, verbose=2)
    keras.models.load_model(os.path.join(folder, "save_at_2.keras"))
