"""After keras.io/examples/generative/dcgan_overriding_train_step: a GAN with a train_step of its own."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)
latent_dim = 32

discriminator = keras.Sequential([
    keras.Input(shape=(32, 32, 3)), layers.Conv2D(16, 4, strides=2, padding="same"), layers.LeakyReLU(negative_slope=0.2),
    layers.Conv2D(32, 4, strides=2, padding="same"), layers.LeakyReLU(negative_slope=0.2), layers.Flatten(), layers.Dropout(0.2),
    layers.Dense(1, activation="sigmoid")], name="discriminator")
generator = keras.Sequential([
    keras.Input(shape=(latent_dim,)), layers.Dense(8 * 8 * 32), layers.Reshape((8, 8, 32)),
    layers.Conv2DTranspose(32, 4, strides=2, padding="same"), layers.LeakyReLU(negative_slope=0.2),
    layers.Conv2DTranspose(64, 4, strides=2, padding="same"), layers.LeakyReLU(negative_slope=0.2),
    layers.Conv2D(3, 5, padding="same", activation="sigmoid")], name="generator")


class GAN(keras.Model):
    def __init__(self, discriminator, generator, latent_dim):
        super().__init__()
        self.discriminator, self.generator, self.latent_dim = discriminator, generator, latent_dim
        self.seed_generator = keras.random.SeedGenerator(1337)

    def compile(self, d_optimizer, g_optimizer, loss_fn):
        super().compile()
        self.d_optimizer, self.g_optimizer, self.loss_fn = d_optimizer, g_optimizer, loss_fn
        self.d_loss_metric = keras.metrics.Mean(name="d_loss")
        self.g_loss_metric = keras.metrics.Mean(name="g_loss")

    @property
    def metrics(self):
        return [self.d_loss_metric, self.g_loss_metric]

    def train_step(self, real_images):
        batch_size = ops.shape(real_images)[0]
        random_latent_vectors = keras.random.normal(shape=(batch_size, self.latent_dim), seed=self.seed_generator)
        generated_images = self.generator(random_latent_vectors)
        combined_images = ops.concatenate([generated_images, real_images], axis=0)
        labels = ops.concatenate([ops.ones((batch_size, 1)), ops.zeros((batch_size, 1))], axis=0)
        labels += 0.05 * tf.random.uniform(tf.shape(labels))
        with tf.GradientTape() as tape:
            predictions = self.discriminator(combined_images)
            d_loss = self.loss_fn(labels, predictions)
        grads = tape.gradient(d_loss, self.discriminator.trainable_weights)
        self.d_optimizer.apply_gradients(zip(grads, self.discriminator.trainable_weights))

        random_latent_vectors = keras.random.normal(shape=(batch_size, self.latent_dim), seed=self.seed_generator)
        misleading_labels = ops.zeros((batch_size, 1))
        with tf.GradientTape() as tape:
            predictions = self.discriminator(self.generator(random_latent_vectors))
            g_loss = self.loss_fn(misleading_labels, predictions)
        grads = tape.gradient(g_loss, self.generator.trainable_weights)
        self.g_optimizer.apply_gradients(zip(grads, self.generator.trainable_weights))
        self.d_loss_metric.update_state(d_loss)
        self.g_loss_metric.update_state(g_loss)
        return {"d_loss": self.d_loss_metric.result(), "g_loss": self.g_loss_metric.result()}


gan = GAN(discriminator=discriminator, generator=generator, latent_dim=latent_dim)
gan.compile(keras.optimizers.Adam(learning_rate=0.0001), keras.optimizers.Adam(learning_rate=0.0001), keras.losses.BinaryCrossentropy())
images = rng.random((64, 32, 32, 3)).astype("float32")
dataset = tf.data.Dataset.from_tensor_slices(images).batch(16)
gan.fit(dataset, epochs=2, verbose=2)
