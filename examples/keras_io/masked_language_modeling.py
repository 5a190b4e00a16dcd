"""After keras.io/examples/nlp/masked_language_modeling: BERT's task, with sample weights in a compute_loss of its own."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)
MAX_LEN, VOCAB_SIZE, EMBED_DIM, NUM_HEAD, FF_DIM, NUM_LAYERS = 24, 200, 32, 2, 32, 1


def bert_module(query, key, value, i):
    attention_output = layers.MultiHeadAttention(num_heads=NUM_HEAD, key_dim=EMBED_DIM // NUM_HEAD, name=f"encoder_{i}_multiheadattention")(query, key, value)
    attention_output = layers.Dropout(0.1, name=f"encoder_{i}_att_dropout")(attention_output)
    attention_output = layers.LayerNormalization(epsilon=1e-6, name=f"encoder_{i}_att_layernormalization")(query + attention_output)
    ffn = keras.Sequential([layers.Dense(FF_DIM, activation="relu"), layers.Dense(EMBED_DIM)], name=f"encoder_{i}_ffn")
    ffn_output = layers.Dropout(0.1, name=f"encoder_{i}_ffn_dropout")(ffn(attention_output))
    return layers.LayerNormalization(epsilon=1e-6, name=f"encoder_{i}_ffn_layernormalization")(attention_output + ffn_output)


def get_pos_encoding_matrix(max_len, d_emb):
    pos_enc = np.array([[pos / np.power(10000, 2 * (j // 2) / d_emb) for j in range(d_emb)] if pos != 0 else np.zeros(d_emb) for pos in range(max_len)])
    pos_enc[1:, 0::2] = np.sin(pos_enc[1:, 0::2])
    pos_enc[1:, 1::2] = np.cos(pos_enc[1:, 1::2])
    return pos_enc


loss_fn = keras.losses.SparseCategoricalCrossentropy(reduction=None)
loss_tracker = keras.metrics.Mean(name="loss")


class MaskedLanguageModel(keras.Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
        loss = loss_fn(y, y_pred, sample_weight)
        loss_tracker.update_state(loss, sample_weight=sample_weight)
        return ops.sum(loss)

    def compute_metrics(self, x, y, y_pred, sample_weight):
        return {"loss": loss_tracker.result()}

    @property
    def metrics(self):
        return [loss_tracker]


inputs = layers.Input((MAX_LEN,), dtype="int64")
word_embeddings = layers.Embedding(VOCAB_SIZE, EMBED_DIM, name="word_embedding")(inputs)
position_embeddings = layers.Embedding(input_dim=MAX_LEN, output_dim=EMBED_DIM, name="position_embedding",
                                       embeddings_initializer=keras.initializers.Constant(get_pos_encoding_matrix(MAX_LEN, EMBED_DIM)))(
    ops.arange(start=0, stop=MAX_LEN, step=1))
encoder_output = word_embeddings + position_embeddings
for i in range(NUM_LAYERS):
    encoder_output = bert_module(encoder_output, encoder_output, encoder_output, i)
mlm_output = layers.Dense(VOCAB_SIZE, name="mlm_cls", activation="softmax")(encoder_output)
bert_masked_model = MaskedLanguageModel(inputs, mlm_output, name="masked_bert_model")
bert_masked_model.compile(optimizer=keras.optimizers.Adam(learning_rate=0.001))

labels = rng.integers(3, VOCAB_SIZE, (48, MAX_LEN))
chosen = rng.random(labels.shape) < 0.15
masked = np.where(chosen, 2, labels)
dataset = tf.data.Dataset.from_tensor_slices((masked, labels, chosen.astype("float32"))).batch(16)
bert_masked_model.fit(dataset, epochs=2, verbose=2)
