"""After keras.io/examples/vision/swin_transformers: attention in windows that are shifted, with stochastic depth."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)
num_classes, input_shape, patch_size, embed_dim, num_heads, num_mlp, window_size, shift_size, image_dimension = 10, (16, 16, 3), (2, 2), 16, 2, 32, 2, 1, 16
num_patch_x = num_patch_y = input_shape[0] // patch_size[0]


def window_partition(x, window_size):
    _, height, width, channels = x.shape
    patch_num_y, patch_num_x = height // window_size, width // window_size
    x = ops.reshape(x, (-1, patch_num_y, window_size, patch_num_x, window_size, channels))
    x = ops.transpose(x, (0, 1, 3, 2, 4, 5))
    return ops.reshape(x, (-1, window_size, window_size, channels))


def window_reverse(windows, window_size, height, width, channels):
    patch_num_y, patch_num_x = height // window_size, width // window_size
    x = ops.reshape(windows, (-1, patch_num_y, patch_num_x, window_size, window_size, channels))
    x = ops.transpose(x, (0, 1, 3, 2, 4, 5))
    return ops.reshape(x, (-1, height, width, channels))


class WindowAttention(layers.Layer):
    def __init__(self, dim, window_size, num_heads, qkv_bias=True, dropout_rate=0.0, **kwargs):
        super().__init__(**kwargs)
        self.dim, self.window_size, self.num_heads = dim, window_size, num_heads
        self.scale = (dim // num_heads) ** -0.5
        self.qkv = layers.Dense(dim * 3, use_bias=qkv_bias)
        self.dropout = layers.Dropout(dropout_rate)
        self.proj = layers.Dense(dim)
        elements = (2 * window_size[0] - 1) * (2 * window_size[1] - 1)
        self.relative_position_bias_table = self.add_weight(shape=(elements, num_heads), initializer=keras.initializers.Zeros(), trainable=True)
        coords = np.stack(np.meshgrid(np.arange(window_size[0]), np.arange(window_size[1]), indexing="ij")).reshape(2, -1)
        relative_coords = (coords[:, :, None] - coords[:, None, :]).transpose([1, 2, 0])
        relative_coords[:, :, 0] += window_size[0] - 1
        relative_coords[:, :, 1] += window_size[1] - 1
        relative_coords[:, :, 0] *= 2 * window_size[1] - 1
        self.relative_position_index = keras.Variable(initializer=relative_coords.sum(-1), shape=relative_coords.shape[:2], dtype="int", trainable=False)

    def call(self, x, mask=None):
        _, size, channels = x.shape
        head_dim = channels // self.num_heads
        x_qkv = ops.reshape(self.qkv(x), (-1, size, 3, self.num_heads, head_dim))
        x_qkv = ops.transpose(x_qkv, (2, 0, 3, 1, 4))
        q, k, v = x_qkv[0], x_qkv[1], x_qkv[2]
        attn = (q * self.scale) @ ops.transpose(k, (0, 1, 3, 2))
        num_window_elements = self.window_size[0] * self.window_size[1]
        flat = ops.reshape(self.relative_position_index, (-1,))
        bias = ops.take(self.relative_position_bias_table, flat, axis=0)
        bias = ops.transpose(ops.reshape(bias, (num_window_elements, num_window_elements, -1)), (2, 0, 1))
        attn = attn + ops.expand_dims(bias, axis=0)
        if mask is not None:
            nW = mask.shape[0]
            mask_float = ops.cast(ops.expand_dims(ops.expand_dims(mask, axis=1), axis=0), "float32")
            attn = ops.reshape(attn, (-1, nW, self.num_heads, size, size)) + mask_float
            attn = ops.reshape(attn, (-1, self.num_heads, size, size))
        attn = self.dropout(keras.activations.softmax(attn, axis=-1))
        x_qkv = ops.transpose(attn @ v, (0, 2, 1, 3))
        return self.dropout(self.proj(ops.reshape(x_qkv, (-1, size, channels))))


class SwinTransformer(layers.Layer):
    def __init__(self, dim, num_patch, num_heads, window_size=2, shift_size=0, num_mlp=32, dropout_rate=0.0, **kwargs):
        super().__init__(**kwargs)
        self.dim, self.num_patch, self.window_size, self.shift_size = dim, num_patch, window_size, shift_size
        self.norm1 = layers.LayerNormalization(epsilon=1e-5)
        self.attn = WindowAttention(dim, window_size=(window_size, window_size), num_heads=num_heads, dropout_rate=dropout_rate)
        self.drop_path = layers.Dropout(dropout_rate)
        self.norm2 = layers.LayerNormalization(epsilon=1e-5)
        self.mlp = keras.Sequential([layers.Dense(num_mlp), layers.Activation(keras.activations.gelu), layers.Dropout(dropout_rate), layers.Dense(dim)])

    def build(self, input_shape):
        if self.shift_size == 0:
            self.attn_mask = None
            return
        height, width = self.num_patch
        slices = (slice(0, -self.window_size), slice(-self.window_size, -self.shift_size), slice(-self.shift_size, None))
        mask_array, count = np.zeros((1, height, width, 1)), 0
        for h in slices:
            for w in slices:
                mask_array[:, h, w, :] = count
                count += 1
        mask_windows = window_partition(ops.convert_to_tensor(mask_array), self.window_size)
        mask_windows = ops.reshape(mask_windows, [-1, self.window_size * self.window_size])
        attn_mask = ops.expand_dims(mask_windows, axis=1) - ops.expand_dims(mask_windows, axis=2)
        attn_mask = ops.where(attn_mask != 0, -100.0, attn_mask)
        attn_mask = ops.where(attn_mask == 0, 0.0, attn_mask)
        self.attn_mask = keras.Variable(initializer=attn_mask, shape=attn_mask.shape, dtype=attn_mask.dtype, trainable=False)

    def call(self, x, training=False):
        height, width = self.num_patch
        _, num_patches_before, channels = x.shape
        x_skip = x
        x = ops.reshape(self.norm1(x), (-1, height, width, channels))
        shifted_x = ops.roll(x, shift=[-self.shift_size, -self.shift_size], axis=[1, 2]) if self.shift_size > 0 else x
        x_windows = ops.reshape(window_partition(shifted_x, self.window_size), (-1, self.window_size * self.window_size, channels))
        attn_windows = self.attn(x_windows, mask=self.attn_mask)
        attn_windows = ops.reshape(attn_windows, (-1, self.window_size, self.window_size, channels))
        shifted_x = window_reverse(attn_windows, self.window_size, height, width, channels)
        x = ops.roll(shifted_x, shift=[self.shift_size, self.shift_size], axis=[1, 2]) if self.shift_size > 0 else shifted_x
        x = x_skip + self.drop_path(ops.reshape(x, (-1, height * width, channels)), training=training)
        return x + self.drop_path(self.mlp(self.norm2(x)), training=training)


class PatchEmbedding(layers.Layer):
    def __init__(self, num_patch, embed_dim, **kwargs):
        super().__init__(**kwargs)
        self.num_patch = num_patch
        self.proj = layers.Dense(embed_dim)
        self.pos_embed = layers.Embedding(input_dim=num_patch, output_dim=embed_dim)

    def call(self, patch):
        return self.proj(patch) + self.pos_embed(ops.arange(start=0, stop=self.num_patch))


class PatchMerging(keras.layers.Layer):
    def __init__(self, num_patch, embed_dim):
        super().__init__()
        self.num_patch, self.embed_dim = num_patch, embed_dim
        self.linear_trans = layers.Dense(2 * embed_dim, use_bias=False)

    def call(self, x):
        height, width = self.num_patch
        _, _, C = x.shape
        x = ops.reshape(x, (-1, height, width, C))
        x0, x1, x2, x3 = x[:, 0::2, 0::2, :], x[:, 1::2, 0::2, :], x[:, 0::2, 1::2, :], x[:, 1::2, 1::2, :]
        x = ops.reshape(ops.concatenate((x0, x1, x2, x3), axis=-1), (-1, (height // 2) * (width // 2), 4 * C))
        return self.linear_trans(x)


def patch_extract(images):
    batch_size = tf.shape(images)[0]
    patches = tf.image.extract_patches(images=images, sizes=(1, *patch_size, 1), strides=(1, *patch_size, 1), rates=(1, 1, 1, 1), padding="VALID")
    return tf.reshape(patches, (batch_size, patches.shape[1] * patches.shape[2], patches.shape[-1]))


x = rng.random((32, *input_shape)).astype("float32")
y = keras.utils.to_categorical(rng.integers(0, num_classes, 32), num_classes)
dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(8).map(lambda x, y: (patch_extract(x), y))
inputs = layers.Input(shape=(num_patch_x * num_patch_y, 12))
h = PatchEmbedding(num_patch_x * num_patch_y, embed_dim)(inputs)
h = SwinTransformer(embed_dim, (num_patch_x, num_patch_y), num_heads, window_size, 0, num_mlp, 0.03)(h)
h = SwinTransformer(embed_dim, (num_patch_x, num_patch_y), num_heads, window_size, shift_size, num_mlp, 0.03)(h)
h = PatchMerging((num_patch_x, num_patch_y), embed_dim=embed_dim)(h)
h = layers.GlobalAveragePooling1D()(h)
model = keras.Model(inputs, layers.Dense(num_classes, activation="softmax")(h))
model.compile(loss=keras.losses.CategoricalCrossentropy(label_smoothing=0.1), optimizer=keras.optimizers.AdamW(learning_rate=1e-3, weight_decay=0.0001),
              metrics=[keras.metrics.CategoricalAccuracy(name="accuracy"), keras.metrics.TopKCategoricalAccuracy(5, name="top-5-accuracy")])
model.fit(dataset, epochs=2, validation_data=dataset, verbose=2)
