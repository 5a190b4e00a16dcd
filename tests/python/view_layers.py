"""Layers that move the batch, or put parts of a sample into it, as published code does."""

import keras
import tensorflow as tf
from keras import ops

L = keras.layers


class Qkv(L.Layer):
    """Queries, keys and values from one Dense, with the batch as the second dimension on the way."""

    def __init__(self, heads=2, how="index", **named):
        super().__init__(**named)
        self.heads, self.how = heads, how

    def build(self, shape):
        self.qkv, self.project = L.Dense(3 * shape[-1]), L.Dense(shape[-1])
        self.qkv.build(shape)
        self.project.build(shape)
        self.built = True

    def call(self, x):
        b, n, c = ops.shape(x)
        made = ops.transpose(ops.reshape(self.qkv(x), (b, n, 3, self.heads, c // self.heads)), (2, 0, 3, 1, 4))
        if self.how == "index":
            q, k, v = made[0], made[1], made[2, ...]
        else:
            q, k, v = tf.unstack(made, axis=0) if self.how == "tf" else ops.unstack(made, axis=0)
        scores = ops.softmax(q @ ops.transpose(k, (0, 1, 3, 2)) / ops.sqrt(float(c // self.heads)), axis=-1)
        return self.project(ops.reshape(ops.transpose(scores @ v, (0, 2, 1, 3)), (b, n, c)))


class Windows(L.Layer):
    """Windows of a picture in the place of samples: norms, a Dense, dropout in training, sums over axes, a bias per place."""

    def __init__(self, size=4, **named):
        super().__init__(**named)
        self.size = size

    def build(self, shape):
        self.norm, self.mix, self.drop = L.LayerNormalization(), L.Dense(shape[-1], activation="tanh"), L.Dropout(0.0)
        for layer in (self.norm, self.mix):
            layer.build((None, self.size**2, shape[-1]))
        self.bias = self.add_weight(name="bias", shape=(1, self.size**2, 1), initializer="ones")
        self.built = True

    def call(self, x, training=None):
        _, h, w, c = x.shape
        s = self.size
        parts = ops.transpose(ops.reshape(x, (-1, h // s, s, w // s, s, c)), (0, 1, 3, 2, 4, 5))
        parts = ops.reshape(parts, (-1, s * s, c))
        mean = ops.mean(parts, axis=1, keepdims=True)
        parts = self.drop(self.mix(self.norm(parts - mean)), training=training) * self.bias + ops.expand_dims(ops.max(parts, axis=1), 1)
        back = ops.transpose(ops.reshape(parts, (-1, h // s, w // s, s, s, c)), (0, 1, 3, 2, 4, 5))
        return ops.reshape(back, (-1, h, w, c))


class BatchMean(L.Layer):
    """Adds up windows of all samples: refused."""

    def call(self, x):
        parts = ops.reshape(x, (-1, 8))
        return x - ops.mean(parts, axis=0)


class HalfOfTheBatch(L.Layer):
    """Takes a part of the samples: refused."""

    def call(self, x):
        moved = ops.transpose(x, (1, 0, 2))
        return x + ops.reshape(moved[:, :1], (1, -1, x.shape[2]))
