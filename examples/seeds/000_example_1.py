# Completed: eight small JPEG files are written, and their labels are read from their names. `tf.py_function` forgets the
# shape of what it returns, so `set_shape` is added.
import pathlib
import tempfile

import tensorflow as tf

folder = pathlib.Path(tempfile.mkdtemp())
for i in range(64):
  image = tf.cast(tf.random.stateless_uniform((64, 64, 3), (i, i), 0, 256, tf.int32), tf.uint8)
  tf.io.write_file(str(folder / f"{i % 10}_{i}.jpeg"), tf.io.encode_jpeg(image))


def create_dataset(filepath, batch_size=32):
  dataset = tf.data.Dataset.from_tensor_slices(filepath)
  dataset = dataset.map(lambda x: shaped(*tf.py_function(load_and_preprocess, [x], [tf.float32, tf.int32]))) #Custom Function
  dataset = dataset.batch(batch_size).prefetch(tf.data.AUTOTUNE)
  return dataset

#Custom function to load and pre-process single data point
def load_and_preprocess(filepath):
  # Load image, resize, normalize...
  label = int(pathlib.Path(filepath.numpy().decode()).name.split("_")[0])
  image = tf.io.read_file(filepath)
  image = tf.image.decode_jpeg(image, channels=3)
  image = tf.image.resize(image, (224, 224))
  image = image / 255.0
  return image, label

def shaped(image, label):
  image.set_shape((224, 224, 3))
  label.set_shape(())
  return image, label

model = tf.keras.Sequential([
    tf.keras.layers.Input((224, 224, 3)),
    tf.keras.layers.Conv2D(16, 3, activation="relu"),
    tf.keras.layers.MaxPooling2D(),
    tf.keras.layers.Conv2D(32, 3, activation="relu"),
    tf.keras.layers.GlobalAveragePooling2D(),
    tf.keras.layers.Dense(10, activation="softmax"),
])
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")

train_dataset = create_dataset(sorted(str(p) for p in folder.iterdir()), batch_size=16)  #Reduced Batch Size
history = model.fit(train_dataset, epochs=2)
print("Losses:", *history.history["loss"])
