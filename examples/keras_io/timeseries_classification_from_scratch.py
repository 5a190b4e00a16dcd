"""After keras.io/examples/timeseries/timeseries_classification_from_scratch: a fully convolutional network."""

import keras
import numpy as np

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)
x_train, y_train = rng.standard_normal((96, 100, 1)).astype("float32"), rng.integers(0, 2, 96)

input_layer = keras.layers.Input((100, 1))
x = input_layer
for _ in range(3):
    x = keras.layers.Conv1D(filters=32, kernel_size=3, padding="same")(x)
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.ReLU()(x)
output_layer = keras.layers.Dense(2, activation="softmax")(keras.layers.GlobalAveragePooling1D()(x))
model = keras.models.Model(inputs=input_layer, outputs=output_layer)
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["sparse_categorical_accuracy"])
model.fit(x_train, y_train, batch_size=32, epochs=2, validation_split=0.25, shuffle=False, verbose=2, callbacks=[
    keras.callbacks.ReduceLROnPlateau(monitor="val_loss", factor=0.5, patience=20, min_lr=0.0001),
    keras.callbacks.EarlyStopping(monitor="val_loss", patience=50, verbose=1)])
