import tensorflow as tf
import numpy as np

# Generate dummy data
img_height, img_width = 64, 64
num_classes = 10
batch_size = 32

x_train = np.random.rand(1000, img_height, img_width, 3).astype(np.float32)
y_train = np.random.randint(0, num_classes, 1000)
train_dataset = tf.data.Dataset.from_tensor_slices((x_train, y_train)).batch(batch_size)


model = tf.keras.models.Sequential([
    tf.keras.layers.Conv2D(32, (3, 3), activation='relu', input_shape=(img_height, img_width, 3)),
    tf.keras.layers.MaxPooling2D((2, 2)),
    tf.keras.layers.Flatten(),
    tf.keras.layers.Dense(num_classes, activation='softmax')
])

optimizer = tf.keras.optimizers.Adam()
loss_fn = tf.keras.losses.SparseCategoricalCrossentropy()

@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        logits = model(x)
        loss = loss_fn(y, logits)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss

for x_batch, y_batch in train_dataset:
  loss = train_step(x_batch,y_batch)
  print("Loss: {}".format(loss))
