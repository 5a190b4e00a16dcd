"""After keras.io/examples/vision/captcha_ocr: characters read by an LSTM; a layer adds TensorFlow's CTC loss."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)
img_width, img_height, max_length, characters = 64, 24, 4, 19


def ctc_batch_cost(y_true, y_pred, input_length, label_length):
    label_length = ops.cast(ops.squeeze(label_length, axis=-1), dtype="int32")
    input_length = ops.cast(ops.squeeze(input_length, axis=-1), dtype="int32")
    sparse_labels = ops.cast(ctc_label_dense_to_sparse(y_true, label_length), dtype="int32")
    y_pred = ops.log(ops.transpose(y_pred, axes=[1, 0, 2]) + keras.backend.epsilon())
    return ops.expand_dims(tf.compat.v1.nn.ctc_loss(inputs=y_pred, labels=sparse_labels, sequence_length=input_length), 1)


def ctc_label_dense_to_sparse(labels, label_lengths):
    label_shape = ops.shape(labels)
    num_batches_tns = ops.stack([label_shape[0]])
    max_num_labels_tns = ops.stack([label_shape[1]])

    def range_less_than(old_input, current_input):
        return ops.expand_dims(ops.arange(ops.shape(old_input)[1]), 0) < tf.fill(max_num_labels_tns, current_input)

    init = ops.cast(tf.fill([1, label_shape[1]], 0), dtype="bool")
    dense_mask = tf.compat.v1.scan(range_less_than, label_lengths, initializer=init, parallel_iterations=1)
    dense_mask = dense_mask[:, 0, :]
    label_array = ops.reshape(tf.tile(ops.arange(0, label_shape[1]), num_batches_tns), label_shape)
    label_ind = tf.compat.v1.boolean_mask(label_array, dense_mask)
    batch_array = ops.transpose(ops.reshape(tf.tile(ops.arange(0, label_shape[0]), max_num_labels_tns), tf.reverse(label_shape, [0])))
    batch_ind = tf.compat.v1.boolean_mask(batch_array, dense_mask)
    indices = ops.transpose(ops.reshape(ops.concatenate([batch_ind, label_ind], axis=0), [2, -1]))
    vals_sparse = tf.compat.v1.gather_nd(labels, indices)
    return tf.SparseTensor(ops.cast(indices, dtype="int64"), vals_sparse, ops.cast(label_shape, dtype="int64"))


class CTCLayer(layers.Layer):
    def __init__(self, name=None):
        super().__init__(name=name)
        self.loss_fn = ctc_batch_cost

    def call(self, y_true, y_pred):
        batch_len = ops.cast(ops.shape(y_true)[0], dtype="int64")
        input_length = ops.cast(ops.shape(y_pred)[1], dtype="int64")
        label_length = ops.cast(ops.shape(y_true)[1], dtype="int64")
        input_length = input_length * ops.ones(shape=(batch_len, 1), dtype="int64")
        label_length = label_length * ops.ones(shape=(batch_len, 1), dtype="int64")
        self.add_loss(self.loss_fn(y_true, y_pred, input_length, label_length))
        return y_pred


input_img = layers.Input(shape=(img_width, img_height, 1), name="image", dtype="float32")
labels = layers.Input(name="label", shape=(None,), dtype="float32")
x = layers.Conv2D(8, (3, 3), activation="relu", kernel_initializer="he_normal", padding="same", name="Conv1")(input_img)
x = layers.MaxPooling2D((2, 2), name="pool1")(x)
x = layers.Conv2D(16, (3, 3), activation="relu", kernel_initializer="he_normal", padding="same", name="Conv2")(x)
x = layers.MaxPooling2D((2, 2), name="pool2")(x)
x = layers.Reshape(target_shape=((img_width // 4), (img_height // 4) * 16), name="reshape")(x)
x = layers.Dense(32, activation="relu", name="dense1")(x)
x = layers.Dropout(0.2)(x)
x = layers.Bidirectional(layers.LSTM(16, return_sequences=True))(x)
x = layers.Dense(characters + 2, activation="softmax", name="dense2")(x)
model = keras.models.Model(inputs=[input_img, labels], outputs=CTCLayer(name="ctc_loss")(labels, x), name="ocr_model_v1")
model.compile(optimizer=keras.optimizers.Adam())
pictures = rng.random((32, img_width, img_height, 1)).astype("float32")
texts = rng.integers(1, characters + 1, (32, max_length)).astype("float32")
dataset = tf.data.Dataset.from_tensor_slices({"image": pictures, "label": texts}).batch(16)
model.fit(dataset, epochs=2, callbacks=[keras.callbacks.EarlyStopping(monitor="loss", patience=10, restore_best_weights=True)], verbose=2)
