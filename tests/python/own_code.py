"""Layers, models, losses and metrics as users write them."""

import keras
from keras import ops

L = keras.layers


class SqueezeExcite(L.Layer):
    """Layers of Keras inside a layer."""

    def __init__(self, ratio=4, **named):
        super().__init__(**named)
        self.ratio = ratio

    def build(self, shape):
        self.pool = L.GlobalAveragePooling2D()
        self.squeeze, self.excite = L.Dense(shape[-1] // self.ratio, activation="relu"), L.Dense(shape[-1], activation="sigmoid")
        self.squeeze.build((shape[0], shape[-1]))
        self.excite.build((shape[0], shape[-1] // self.ratio))
        self.built = True

    def call(self, x):
        w = self.excite(self.squeeze(self.pool(x)))
        return x * ops.reshape(w, [-1, 1, 1, ops.shape(w)[-1]])


class CausalAttention(L.Layer):
    """Weights of its own, einsum, and a mask that is a constant."""

    def __init__(self, heads=4, dim=8, **named):
        super().__init__(**named)
        self.heads, self.dim = heads, dim

    def build(self, shape):
        c = shape[-1]
        self.projections = [self.add_weight(name=n, shape=(c, self.heads, self.dim), initializer="glorot_uniform") for n in "qkv"]
        self.out = self.add_weight(name="o", shape=(self.heads, self.dim, c), initializer="glorot_uniform")

    def call(self, x):
        q, k, v = (ops.einsum("btc,chd->bthd", x, w) for w in self.projections)
        scores = ops.einsum("bqhd,bkhd->bhqk", q, k) / ops.sqrt(ops.cast(self.dim, x.dtype))
        t = ops.shape(x)[1]
        scores = ops.where(ops.tril(ops.ones((t, t)))[None, None] > 0, scores, -1e9)
        return ops.einsum("bthd,hdc->btc", ops.einsum("bhqk,bkhd->bqhd", ops.softmax(scores, axis=-1), v), self.out)


class WeightNormDense(L.Layer):
    """A function of weights alone, and a scalar weight."""

    def __init__(self, units, **named):
        super().__init__(**named)
        self.units = units

    def build(self, shape):
        self.v = self.add_weight(name="v", shape=(shape[-1], self.units), initializer="glorot_uniform", regularizer="l2")
        self.g = self.add_weight(name="g", shape=(self.units,), initializer="ones")
        self.temperature = self.add_weight(name="temperature", shape=(), initializer="ones")

    def call(self, x):
        w = self.v * self.g / ops.sqrt(ops.sum(ops.square(self.v), axis=0))
        return ops.matmul(x, w) / (1 + ops.exp(self.temperature))


class Patches(L.Layer):
    """A class token that is repeated for each sample, and positions from an Embedding that is called on a constant."""

    def __init__(self, dim, **named):
        super().__init__(**named)
        self.dim = dim

    def build(self, shape):
        self.token = self.add_weight(name="token", shape=(1, 1, self.dim), initializer="normal")
        self.project = L.Dense(self.dim)
        self.position = L.Embedding(shape[1] + 1, self.dim)
        self.project.build(shape)
        self.position.build(None)

    def call(self, x):
        n = ops.shape(x)[0]
        x = ops.concatenate([ops.broadcast_to(self.token, (n, 1, self.dim)), self.project(x)], axis=1)
        return x + self.position(ops.arange(0, ops.shape(x)[1]))


class NoiseInTraining(L.Layer):
    """It computes something else in training than otherwise."""

    def call(self, x, training=None):
        return 2 * x + keras.random.normal(ops.shape(x), stddev=0.1, seed=1) if training else x


class Residual(L.Layer):
    def __init__(self, dim, **named):
        super().__init__(**named)
        self.body = keras.Sequential([L.Dense(dim, activation="gelu"), L.LayerNormalization()])
        self.norm = L.BatchNormalization()

    def call(self, x, training=None):
        return self.norm(x + self.body(x), training=training)


class Subclassed(keras.Model):
    """Layers in lists, a loop, and an activation that is a function."""

    def __init__(self, classes=4, dim=16, depth=2):
        super().__init__()
        self.first = L.Dense(dim, activation=lambda x: ops.tanh(x) * 1.1)
        self.blocks = [Residual(dim) for _ in range(depth)]
        self.last = L.Dense(classes)

    def call(self, x, training=False):
        x = self.first(x)
        for block in self.blocks:
            x = block(x, training=training)
        return ops.softmax(self.last(x))


class Focal(keras.losses.Loss):
    def __init__(self, gamma=2.0):
        super().__init__(name="focal")
        self.gamma = gamma

    def call(self, y_true, y_pred):
        y = ops.one_hot(ops.cast(ops.reshape(y_true, (-1,)), "int32"), y_pred.shape[-1])
        p = ops.clip(y_pred, 1e-7, 1 - 1e-7)
        return ops.sum(-y * ops.power(1 - p, self.gamma) * ops.log(p), axis=-1)


def huber(y_true, y_pred):
    a = ops.abs(y_true - y_pred)
    return ops.mean(ops.where(a < 1, 0.5 * ops.square(a), a - 0.5), axis=-1)


def one_number(y_true, y_pred):
    return 0.5 * ops.mean(ops.square(y_true - y_pred)) + ops.mean(ops.abs(y_true - y_pred)) / 4


def soft_dice(y_true, y_pred):
    y, p = (ops.reshape(t, [ops.shape(t)[0], -1]) for t in (y_true, y_pred))
    return 1 - (2 * ops.sum(y * p, axis=1) + 1) / (ops.sum(y, axis=1) + ops.sum(p, axis=1) + 1)


def near(y_true, y_pred):
    return ops.mean(ops.cast(ops.abs(y_true - y_pred) < 0.5, "float32"), axis=-1)


class InTensorFlow(L.Layer):
    """Raw functions of TensorFlow."""

    def __init__(self, units=16, **named):
        super().__init__(**named)
        self.units = units

    def build(self, shape):
        self.w = self.add_weight(name="w", shape=(shape[-1], 2 * self.units), initializer="glorot_uniform")
        self.b = self.add_weight(name="b", shape=(2 * self.units,), initializer="zeros")

    def call(self, x):
        import tensorflow as tf

        a, b = tf.split(tf.matmul(x, self.w) + self.b, 2, axis=-1)
        y = a * tf.nn.sigmoid(b)
        mean, variance = tf.nn.moments(y, axes=[-1], keepdims=True)
        return tf.nn.l2_normalize((y - mean) * tf.math.rsqrt(variance + 1e-6), axis=-1)


def weighted_in_tensorflow(y_true, y_pred):
    import tensorflow as tf

    e = y_true - y_pred
    a = tf.abs(e)
    q = tf.minimum(a, 1.0)
    w = tf.where(y_true > 0, 2.0, 1.0)
    return tf.reduce_sum(w * (0.5 * tf.square(q) + (a - q)), axis=-1) / tf.reduce_sum(w, axis=-1)


class MaskedSequence(L.Layer):
    """It gives an LSTM a mask, which must not get lost."""

    def __init__(self, **named):
        super().__init__(**named)
        self.embedding, self.lstm = L.Embedding(20, 8), L.LSTM(6)

    def build(self, shape):
        self.embedding.build(shape)
        self.lstm.build((None, shape[1], 8))
        self.built = True

    def call(self, ids):
        return self.lstm(self.embedding(ids), mask=ops.not_equal(ids, 0))
