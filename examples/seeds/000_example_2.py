# Completed: a model, a loss, data and `epochs`. The loop is as printed: it adds gradients up, so its step is the sum of four
# batches' gradients and not their mean.
import tensorflow as tf

epochs = 1
model = tf.keras.Sequential([
    tf.keras.layers.Input((32, 32, 3)),
    tf.keras.layers.Conv2D(8, 3, activation="relu"),
    tf.keras.layers.GlobalAveragePooling2D(),
    tf.keras.layers.Dense(10, activation="softmax"),
])
loss_function = tf.keras.losses.SparseCategoricalCrossentropy()
images = tf.random.stateless_uniform((64, 32, 32, 3), (1, 2))
labels = tf.random.stateless_uniform((64,), (3, 4), 0, 10, tf.int32)
train_dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(8)

accumulation_steps = 4  # Accumulate gradients over 4 mini-batches

optimizer = tf.keras.optimizers.Adam(learning_rate=1e-3)

for epoch in range(epochs):
    accumulated_gradients = None
    for step, (x_batch, y_batch) in enumerate(train_dataset):
        with tf.GradientTape() as tape:
            predictions = model(x_batch)
            loss = loss_function(y_batch, predictions)
        gradients = tape.gradient(loss, model.trainable_variables)
        if accumulated_gradients is None:
            accumulated_gradients = gradients
        else:
            accumulated_gradients = [tf.add(g1, g2) for g1, g2 in zip(accumulated_gradients, gradients)]

        if (step + 1) % accumulation_steps == 0:
            optimizer.apply_gradients(zip(accumulated_gradients, model.trainable_variables))
            accumulated_gradients = None
        print("Loss: {}".format(loss))
