"""After keras.io/examples/vision/image_captioning: five captions per picture, one update for each in a train_step."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)
IMAGE_SIZE, VOCAB_SIZE, SEQ_LENGTH, EMBED_DIM, FF_DIM = (32, 32), 100, 10, 16, 16


def get_cnn_model():
    base_model = keras.applications.MobileNetV2(input_shape=(*IMAGE_SIZE, 3), include_top=False, weights=None, alpha=0.35)
    base_model.trainable = False
    out = layers.Reshape((-1, base_model.output.shape[-1]))(base_model.output)
    return keras.models.Model(base_model.input, out)


class TransformerEncoderBlock(layers.Layer):
    def __init__(self, embed_dim, num_heads, **kwargs):
        super().__init__(**kwargs)
        self.attention_1 = layers.MultiHeadAttention(num_heads=num_heads, key_dim=embed_dim, dropout=0.0)
        self.layernorm_1, self.layernorm_2 = layers.LayerNormalization(), layers.LayerNormalization()
        self.dense_1 = layers.Dense(embed_dim, activation="relu")

    def call(self, inputs, training, mask=None):
        inputs = self.dense_1(self.layernorm_1(inputs))
        attention_output = self.attention_1(query=inputs, value=inputs, key=inputs, attention_mask=None, training=training)
        return self.layernorm_2(inputs + attention_output)


class TransformerDecoderBlock(layers.Layer):
    def __init__(self, embed_dim, ff_dim, num_heads, **kwargs):
        super().__init__(**kwargs)
        self.attention_1 = layers.MultiHeadAttention(num_heads=num_heads, key_dim=embed_dim)
        self.ffn_layer_1, self.ffn_layer_2 = layers.Dense(ff_dim, activation="relu"), layers.Dense(embed_dim)
        self.layernorm_1, self.layernorm_3 = layers.LayerNormalization(), layers.LayerNormalization()
        self.embedding = layers.Embedding(VOCAB_SIZE, embed_dim)
        self.out = layers.Dense(VOCAB_SIZE, activation="softmax")

    def call(self, inputs, encoder_outputs, training, mask=None):
        inputs = self.embedding(inputs)
        padding_mask = ops.cast(mask[:, :, None], dtype="int32")
        out_1 = self.layernorm_1(inputs + self.attention_1(query=inputs, value=encoder_outputs, key=encoder_outputs, attention_mask=padding_mask, training=training))
        return self.out(self.layernorm_3(out_1 + self.ffn_layer_2(self.ffn_layer_1(out_1))))


class ImageCaptioningModel(keras.Model):
    def __init__(self, cnn_model, encoder, decoder, num_captions_per_image=5):
        super().__init__()
        self.cnn_model, self.encoder, self.decoder = cnn_model, encoder, decoder
        self.loss_tracker, self.acc_tracker = keras.metrics.Mean(name="loss"), keras.metrics.Mean(name="accuracy")
        self.num_captions_per_image = num_captions_per_image

    def calculate_loss(self, y_true, y_pred, mask):
        loss = self.loss(y_true, y_pred)
        mask = tf.cast(mask, dtype=loss.dtype)
        loss *= mask
        return tf.reduce_sum(loss) / tf.reduce_sum(mask)

    def _compute_caption_loss(self, img_embed, batch_seq, training=True):
        encoder_out = self.encoder(img_embed, training=training)
        batch_seq_inp, batch_seq_true = batch_seq[:, :-1], batch_seq[:, 1:]
        mask = tf.math.not_equal(batch_seq_true, 0)
        batch_seq_pred = self.decoder(batch_seq_inp, encoder_out, training=training, mask=mask)
        return self.calculate_loss(batch_seq_true, batch_seq_pred, mask)

    def train_step(self, batch_data):
        batch_img, batch_seq = batch_data
        batch_loss = 0
        img_embed = self.cnn_model(batch_img)
        for i in range(self.num_captions_per_image):
            with tf.GradientTape() as tape:
                loss = self._compute_caption_loss(img_embed, batch_seq[:, i, :], training=True)
                batch_loss += loss
            train_vars = self.encoder.trainable_variables + self.decoder.trainable_variables
            grads = tape.gradient(loss, train_vars)
            self.optimizer.apply_gradients(zip(grads, train_vars))
        self.loss_tracker.update_state(batch_loss)
        return {"loss": self.loss_tracker.result()}

    @property
    def metrics(self):
        return [self.loss_tracker, self.acc_tracker]


caption_model = ImageCaptioningModel(get_cnn_model(), TransformerEncoderBlock(EMBED_DIM, 1), TransformerDecoderBlock(EMBED_DIM, FF_DIM, 2))
caption_model.compile(optimizer=keras.optimizers.Adam(1e-3), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=False, reduction=None))
images = rng.random((8, *IMAGE_SIZE, 3)).astype("float32")
captions = np.where(np.arange(SEQ_LENGTH) < rng.integers(4, SEQ_LENGTH + 1, (8, 5, 1)), rng.integers(1, VOCAB_SIZE, (8, 5, SEQ_LENGTH)), 0)
caption_model.fit(tf.data.Dataset.from_tensor_slices((images, captions)).batch(4), epochs=2, verbose=2)
