"""After keras.io/examples/vision/knowledge_distillation: a student with a compute_loss of its own."""

import keras
import numpy as np
from keras import layers, ops

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)


class Distiller(keras.Model):
    def __init__(self, student, teacher):
        super().__init__()
        self.teacher, self.student = teacher, student

    def compile(self, optimizer, metrics, student_loss_fn, distillation_loss_fn, alpha=0.1, temperature=3):
        super().compile(optimizer=optimizer, metrics=metrics)
        self.student_loss_fn, self.distillation_loss_fn = student_loss_fn, distillation_loss_fn
        self.alpha, self.temperature = alpha, temperature

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, allow_empty=False):
        teacher_pred = self.teacher(x, training=False)
        distillation_loss = self.distillation_loss_fn(
            ops.softmax(teacher_pred / self.temperature, axis=1), ops.softmax(y_pred / self.temperature, axis=1)) * (self.temperature**2)
        return self.alpha * self.student_loss_fn(y, y_pred) + (1 - self.alpha) * distillation_loss

    def call(self, x):
        return self.student(x)


def convnet(filters):
    return keras.Sequential([keras.Input(shape=(28, 28, 1)), layers.Conv2D(filters, 3, strides=2, padding="same"), layers.LeakyReLU(0.2),
                             layers.MaxPooling2D(2, strides=1, padding="same"), layers.Flatten(), layers.Dense(10)])


distiller = Distiller(student=convnet(8), teacher=convnet(16))
distiller.compile(keras.optimizers.Adam(), [keras.metrics.SparseCategoricalAccuracy()],
                  keras.losses.SparseCategoricalCrossentropy(from_logits=True), keras.losses.KLDivergence())
distiller.fit(rng.random((64, 28, 28, 1)).astype("float32"), rng.integers(0, 10, 64), epochs=2, batch_size=32, shuffle=False, verbose=2)
