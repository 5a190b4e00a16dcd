# Completed: `create_model` and the data.
import tensorflow as tf

strategy = tf.distribute.MirroredStrategy() # Or other strategies like MultiWorkerMirroredStrategy

def create_model():
  return tf.keras.Sequential([
      tf.keras.layers.Input((32, 32, 3)),
      tf.keras.layers.Conv2D(8, 3, activation="relu"),
      tf.keras.layers.GlobalAveragePooling2D(),
      tf.keras.layers.Dense(10, activation="softmax"),
  ])

images = tf.random.stateless_uniform((64, 32, 32, 3), (1, 2))
labels = tf.one_hot(tf.random.stateless_uniform((64,), (3, 4), 0, 10, tf.int32), 10)
train_dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(16)

with strategy.scope():
  model = create_model() # Function to define the model
  optimizer = tf.keras.optimizers.Adam()
  loss_fn = tf.keras.losses.CategoricalCrossentropy()
  metrics = ['accuracy']

  model.compile(optimizer=optimizer, loss=loss_fn, metrics=metrics)
  history = model.fit(train_dataset, epochs=2) # train_dataset is the data generator from Example 1
print("Losses:", *history.history["loss"])
