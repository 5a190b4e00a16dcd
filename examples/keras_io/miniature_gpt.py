"""After keras.io/examples/generative/text_generation_with_miniature_gpt: causal attention with a mask made in the layer."""

import keras
import numpy as np
from keras import layers, ops

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)


def causal_attention_mask(n_dest, n_src, dtype):
    i = ops.arange(n_dest)[:, None]
    j = ops.arange(n_src)
    return ops.reshape(ops.cast(i >= j - n_src + n_dest, dtype), [1, n_dest, n_src])


class TransformerBlock(layers.Layer):
    def __init__(self, embed_dim, num_heads, ff_dim, rate=0.1):
        super().__init__()
        self.att = layers.MultiHeadAttention(num_heads, embed_dim)
        self.ffn = keras.Sequential([layers.Dense(ff_dim, activation="relu"), layers.Dense(embed_dim)])
        self.layernorm1, self.layernorm2 = layers.LayerNormalization(epsilon=1e-6), layers.LayerNormalization(epsilon=1e-6)
        self.dropout1, self.dropout2 = layers.Dropout(rate), layers.Dropout(rate)

    def call(self, inputs):
        seq_len = ops.shape(inputs)[1]
        mask = causal_attention_mask(seq_len, seq_len, "bool")
        out1 = self.layernorm1(inputs + self.dropout1(self.att(inputs, inputs, attention_mask=mask)))
        return self.layernorm2(out1 + self.dropout2(self.ffn(out1)))


class TokenAndPositionEmbedding(layers.Layer):
    def __init__(self, maxlen, vocab_size, embed_dim):
        super().__init__()
        self.token_emb, self.pos_emb = layers.Embedding(vocab_size, embed_dim), layers.Embedding(maxlen, embed_dim)

    def call(self, x):
        return self.token_emb(x) + self.pos_emb(ops.arange(0, ops.shape(x)[-1], 1))


inputs = layers.Input(shape=(20,), dtype="int32")
x = TransformerBlock(32, 2, 32)(TokenAndPositionEmbedding(20, 500, 32)(inputs))
model = keras.Model(inputs=inputs, outputs=[layers.Dense(500)(x), x])
model.compile("adam", loss=[keras.losses.SparseCategoricalCrossentropy(from_logits=True), None])
tokens = rng.integers(0, 500, (64, 21))
model.fit(tokens[:, :-1], tokens[:, 1:], batch_size=16, epochs=2, shuffle=False, verbose=2)
