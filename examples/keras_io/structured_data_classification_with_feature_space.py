"""After keras.io/examples/structured_data/structured_data_classification_with_feature_space: a table, encoded in the data pipeline."""

import keras
import numpy as np
import tensorflow as tf
from keras.utils import FeatureSpace

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)
table = {"sex": rng.integers(0, 2, 96), "cp": rng.integers(0, 5, 96), "thal": rng.choice(["fixed", "normal", "reversible"], 96),
         "age": rng.integers(29, 77, 96), "chol": rng.normal(240, 50, 96).astype("float32"), "oldpeak": rng.random(96).astype("float32")}
train_ds = tf.data.Dataset.from_tensor_slices((table, rng.integers(0, 2, 96))).batch(32)

feature_space = FeatureSpace(
    features={"sex": "integer_categorical", "cp": "integer_categorical", "thal": "string_categorical", "age": "float_discretized",
              "chol": "float_normalized", "oldpeak": "float_normalized"},
    crosses=[("sex", "cp")], crossing_dim=16, output_mode="concat")
feature_space.adapt(train_ds.map(lambda x, _: x))
preprocessed_train_ds = train_ds.map(lambda x, y: (feature_space(x), y), num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)

dict_inputs = feature_space.get_inputs()
encoded_features = feature_space.get_encoded_features()
x = keras.layers.Dense(32, activation="relu")(encoded_features)
x = keras.layers.Dropout(0.5)(x)
predictions = keras.layers.Dense(1, activation="sigmoid")(x)
training_model = keras.Model(inputs=encoded_features, outputs=predictions)
training_model.compile(optimizer="adam", loss="binary_crossentropy", metrics=["accuracy"])
inference_model = keras.Model(inputs=dict_inputs, outputs=predictions)
training_model.fit(preprocessed_train_ds, epochs=2, validation_data=preprocessed_train_ds, verbose=2)
one = {name: ops_value[:1] for name, ops_value in ((n, tf.convert_to_tensor(v)) for n, v in table.items())}
print(inference_model.predict(one, verbose=0))
