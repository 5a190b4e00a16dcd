"""After keras.io/examples/nlp/lstm_seq2seq: characters to characters; the decoder begins with the encoder's state."""

import keras
import numpy as np

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)
num_encoder_tokens, num_decoder_tokens, latent_dim = 30, 40, 32


def one_hot(samples, length, tokens):
    return np.eye(tokens, dtype="float32")[rng.integers(0, tokens, (samples, length))]


encoder_input_data, decoder_input_data = one_hot(80, 10, num_encoder_tokens), one_hot(80, 14, num_decoder_tokens)
decoder_target_data = np.roll(decoder_input_data, -1, axis=1)

encoder_inputs = keras.Input(shape=(None, num_encoder_tokens))
encoder = keras.layers.LSTM(latent_dim, return_state=True)
encoder_outputs, state_h, state_c = encoder(encoder_inputs)
encoder_states = [state_h, state_c]
decoder_inputs = keras.Input(shape=(None, num_decoder_tokens))
decoder_lstm = keras.layers.LSTM(latent_dim, return_sequences=True, return_state=True)
decoder_outputs, _, _ = decoder_lstm(decoder_inputs, initial_state=encoder_states)
decoder_dense = keras.layers.Dense(num_decoder_tokens, activation="softmax")
decoder_outputs = decoder_dense(decoder_outputs)
model = keras.Model([encoder_inputs, decoder_inputs], decoder_outputs)
model.compile(optimizer="rmsprop", loss="categorical_crossentropy", metrics=["accuracy"])
model.fit([encoder_input_data, decoder_input_data], decoder_target_data, batch_size=16, epochs=2, validation_split=0.2, shuffle=False, verbose=2)
