"""After keras.io/examples/structured_data/collaborative_filtering_movielens: a subclassed model of embeddings and biases.

The page's code computes ops.tensordot(users, movies, 2), which adds up the products of all samples of a batch. Here each sample has
its own product.
"""

import keras
import numpy as np
from keras import layers, ops

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)
num_users, num_movies = 60, 90


class RecommenderNet(keras.Model):
    def __init__(self, num_users, num_movies, embedding_size, **kwargs):
        super().__init__(**kwargs)
        table = {"embeddings_initializer": "he_normal", "embeddings_regularizer": keras.regularizers.l2(1e-6)}
        self.user_embedding = layers.Embedding(num_users, embedding_size, **table)
        self.user_bias = layers.Embedding(num_users, 1)
        self.movie_embedding = layers.Embedding(num_movies, embedding_size, **table)
        self.movie_bias = layers.Embedding(num_movies, 1)

    def call(self, inputs):
        user_vector, user_bias = self.user_embedding(inputs[:, 0]), self.user_bias(inputs[:, 0])
        movie_vector, movie_bias = self.movie_embedding(inputs[:, 1]), self.movie_bias(inputs[:, 1])
        x = ops.sum(user_vector * movie_vector, axis=1, keepdims=True) + user_bias + movie_bias
        return ops.nn.sigmoid(x)


x = np.stack([rng.integers(0, num_users, 256), rng.integers(0, num_movies, 256)], axis=1)
model = RecommenderNet(num_users, num_movies, 50)
model.compile(loss=keras.losses.BinaryCrossentropy(), optimizer=keras.optimizers.Adam(learning_rate=0.001))
model.fit(x, rng.random((256, 1)).astype("float32"), batch_size=64, epochs=2, shuffle=False, verbose=2)
