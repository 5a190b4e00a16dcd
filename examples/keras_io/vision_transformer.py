"""After keras.io/examples/vision/image_classification_with_vision_transformer: patches, encoded by layers of its own."""

import keras
import numpy as np
from keras import layers, ops

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)
image_size, patch_size, dim = 32, 8, 32
num_patches = (image_size // patch_size) ** 2


class Patches(layers.Layer):
    def __init__(self, patch_size):
        super().__init__()
        self.patch_size = patch_size

    def call(self, images):
        batch_size, height, width, channels = ops.shape(images)
        patches = ops.image.extract_patches(images, size=self.patch_size)
        n = (height // self.patch_size) * (width // self.patch_size)
        return ops.reshape(patches, (batch_size, n, self.patch_size * self.patch_size * channels))


class PatchEncoder(layers.Layer):
    def __init__(self, num_patches, projection_dim):
        super().__init__()
        self.num_patches = num_patches
        self.projection = layers.Dense(units=projection_dim)
        self.position_embedding = layers.Embedding(input_dim=num_patches, output_dim=projection_dim)

    def call(self, patch):
        positions = ops.expand_dims(ops.arange(start=0, stop=self.num_patches, step=1), axis=0)
        return self.projection(patch) + self.position_embedding(positions)


inputs = keras.Input(shape=(image_size, image_size, 3))
encoded = PatchEncoder(num_patches, dim)(Patches(patch_size)(inputs))
for _ in range(2):
    x1 = layers.LayerNormalization(epsilon=1e-6)(encoded)
    x2 = layers.Add()([layers.MultiHeadAttention(num_heads=2, key_dim=dim, dropout=0.0)(x1, x1), encoded])
    x3 = layers.LayerNormalization(epsilon=1e-6)(x2)
    x3 = layers.Dropout(0.1)(layers.Dense(dim, activation=keras.activations.gelu)(layers.Dense(2 * dim, activation="gelu")(x3)))
    encoded = layers.Add()([x3, x2])
features = layers.Dropout(0.5)(layers.Flatten()(layers.LayerNormalization(epsilon=1e-6)(encoded)))
model = keras.Model(inputs=inputs, outputs=layers.Dense(10)(features))
model.compile(optimizer=keras.optimizers.AdamW(learning_rate=0.001, weight_decay=0.0001),
              loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
              metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy"),
                       keras.metrics.SparseTopKCategoricalAccuracy(5, name="top-5-accuracy")])
model.fit(rng.random((64, 32, 32, 3)).astype("float32"), rng.integers(0, 10, 64), batch_size=32, epochs=2, shuffle=False, verbose=2)
