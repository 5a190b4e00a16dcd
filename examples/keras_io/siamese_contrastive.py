"""After keras.io/examples/vision/siamese_contrastive: a distance in a Lambda layer and a contrastive loss."""

import keras
import numpy as np
from keras import layers, ops

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)


def euclidean_distance(vects):
    x, y = vects
    sum_square = ops.sum(ops.square(x - y), axis=1, keepdims=True)
    return ops.sqrt(ops.maximum(sum_square, keras.backend.epsilon()))


def loss(margin=1):
    def contrastive_loss(y_true, y_pred):
        square_pred = ops.square(y_pred)
        margin_square = ops.square(ops.maximum(margin - (y_pred), 0))
        return ops.mean((1 - y_true) * square_pred + (y_true) * margin_square)

    return contrastive_loss


inputs = layers.Input((28, 28, 1))
x = layers.BatchNormalization()(inputs)
x = layers.Conv2D(4, (5, 5), activation="tanh")(x)
x = layers.AveragePooling2D(pool_size=(2, 2))(x)
x = layers.Conv2D(16, (5, 5), activation="tanh")(x)
x = layers.AveragePooling2D(pool_size=(2, 2))(x)
x = layers.BatchNormalization()(layers.Flatten()(x))
embedding_network = keras.Model(inputs, layers.Dense(10, activation="tanh")(x))

input_1, input_2 = layers.Input((28, 28, 1)), layers.Input((28, 28, 1))
merge = layers.Lambda(euclidean_distance, output_shape=(1,))([embedding_network(input_1), embedding_network(input_2)])
output = layers.Dense(1, activation="sigmoid")(layers.BatchNormalization()(merge))
siamese = keras.Model(inputs=[input_1, input_2], outputs=output)
siamese.compile(loss=loss(margin=1), optimizer="RMSprop", metrics=["accuracy"])
pairs = [rng.random((64, 28, 28, 1)).astype("float32") for _ in range(2)]
siamese.fit(pairs, rng.integers(0, 2, 64).astype("float32"), batch_size=16, epochs=2, shuffle=False, verbose=2)
