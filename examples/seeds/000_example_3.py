# Completed: layers and data. A softmax in float16 overflows, so the last layer computes in float32, as Keras advises.
import tensorflow as tf

mixed_precision = tf.keras.mixed_precision.Policy('mixed_float16') # enable mixed precision
tf.keras.mixed_precision.set_global_policy(mixed_precision)

model = tf.keras.Sequential([
    tf.keras.layers.Input((32, 32, 3)),
    tf.keras.layers.Conv2D(8, 3, activation="relu"),
    tf.keras.layers.GlobalAveragePooling2D(),
    tf.keras.layers.Dense(10, activation="softmax", dtype="float32"),
])

optimizer = tf.keras.optimizers.Adam(learning_rate=1e-3)
# Wrap the optimizer with the loss scaling to enable mixed precision
optimizer = tf.keras.mixed_precision.LossScaleOptimizer(optimizer)

images = tf.random.stateless_uniform((64, 32, 32, 3), (1, 2))
labels = tf.one_hot(tf.random.stateless_uniform((64,), (3, 4), 0, 10, tf.int32), 10)
train_dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(16)

model.compile(optimizer=optimizer, loss='categorical_crossentropy', metrics=['accuracy'])
history = model.fit(train_dataset, epochs=2)
print("Losses:", *history.history["loss"])
