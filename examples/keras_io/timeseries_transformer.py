"""After keras.io/examples/timeseries/timeseries_classification_transformer."""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)


def transformer_encoder(inputs, head_size, num_heads, ff_dim, dropout=0):
    x = layers.MultiHeadAttention(key_dim=head_size, num_heads=num_heads)(inputs, inputs)
    res = layers.LayerNormalization(epsilon=1e-6)(layers.Dropout(dropout)(x)) + inputs
    x = layers.Dropout(dropout)(layers.Conv1D(filters=ff_dim, kernel_size=1, activation="relu")(res))
    x = layers.Conv1D(filters=inputs.shape[-1], kernel_size=1)(x)
    return layers.LayerNormalization(epsilon=1e-6)(x) + res


inputs = keras.Input(shape=(60, 1))
x = inputs
for _ in range(2):
    x = transformer_encoder(x, 16, 2, 4, 0.25)
x = layers.GlobalAveragePooling1D(data_format="channels_last")(x)
x = layers.Dropout(0.4)(layers.Dense(32, activation="relu")(x))
model = keras.Model(inputs, layers.Dense(2, activation="softmax")(x))
model.compile(loss="sparse_categorical_crossentropy", optimizer=keras.optimizers.Adam(learning_rate=1e-4),
              metrics=["sparse_categorical_accuracy"])
model.fit(rng.standard_normal((64, 60, 1)).astype("float32"), rng.integers(0, 2, 64), validation_split=0.2, epochs=2, batch_size=16,
          callbacks=[keras.callbacks.EarlyStopping(patience=10, restore_best_weights=True)], shuffle=False, verbose=2)
