"""After keras.io/examples/structured_data/imbalanced_classification: class weights and counts of errors."""

import keras
import numpy as np

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)
x, y = rng.standard_normal((512, 29)).astype("float32"), (rng.random((512, 1)) < 0.1).astype("uint8")
model = keras.Sequential([keras.Input(shape=(29,))] + [keras.layers.Dense(64, activation="relu") for _ in range(2)]
                         + [keras.layers.Dropout(0.3), keras.layers.Dense(1, activation="sigmoid")])
metrics = [keras.metrics.FalseNegatives(name="fn"), keras.metrics.FalsePositives(name="fp"), keras.metrics.TrueNegatives(name="tn"),
           keras.metrics.TruePositives(name="tp"), keras.metrics.Precision(name="precision"), keras.metrics.Recall(name="recall")]
model.compile(optimizer=keras.optimizers.Adam(1e-2), loss="binary_crossentropy", metrics=metrics)
model.fit(x, y, batch_size=128, epochs=2, validation_data=(x[:100], y[:100]), class_weight={0: 1.1, 1: 9.0}, shuffle=False, verbose=2)
