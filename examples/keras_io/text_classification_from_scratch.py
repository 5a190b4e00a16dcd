"""After keras.io/examples/nlp/text_classification_from_scratch: from raw strings to a class."""

import re
import string

import keras
import numpy as np
import tensorflow as tf
from keras import layers

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)
max_features, embedding_dim, sequence_length = 200, 32, 60

words = np.array([f"word{i}" for i in range(150)])
texts = [" ".join(rng.choice(words, rng.integers(20, 80))) + ".<br />" for _ in range(96)]
raw_train_ds = tf.data.Dataset.from_tensor_slices((texts, rng.integers(0, 2, 96))).batch(32)


def custom_standardization(input_data):
    lowercase = tf.strings.lower(input_data)
    stripped_html = tf.strings.regex_replace(lowercase, "<br />", " ")
    return tf.strings.regex_replace(stripped_html, f"[{re.escape(string.punctuation)}]", "")


vectorize_layer = keras.layers.TextVectorization(standardize=custom_standardization, max_tokens=max_features, output_mode="int",
                                                 output_sequence_length=sequence_length)
vectorize_layer.adapt(raw_train_ds.map(lambda x, y: x))


def vectorize_text(text, label):
    return vectorize_layer(tf.expand_dims(text, -1)), label


train_ds = raw_train_ds.map(vectorize_text).cache().prefetch(buffer_size=10)

inputs = keras.Input(shape=(None,), dtype="int64")
x = layers.Embedding(max_features, embedding_dim)(inputs)
x = layers.Dropout(0.5)(x)
x = layers.Conv1D(32, 7, padding="valid", activation="relu", strides=3)(x)
x = layers.Conv1D(32, 7, padding="valid", activation="relu", strides=3)(x)
x = layers.GlobalMaxPooling1D()(x)
x = layers.Dense(32, activation="relu")(x)
x = layers.Dropout(0.5)(x)
predictions = layers.Dense(1, activation="sigmoid", name="predictions")(x)
model = keras.Model(inputs, predictions)
model.compile(loss="binary_crossentropy", optimizer="adam", metrics=["accuracy"])
model.fit(train_ds, validation_data=train_ds, epochs=2, verbose=2)
end_to_end = keras.Model(text := keras.Input(shape=(1,), dtype="string"), model(vectorize_layer(text)))
end_to_end.compile(loss="binary_crossentropy", optimizer="adam", metrics=["accuracy"])
end_to_end.evaluate(raw_train_ds, verbose=2)
