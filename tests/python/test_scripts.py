"""`plimsoll run`, `plan` and `check` of scripts that are not changed."""

import os
import pathlib
import re
import subprocess
import textwrap

import pytest

SCRIPT = """
import sys
import numpy as np
from tensorflow.keras.models import Sequential
from tensorflow.keras import layers
import tensorflow as tf

tf.keras.utils.set_random_seed(5)
x, y = np.random.rand(96, 8, 8, 1).astype("float32"), np.random.randint(0, 4, 96)
model = Sequential([layers.Input((8, 8, 1)), layers.Conv2D(4, 3, activation="relu"), layers.Flatten(), layers.Dense(4, activation="softmax")])
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
history = model.fit(x, y, batch_size=int(sys.argv[1]), epochs=2, shuffle=False, verbose=0)
print("name", __name__, "arguments", sys.argv[1:], "file", __file__.rsplit("/", 1)[-1])
print("losses", *("%.5f" % loss for loss in history.history["loss"]))
print("evaluated %.5f" % model.evaluate(x, y, verbose=0)[0])
"""

UNKNOWN = """
import numpy as np
import keras

class Mine(keras.layers.Layer):
    def call(self, x):
        return keras.random.shuffle(x)

model = keras.Sequential([keras.Input((3,)), Mine(), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(np.ones((8, 3)), np.ones((8, 1)), verbose=0)
print("done")
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(SCRIPT))
    return path


def plimsoll(python, *arguments):
    command = pathlib.Path(python).parent / "plimsoll"
    return subprocess.run([command, *map(str, arguments)], capture_output=True, text=True, timeout=600,
                          env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"})


def numbers(text):
    return [float(n) for n in re.findall(r"(?<=[ ])\d+\.\d{5}", text)]


def test_run_trains_an_unchanged_script_with_keras_s_losses(python, script):
    alone = subprocess.run([python, script, "32"], capture_output=True, text=True, timeout=600)
    assert alone.returncode == 0, alone.stderr
    ours = plimsoll(python, "run", script, "32", "--budget", "2GiB", "--no-fallback")
    assert ours.returncode == 0, ours.stderr
    assert "name __main__ arguments ['32'] file train.py" in ours.stdout
    assert numbers(ours.stdout) == pytest.approx(numbers(alone.stdout), rel=2e-4) and len(numbers(ours.stdout)) == 3
    assert "plimsoll: fit() of" in ours.stderr


def test_plan_stops_at_the_first_fit(python, script):
    ended = plimsoll(python, "plan", "--budget", "2GiB", script, "16")
    assert ended.returncode == 0, ended.stderr
    assert "Batch 16" in ended.stdout and "Fits:" in ended.stdout and "held by the script" in ended.stdout and "losses" not in ended.stdout
    assert plimsoll(python, "plan", "--budget", "40MiB", script, "16").returncode == 3


def test_check_compares_the_script_s_first_fit(python, script):
    ended = plimsoll(python, "check", script, "32")
    assert ended.returncode == 0, ended.stderr
    assert "loss of step 3" in ended.stdout and "losses" not in ended.stdout


def test_what_does_not_fit_ends_with_3_and_what_is_unknown_falls_back_or_ends_with_2(python, script, tmp_path):
    ended = plimsoll(python, "run", "--budget", "30MiB", script, "32")
    assert ended.returncode == 3 and ended.stderr.count("error P301") == 1
    unknown = tmp_path / "unknown.py"
    unknown.write_text(UNKNOWN)
    ended = plimsoll(python, "run", unknown)
    assert ended.returncode == 0 and "done" in ended.stdout and "unknown.py:7" in ended.stderr
    ended = plimsoll(python, "run", unknown, "--no-fallback")
    assert ended.returncode == 2 and "done" not in ended.stdout and "error P205" in ended.stderr


def test_other_commands_are_the_program_s(python, tmp_path):
    assert "plimsoll 1." in plimsoll(python, "--version").stdout
    assert plimsoll(python, "plan", "seed-2", "--batch-size", "8").returncode == 0
    assert plimsoll(python, "run", tmp_path / "missing.py").returncode == 2
    assert "usage: plimsoll run" in plimsoll(python, "run", "--help").stdout
