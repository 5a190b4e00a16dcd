"""After keras.io/examples/vision/siamese_network: a triplet loss in a train_step, on a network that is frozen in part."""

import keras
import numpy as np
import tensorflow as tf
from keras import Model, applications, layers, metrics, ops, optimizers

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)
target_shape = (32, 32)

images = [rng.random((32, *target_shape, 3)).astype("float32") for _ in range(3)]
dataset = tf.data.Dataset.zip(tuple(tf.data.Dataset.from_tensor_slices(each) for each in images))
train_dataset, val_dataset = dataset.take(24).batch(8).prefetch(8), dataset.skip(24).batch(8)

base_cnn = applications.MobileNetV2(weights=None, input_shape=target_shape + (3,), include_top=False, alpha=0.35)
x = layers.Flatten()(base_cnn.output)
x = layers.BatchNormalization()(layers.Dense(64, activation="relu")(x))
embedding = Model(base_cnn.input, layers.Dense(32)(x), name="Embedding")
trainable = False
for layer in base_cnn.layers:
    if layer.name == "Conv_1":
        trainable = True
    layer.trainable = trainable


class DistanceLayer(layers.Layer):
    def call(self, anchor, positive, negative):
        ap_distance = ops.sum(tf.square(anchor - positive), -1)
        an_distance = ops.sum(tf.square(anchor - negative), -1)
        return (ap_distance, an_distance)


anchor_input = layers.Input(name="anchor", shape=target_shape + (3,))
positive_input = layers.Input(name="positive", shape=target_shape + (3,))
negative_input = layers.Input(name="negative", shape=target_shape + (3,))
distances = DistanceLayer()(embedding(anchor_input), embedding(positive_input), embedding(negative_input))
siamese_network = Model(inputs=[anchor_input, positive_input, negative_input], outputs=distances)


class SiameseModel(Model):
    def __init__(self, siamese_network, margin=0.5):
        super().__init__()
        self.siamese_network = siamese_network
        self.margin = margin
        self.loss_tracker = metrics.Mean(name="loss")

    def call(self, inputs):
        return self.siamese_network(inputs)

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = self._compute_loss(data)
        gradients = tape.gradient(loss, self.siamese_network.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.siamese_network.trainable_weights))
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}

    def test_step(self, data):
        self.loss_tracker.update_state(self._compute_loss(data))
        return {"loss": self.loss_tracker.result()}

    def _compute_loss(self, data):
        ap_distance, an_distance = self.siamese_network(data)
        return ops.maximum(ap_distance - an_distance + self.margin, 0.0)

    @property
    def metrics(self):
        return [self.loss_tracker]


siamese_model = SiameseModel(siamese_network)
siamese_model.compile(optimizer=optimizers.Adam(0.0001), weighted_metrics=[])
siamese_model.fit(train_dataset, epochs=2, validation_data=val_dataset, verbose=2)
