"""After keras.io/examples/vision/retinanet: a feature pyramid as a subclassed model, with focal and box losses of its own."""

import keras
import numpy as np
import tensorflow as tf
from keras import ops

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)
num_classes, num_anchors, size = 5, 9, 64


def get_backbone():
    backbone = keras.applications.MobileNetV2(include_top=False, weights=None, input_shape=(size, size, 3), alpha=0.35)
    outputs = [backbone.get_layer(name).output for name in ["block_6_expand_relu", "block_13_expand_relu", "out_relu"]]
    return keras.Model(inputs=[backbone.inputs], outputs=outputs)


class FeaturePyramid(keras.layers.Layer):
    def __init__(self, backbone=None, **kwargs):
        super().__init__(name="FeaturePyramid", **kwargs)
        self.backbone = backbone if backbone else get_backbone()
        self.conv_c3_1x1, self.conv_c4_1x1, self.conv_c5_1x1 = (keras.layers.Conv2D(16, 1, 1, "same") for _ in range(3))
        self.conv_c3_3x3, self.conv_c4_3x3, self.conv_c5_3x3 = (keras.layers.Conv2D(16, 3, 1, "same") for _ in range(3))
        self.conv_c6_3x3, self.conv_c7_3x3 = (keras.layers.Conv2D(16, 3, 2, "same") for _ in range(2))
        self.upsample_2x = keras.layers.UpSampling2D(2)

    def call(self, images, training=False):
        c3_output, c4_output, c5_output = self.backbone(images, training=training)
        p3_output, p4_output, p5_output = self.conv_c3_1x1(c3_output), self.conv_c4_1x1(c4_output), self.conv_c5_1x1(c5_output)
        p4_output = p4_output + self.upsample_2x(p5_output)
        p3_output = p3_output + self.upsample_2x(p4_output)
        p3_output, p4_output, p5_output = self.conv_c3_3x3(p3_output), self.conv_c4_3x3(p4_output), self.conv_c5_3x3(p5_output)
        p6_output = self.conv_c6_3x3(c5_output)
        p7_output = self.conv_c7_3x3(ops.relu(p6_output))
        return p3_output, p4_output, p5_output, p6_output, p7_output


def build_head(output_filters, bias_init):
    head = keras.Sequential([keras.Input(shape=[None, None, 16])])
    kernel_init = keras.initializers.RandomNormal(0.0, 0.01)
    for _ in range(2):
        head.add(keras.layers.Conv2D(16, 3, padding="same", kernel_initializer=kernel_init))
        head.add(keras.layers.ReLU())
    head.add(keras.layers.Conv2D(output_filters, 3, 1, padding="same", kernel_initializer=kernel_init, bias_initializer=bias_init))
    return head


class RetinaNet(keras.Model):
    def __init__(self, num_classes, backbone=None, **kwargs):
        super().__init__(name="RetinaNet", **kwargs)
        self.fpn = FeaturePyramid(backbone)
        self.num_classes = num_classes
        prior_probability = keras.initializers.Constant(-np.log((1 - 0.01) / 0.01))
        self.cls_head = build_head(num_anchors * num_classes, prior_probability)
        self.box_head = build_head(num_anchors * 4, "zeros")

    def call(self, image, training=False):
        features = self.fpn(image, training=training)
        N = ops.shape(image)[0]
        cls_outputs, box_outputs = [], []
        for feature in features:
            box_outputs.append(ops.reshape(self.box_head(feature), [N, -1, 4]))
            cls_outputs.append(ops.reshape(self.cls_head(feature), [N, -1, self.num_classes]))
        return ops.concatenate([ops.concatenate(box_outputs, axis=1), ops.concatenate(cls_outputs, axis=1)], axis=-1)


class RetinaNetBoxLoss(keras.losses.Loss):
    def __init__(self, delta):
        super().__init__(reduction="none", name="RetinaNetBoxLoss")
        self._delta = delta

    def call(self, y_true, y_pred):
        difference = y_true - y_pred
        absolute_difference = ops.abs(difference)
        squared_difference = difference**2
        loss = ops.where(ops.less(absolute_difference, self._delta), 0.5 * squared_difference, absolute_difference - 0.5)
        return ops.sum(loss, axis=-1)


class RetinaNetClassificationLoss(keras.losses.Loss):
    def __init__(self, alpha, gamma):
        super().__init__(reduction="none", name="RetinaNetClassificationLoss")
        self._alpha, self._gamma = alpha, gamma

    def call(self, y_true, y_pred):
        cross_entropy = tf.nn.sigmoid_cross_entropy_with_logits(labels=y_true, logits=y_pred)
        probs = ops.sigmoid(y_pred)
        alpha = ops.where(ops.equal(y_true, 1.0), self._alpha, (1.0 - self._alpha))
        pt = ops.where(ops.equal(y_true, 1.0), probs, 1 - probs)
        return ops.sum(alpha * ops.power(1.0 - pt, self._gamma) * cross_entropy, axis=-1)


class RetinaNetLoss(keras.losses.Loss):
    def __init__(self, num_classes=80, alpha=0.25, gamma=2.0, delta=1.0):
        super().__init__(reduction="sum_over_batch_size", name="RetinaNetLoss")
        self._clf_loss, self._box_loss, self._num_classes = RetinaNetClassificationLoss(alpha, gamma), RetinaNetBoxLoss(delta), num_classes

    def call(self, y_true, y_pred):
        y_pred = tf.cast(y_pred, dtype=tf.float32)
        box_labels, box_predictions = y_true[:, :, :4], y_pred[:, :, :4]
        cls_labels = tf.one_hot(tf.cast(y_true[:, :, 4], dtype=tf.int32), depth=self._num_classes, dtype=tf.float32)
        cls_predictions = y_pred[:, :, 4:]
        positive_mask = tf.cast(tf.greater(y_true[:, :, 4], -1.0), dtype=tf.float32)
        ignore_mask = tf.cast(tf.equal(y_true[:, :, 4], -2.0), dtype=tf.float32)
        clf_loss = self._clf_loss(cls_labels, cls_predictions)
        box_loss = self._box_loss(box_labels, box_predictions)
        clf_loss = tf.where(tf.equal(ignore_mask, 1.0), 0.0, clf_loss)
        box_loss = tf.where(tf.equal(positive_mask, 1.0), box_loss, 0.0)
        normalizer = tf.reduce_sum(positive_mask, axis=-1)
        clf_loss = tf.math.divide_no_nan(tf.reduce_sum(clf_loss, axis=-1), normalizer)
        box_loss = tf.math.divide_no_nan(tf.reduce_sum(box_loss, axis=-1), normalizer)
        return clf_loss + box_loss


model = RetinaNet(num_classes, get_backbone())
optimizer = keras.optimizers.SGD(learning_rate=keras.optimizers.schedules.PiecewiseConstantDecay([1, 2], [0.000625, 0.00125, 0.0025]), momentum=0.9)
model.compile(loss=RetinaNetLoss(num_classes), optimizer=optimizer)
images = rng.normal(size=(8, size, size, 3)).astype("float32")
anchors = num_anchors * sum(n * n for n in (8, 4, 2, 1, 1))
classes = rng.choice([-2, -1, -1, -1, -1, 0, 1, 2, 3, 4], (8, anchors, 1))
labels = np.concatenate([rng.normal(size=(8, anchors, 4)), classes], axis=-1).astype("float32")
model.fit(tf.data.Dataset.from_tensor_slices((images, labels)).batch(4), epochs=2, verbose=2)
