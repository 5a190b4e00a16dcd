"""After keras.io/examples/generative/ddim: a diffusion model, whose weights are averaged in its train_step."""

import math

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)
image_size, batch_size, ema, widths, block_depth = 16, 8, 0.999, [8, 16], 1


@keras.saving.register_keras_serializable()
def sinusoidal_embedding(x):
    frequencies = ops.exp(ops.linspace(ops.log(1.0), ops.log(1000.0), 16 // 2))
    angular_speeds = ops.cast(2.0 * math.pi * frequencies, "float32")
    return ops.concatenate([ops.sin(angular_speeds * x), ops.cos(angular_speeds * x)], axis=3)


def residual_block(width):
    def apply(x):
        residual = x if x.shape[3] == width else layers.Conv2D(width, kernel_size=1)(x)
        x = layers.BatchNormalization(center=False, scale=False)(x)
        x = layers.Conv2D(width, kernel_size=3, padding="same", activation="swish")(x)
        x = layers.Conv2D(width, kernel_size=3, padding="same")(x)
        return layers.Add()([x, residual])

    return apply


def get_network():
    noisy_images = keras.Input(shape=(image_size, image_size, 3))
    noise_variances = keras.Input(shape=(1, 1, 1))
    e = layers.Lambda(sinusoidal_embedding, output_shape=(1, 1, 16))(noise_variances)
    e = layers.UpSampling2D(size=image_size, interpolation="nearest")(e)
    x = layers.Concatenate()([layers.Conv2D(widths[0], kernel_size=1)(noisy_images), e])
    skip = residual_block(widths[0])(x)
    x = layers.AveragePooling2D(pool_size=2)(skip)
    x = residual_block(widths[1])(x)
    x = layers.UpSampling2D(size=2, interpolation="bilinear")(x)
    x = residual_block(widths[0])(layers.Concatenate()([x, skip]))
    x = layers.Conv2D(3, kernel_size=1, kernel_initializer="zeros")(x)
    return keras.Model([noisy_images, noise_variances], x, name="residual_unet")


class DiffusionModel(keras.Model):
    def __init__(self):
        super().__init__()
        self.normalizer = layers.Normalization()
        self.network = get_network()
        self.ema_network = keras.models.clone_model(self.network)

    def compile(self, **kwargs):
        super().compile(**kwargs)
        self.noise_loss_tracker = keras.metrics.Mean(name="n_loss")
        self.image_loss_tracker = keras.metrics.Mean(name="i_loss")

    @property
    def metrics(self):
        return [self.noise_loss_tracker, self.image_loss_tracker]

    def diffusion_schedule(self, diffusion_times):
        start_angle = ops.cast(ops.arccos(0.95), "float32")
        end_angle = ops.cast(ops.arccos(0.02), "float32")
        diffusion_angles = start_angle + diffusion_times * (end_angle - start_angle)
        return ops.sin(diffusion_angles), ops.cos(diffusion_angles)

    def denoise(self, noisy_images, noise_rates, signal_rates, training):
        network = self.network if training else self.ema_network
        pred_noises = network([noisy_images, noise_rates**2], training=training)
        return pred_noises, (noisy_images - noise_rates * pred_noises) / signal_rates

    def train_step(self, images):
        images = self.normalizer(images, training=True)
        noises = keras.random.normal(shape=(batch_size, image_size, image_size, 3))
        diffusion_times = keras.random.uniform(shape=(batch_size, 1, 1, 1), minval=0.0, maxval=1.0)
        noise_rates, signal_rates = self.diffusion_schedule(diffusion_times)
        noisy_images = signal_rates * images + noise_rates * noises
        with tf.GradientTape() as tape:
            pred_noises, pred_images = self.denoise(noisy_images, noise_rates, signal_rates, training=True)
            noise_loss = self.loss(noises, pred_noises)
            image_loss = self.loss(images, pred_images)
        gradients = tape.gradient(noise_loss, self.network.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.network.trainable_weights))
        self.noise_loss_tracker.update_state(noise_loss)
        self.image_loss_tracker.update_state(image_loss)
        for weight, ema_weight in zip(self.network.weights, self.ema_network.weights):
            ema_weight.assign(ema * ema_weight + (1 - ema) * weight)
        return {m.name: m.result() for m in self.metrics}


images = rng.random((16, image_size, image_size, 3)).astype("float32")
model = DiffusionModel()
model.compile(optimizer=keras.optimizers.AdamW(learning_rate=1e-3, weight_decay=1e-4), loss=keras.losses.mean_absolute_error)
model.normalizer.adapt(images)
model.fit(tf.data.Dataset.from_tensor_slices(images).batch(batch_size, drop_remainder=True), epochs=2, verbose=2)
