"""plimsoll shrink distill: the training is Keras's, with the loss that the documentation states."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from program import run

CLASSES, BATCH = 4, 16


def classifier(*body, compiled=True, loss="sparse_categorical_crossentropy"):
    model = keras.Sequential([keras.Input((6,)), *body])
    if compiled:
        model.compile(keras.optimizers.SGD(0.05, momentum=0.9), loss, metrics=["accuracy"])
    return model


def save(tmp_path, rng, student=None):
    teacher = classifier(layers.Dense(24, activation="tanh"), layers.Dense(CLASSES, activation="softmax"), compiled=False)
    student = student or classifier(layers.Dense(5, activation="relu"), layers.Dense(CLASSES, activation="softmax"))
    teacher.save(tmp_path / "teacher.keras")
    student.save(tmp_path / "student.keras")
    x = rng.normal(size=(5 * BATCH - 3, 6)).astype("float32")
    y = rng.integers(0, CLASSES, len(x)).astype("int32")
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    return teacher, student, x, y


def distill(tmp_path, *flags, expect=0):
    return run(
        "shrink", "distill", tmp_path / "teacher.keras", "--student", tmp_path / "student.keras", "--data",
        f"{tmp_path}/x.npy,{tmp_path}/y.npy", "--batch-size", BATCH, "-o", tmp_path / "out.keras", *flags, expect=expect,
    )  # fmt: skip


def logits_of(model):
    model.layers[-1].activation = keras.activations.linear
    return keras.Sequential([keras.Input((6,)), *model.layers])


def test_distillation_is_the_training_that_keras_would_do(tmp_path, rng):
    teacher, student, x, y = save(tmp_path, rng)
    temperature, alpha, epochs = 3.0, 0.25, 2
    distill(tmp_path, "--shuffle", "false", "--epochs", epochs, "--temperature", temperature, "--alpha", alpha)
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
    from_teacher, from_student = logits_of(teacher), logits_of(student)
    soft = tf.nn.softmax(from_teacher(x) / temperature)
    for _ in range(epochs):
        for first in range(0, len(x), BATCH):
            part = slice(first, first + BATCH)
            with tf.GradientTape() as tape:
                z = from_student(x[part])
                hard = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(y[part], z, from_logits=True))
                kept = tf.reduce_mean(keras.losses.kl_divergence(soft[part], tf.nn.softmax(z / temperature)))
                loss = alpha * hard + (1 - alpha) * temperature**2 * kept
            variables = from_student.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
    made = keras.models.load_model(tmp_path / "out.keras")
    assert made.layers[-1].activation is keras.activations.softmax  # the student's own configuration
    for ours, expected in zip(made.get_weights(), from_student.get_weights()):
        np.testing.assert_allclose(ours, expected, rtol=2e-5, atol=2e-6)


def test_shuffled_samples_keep_their_teacher(tmp_path, rng):
    """With alpha 0 and labels of noise, only probabilities that follow their samples teach the teacher's classes."""
    teacher, student, x, _ = save(tmp_path, rng)
    x = rng.normal(size=(4000, 6)).astype("float32")
    teacher.layers[-1].set_weights([w * 4 for w in teacher.layers[-1].get_weights()])
    teacher.save(tmp_path / "teacher.keras")
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", rng.integers(0, CLASSES, len(x)).astype("int32"))
    distill(tmp_path, "--epochs", 12, "--alpha", 0, "--temperature", 2)
    made = keras.models.load_model(tmp_path / "out.keras")
    same = np.mean(made.predict(x, verbose=0).argmax(1) == teacher.predict(x, verbose=0).argmax(1))
    assert same > 0.8


def test_logits_are_computed_once(tmp_path, rng):
    teacher, _, x, _ = save(tmp_path, rng)
    flags = ("--cache", tmp_path / "logits.npy", "--json")
    first = json.loads(distill(tmp_path, *flags).stdout)
    np.testing.assert_allclose(np.load(tmp_path / "logits.npy"), logits_of(teacher).predict(x, verbose=0), rtol=1e-5, atol=1e-6)
    second = json.loads(distill(tmp_path, *flags).stdout)
    assert not first["teacher_logits_reused"] and second["teacher_logits_reused"]
    assert second["teacher_planned_bytes"] == 0
    np.save(tmp_path / "x.npy", x + 1)  # other data: the logits are computed again
    assert not json.loads(distill(tmp_path, *flags).stdout)["teacher_logits_reused"]


def test_bytes_as_data_and_a_softmax_layer(tmp_path, rng):
    student = classifier(layers.Rescaling(1 / 255), layers.Dense(CLASSES), layers.Softmax(), loss="categorical_crossentropy")
    _, _, x, y = save(tmp_path, rng, student)
    np.save(tmp_path / "x.npy", rng.integers(0, 255, x.shape).astype("uint8"))
    np.save(tmp_path / "y.npy", np.eye(CLASSES, dtype="uint8")[y])
    data = f"{tmp_path}/x.npy,{tmp_path}/y.npy"
    done = json.loads(distill(tmp_path, "--validation-data", data, "--json").stdout)
    assert done["steps"] == 5 and 0 <= done["metrics"]["accuracy"] <= 1
    made = keras.models.load_model(tmp_path / "out.keras")
    made.fit(np.load(tmp_path / "x.npy"), np.load(tmp_path / "y.npy"), verbose=0)  # it continues in Keras
    assert not list(tmp_path.glob("*.teacher.npy*"))


def test_the_teacher_is_no_part_of_the_students_plan(tmp_path, rng):
    _, student, x, y = save(tmp_path, rng)
    wide = classifier(layers.Dense(4000, activation="relu"), layers.Dense(1000, activation="relu"), layers.Dense(CLASSES), compiled=False)
    wide.save(tmp_path / "teacher.keras")
    flags = ("--cache", tmp_path / "logits.npy", "--json")
    assert json.loads(distill(tmp_path, *flags).stdout)["teacher_planned_bytes"] > 16e6
    again = json.loads(distill(tmp_path, *flags, "--budget", "64MiB").stdout)
    assert again["process_peak_bytes"] < 64 * 2**20


@pytest.mark.parametrize(
    "body, loss, says",
    [
        ([layers.Dense(1, activation="sigmoid")], "binary_crossentropy", "sigmoid"),
        ([layers.Dense(CLASSES)], "mse", "mse"),
        ([layers.Dense(3, activation="softmax")], "sparse_categorical_crossentropy", "classes"),
    ],
)
def test_students_that_cannot_learn_from_logits(body, loss, says, tmp_path, rng):
    save(tmp_path, rng, classifier(*body, loss=loss))
    y = np.load(tmp_path / "y.npy") % 3
    np.save(tmp_path / "y.npy", y)
    done = distill(tmp_path, expect=2)
    assert says in done.stderr and not (tmp_path / "out.keras").exists()
