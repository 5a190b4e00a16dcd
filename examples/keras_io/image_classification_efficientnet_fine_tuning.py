"""After keras.io/examples/vision/image_classification_efficientnet_fine_tuning: a new head on a frozen EfficientNetB0."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers
from keras.applications import EfficientNetB0

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)
IMG_SIZE, NUM_CLASSES, BATCH_SIZE = 64, 12, 8

img_augmentation_layers = [
    layers.RandomRotation(factor=0.15), layers.RandomTranslation(height_factor=0.1, width_factor=0.1), layers.RandomFlip(),
    layers.RandomContrast(factor=0.1)]


def img_augmentation(images):
    for layer in img_augmentation_layers:
        images = layer(images)
    return images


def input_preprocess_train(image, label):
    return img_augmentation(image), tf.one_hot(label, NUM_CLASSES)


images, labels = (rng.random((16, IMG_SIZE, IMG_SIZE, 3)) * 255).astype("float32"), rng.integers(0, NUM_CLASSES, 16)
ds_train = tf.data.Dataset.from_tensor_slices((images, labels)).map(input_preprocess_train).batch(BATCH_SIZE, drop_remainder=True)

inputs = layers.Input(shape=(IMG_SIZE, IMG_SIZE, 3))
base = EfficientNetB0(include_top=False, input_tensor=inputs, weights=None)
base.trainable = False
x = layers.GlobalAveragePooling2D(name="avg_pool")(base.output)
x = layers.BatchNormalization()(x)
x = layers.Dropout(0.2, name="top_dropout")(x)
outputs = layers.Dense(NUM_CLASSES, activation="softmax", name="pred")(x)
model = keras.Model(inputs, outputs, name="EfficientNet")
model.compile(optimizer=keras.optimizers.Adam(learning_rate=1e-2), loss="categorical_crossentropy", metrics=["accuracy"])
model.fit(ds_train, epochs=2, verbose=2)
