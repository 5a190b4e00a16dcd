"""After keras.io/examples/vision/nerf: colours along rays, added up in a train_step that fixes the size of the batch."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)
BATCH_SIZE, H, W, NUM_SAMPLES, POS_ENCODE_DIMS = 2, 8, 8, 6, 4


def encode_position(x):
    positions = [x]
    for i in range(POS_ENCODE_DIMS):
        for fn in [np.sin, np.cos]:
            positions.append(fn(2.0**i * x))
    return np.concatenate(positions, axis=-1)


def render_flat_rays(ray_origins, ray_directions, near, far):
    t_vals = np.linspace(near, far, NUM_SAMPLES) + rng.uniform(size=(H, W, NUM_SAMPLES)) * (far - near) / NUM_SAMPLES
    rays = ray_origins[..., None, :] + ray_directions[..., None, :] * t_vals[..., None]
    return encode_position(rays.reshape(-1, 3)).astype("float32"), t_vals.astype("float32")


def get_nerf_model(num_layers, num_pos):
    inputs = keras.Input(shape=(num_pos, 2 * 3 * POS_ENCODE_DIMS + 3))
    x = inputs
    for i in range(num_layers):
        x = layers.Dense(units=32, activation="relu")(x)
        if i % 4 == 0 and i > 0:
            x = layers.concatenate([x, inputs], axis=-1)
    return keras.Model(inputs=inputs, outputs=layers.Dense(units=4)(x))


def render_rgb_depth(model, rays_flat, t_vals, rand=True, train=True):
    predictions = model(rays_flat) if train else model.predict(rays_flat)
    predictions = ops.reshape(predictions, (BATCH_SIZE, H, W, NUM_SAMPLES, 4))
    rgb = ops.sigmoid(predictions[..., :-1])
    sigma_a = ops.relu(predictions[..., -1])
    delta = t_vals[..., 1:] - t_vals[..., :-1]
    delta = ops.concatenate([delta, ops.broadcast_to([1e10], (BATCH_SIZE, H, W, 1))], axis=-1)
    alpha = 1.0 - ops.exp(-sigma_a * delta)
    transmittance = tf.math.cumprod(1.0 - alpha + 1e-10, axis=-1, exclusive=True)
    weights = alpha * transmittance
    return ops.sum(weights[..., None] * rgb, axis=-2), ops.sum(weights * t_vals, axis=-1)


class NeRF(keras.Model):
    def __init__(self, nerf_model):
        super().__init__()
        self.nerf_model = nerf_model

    def compile(self, optimizer, loss_fn):
        super().compile()
        self.optimizer, self.loss_fn = optimizer, loss_fn
        self.loss_tracker = keras.metrics.Mean(name="loss")
        self.psnr_metric = keras.metrics.Mean(name="psnr")

    def train_step(self, inputs):
        (images, rays) = inputs
        (rays_flat, t_vals) = rays
        with tf.GradientTape() as tape:
            rgb, _ = render_rgb_depth(model=self.nerf_model, rays_flat=rays_flat, t_vals=t_vals, rand=True)
            loss = self.loss_fn(images, rgb)
        trainable_variables = self.nerf_model.trainable_variables
        gradients = tape.gradient(loss, trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, trainable_variables))
        self.loss_tracker.update_state(loss)
        self.psnr_metric.update_state(tf.image.psnr(images, rgb, max_val=1.0))
        return {"loss": self.loss_tracker.result(), "psnr": self.psnr_metric.result()}

    @property
    def metrics(self):
        return [self.loss_tracker, self.psnr_metric]


images = rng.random((8, H, W, 3)).astype("float32")
rays = [render_flat_rays(rng.normal(size=(H, W, 3)), rng.normal(size=(H, W, 3)), 2.0, 6.0) for _ in range(8)]
flat, depths = np.stack([a for a, _ in rays]), np.stack([b for _, b in rays])
train_ds = tf.data.Dataset.zip((tf.data.Dataset.from_tensor_slices(images), tf.data.Dataset.from_tensor_slices((flat, depths))))
train_ds = train_ds.batch(BATCH_SIZE, drop_remainder=True)
model = NeRF(get_nerf_model(num_layers=6, num_pos=H * W * NUM_SAMPLES))
model.compile(optimizer=keras.optimizers.Adam(), loss_fn=keras.losses.MeanSquaredError())
model.fit(train_ds, epochs=2, verbose=2)
