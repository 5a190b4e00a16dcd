"""After keras.io/examples/vision/video_classification: features of frames, read by GRUs with a mask that is an input."""

import os
import tempfile

import keras
import numpy as np

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)
MAX_SEQ_LENGTH, NUM_FEATURES, CLASSES = 20, 64, 5

frame_features = rng.random((60, MAX_SEQ_LENGTH, NUM_FEATURES)).astype("float32")
frame_masks = np.arange(MAX_SEQ_LENGTH)[None] < rng.integers(3, MAX_SEQ_LENGTH + 1, 60)[:, None]
labels = rng.integers(0, CLASSES, (60, 1))


def get_sequence_model():
    frame_features_input = keras.Input((MAX_SEQ_LENGTH, NUM_FEATURES))
    mask_input = keras.Input((MAX_SEQ_LENGTH,), dtype="bool")
    x = keras.layers.GRU(16, return_sequences=True)(frame_features_input, mask=mask_input)
    x = keras.layers.GRU(8)(x)
    x = keras.layers.Dropout(0.4)(x)
    x = keras.layers.Dense(8, activation="relu")(x)
    output = keras.layers.Dense(CLASSES, activation="softmax")(x)
    rnn_model = keras.Model([frame_features_input, mask_input], output)
    rnn_model.compile(loss="sparse_categorical_crossentropy", optimizer="adam", metrics=["accuracy"])
    return rnn_model


seq_model = get_sequence_model()
with tempfile.TemporaryDirectory() as folder:
    filepath = os.path.join(folder, "ckpt.weights.h5")
    checkpoint = keras.callbacks.ModelCheckpoint(filepath, save_weights_only=True, save_best_only=True, verbose=1)
    seq_model.fit([frame_features, frame_masks], labels, validation_split=0.3, epochs=2, batch_size=16, shuffle=False,
                  callbacks=[checkpoint], verbose=2)
    seq_model.load_weights(filepath)
