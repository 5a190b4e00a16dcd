"""After keras.io/examples/nlp/pretrained_word_embeddings: an embedding that is given and not trained."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)
words = [f"word{i}" for i in range(150)]
samples = [" ".join(rng.choice(words, 120)) for _ in range(64)]
labels = rng.integers(0, 20, 64)

vectorizer = layers.TextVectorization(max_tokens=200, output_sequence_length=150)
vectorizer.adapt(tf.data.Dataset.from_tensor_slices(samples).batch(32))
word_index = {word: i for i, word in enumerate(vectorizer.get_vocabulary())}
num_tokens, embedding_dim = len(word_index) + 2, 40
embedding_matrix = np.zeros((num_tokens, embedding_dim))
for word, i in word_index.items():
    if word.startswith("word"):
        embedding_matrix[i] = rng.normal(0, 0.3, embedding_dim)

embedding_layer = layers.Embedding(num_tokens, embedding_dim, trainable=False)
embedding_layer.build((1,))
embedding_layer.set_weights([embedding_matrix])
int_sequences_input = keras.Input(shape=(None,), dtype="int32")
x = embedding_layer(int_sequences_input)
x = layers.Conv1D(32, 5, activation="relu")(x)
x = layers.MaxPooling1D(5)(x)
x = layers.Conv1D(32, 5, activation="relu")(x)
x = layers.MaxPooling1D(5)(x)
x = layers.GlobalMaxPooling1D()(x)
x = layers.Dense(32, activation="relu")(x)
x = layers.Dropout(0.5)(x)
model = keras.Model(int_sequences_input, layers.Dense(20, activation="softmax")(x))
x_train = vectorizer(np.array([[s] for s in samples])).numpy()
model.compile(loss="sparse_categorical_crossentropy", optimizer="rmsprop", metrics=["acc"])
model.fit(x_train, labels, batch_size=16, epochs=2, validation_data=(x_train, labels), shuffle=False, verbose=2)
