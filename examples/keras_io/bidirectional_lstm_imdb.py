"""After keras.io/examples/nlp/bidirectional_lstm_imdb: two bidirectional LSTMs on sequences of words."""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)
inputs = keras.Input(shape=(30,), dtype="int32")
x = layers.Embedding(2000, 32)(inputs)
x = layers.Bidirectional(layers.LSTM(16, return_sequences=True))(x)
x = layers.Bidirectional(layers.LSTM(16))(x)
model = keras.Model(inputs, layers.Dense(1, activation="sigmoid")(x))
model.compile(optimizer="adam", loss="binary_crossentropy", metrics=["accuracy"])
model.fit(rng.integers(0, 2000, (64, 30)), rng.integers(0, 2, 64), batch_size=32, epochs=2, shuffle=False, verbose=2)
