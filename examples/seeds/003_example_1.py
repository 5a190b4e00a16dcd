# Completed: a file of records is written, `parse_function` and the training are filled in.
import pathlib
import tempfile

import tensorflow as tf

path = str(pathlib.Path(tempfile.mkdtemp()) / "train_data.tfrecord")
with tf.io.TFRecordWriter(path) as writer:
  for i in range(64):
    image = tf.io.serialize_tensor(tf.random.stateless_uniform((32, 32, 3), (i, i))).numpy()
    feature = {"image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
               "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[i % 10]))}
    writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())

def parse_function(record):
  fields = tf.io.parse_single_example(record, {"image": tf.io.FixedLenFeature((), tf.string), "label": tf.io.FixedLenFeature((), tf.int64)})
  return tf.ensure_shape(tf.io.parse_tensor(fields["image"], tf.float32), (32, 32, 3)), fields["label"]

def data_generator(data_path, batch_size):
  """Generates batches of data from TFRecord files."""
  dataset = tf.data.TFRecordDataset(data_path)
  dataset = dataset.map(parse_function)  # Custom function to parse TFRecord features
  dataset = dataset.batch(batch_size)
  dataset = dataset.prefetch(tf.data.AUTOTUNE) # Enables asynchronous data loading
  return dataset

model = tf.keras.Sequential([
    tf.keras.layers.Input((32, 32, 3)),
    tf.keras.layers.Conv2D(8, 3, activation="relu"),
    tf.keras.layers.GlobalAveragePooling2D(),
    tf.keras.layers.Dense(10, activation="softmax"),
])
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])

train_dataset = data_generator(path, 32)

losses = []
for batch in train_dataset:
  # Process each batch
  losses.append(model.fit(*batch, batch_size=32, shuffle=False, verbose=0).history["loss"][0])
print("Losses:", *losses)
