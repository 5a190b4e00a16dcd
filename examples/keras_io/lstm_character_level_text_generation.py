"""After keras.io/examples/generative/lstm_character_level_text_generation: the next character; text is made between epochs."""

import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)
maxlen, step = 20, 3
text = "".join(rng.choice(list("abcdefghij \n"), 700))
chars = sorted(set(text))
char_indices = {c: i for i, c in enumerate(chars)}
sentences = [text[i : i + maxlen] for i in range(0, len(text) - maxlen, step)]
next_chars = [text[i + maxlen] for i in range(0, len(text) - maxlen, step)]
x = np.zeros((len(sentences), maxlen, len(chars)), dtype="bool")
y = np.zeros((len(sentences), len(chars)), dtype="bool")
for i, sentence in enumerate(sentences):
    for t, char in enumerate(sentence):
        x[i, t, char_indices[char]] = 1
    y[i, char_indices[next_chars[i]]] = 1

model = keras.Sequential([keras.Input(shape=(maxlen, len(chars))), layers.LSTM(32), layers.Dense(len(chars), activation="softmax")])
model.compile(loss="categorical_crossentropy", optimizer=keras.optimizers.RMSprop(learning_rate=0.01))


def sample(preds, temperature=1.0):
    preds = np.exp(np.log(np.asarray(preds).astype("float64")) / temperature)
    return np.argmax(np.random.multinomial(1, preds / np.sum(preds), 1))


for epoch in range(2):
    model.fit(x, y, batch_size=32, epochs=1, shuffle=False, verbose=2)
    sentence, generated = text[:maxlen], ""
    for _ in range(3):
        x_pred = np.zeros((1, maxlen, len(chars)))
        for t, char in enumerate(sentence):
            x_pred[0, t, char_indices[char]] = 1.0
        next_char = chars[sample(model.predict(x_pred, verbose=0)[0], 0.5)]
        sentence, generated = sentence[1:] + next_char, generated + next_char
    print("Generated:", repr(generated))
