"""One Python process does all Keras work: TensorFlow without oneDNN, with two threads and without a GPU."""

import os
import sys

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = ""
sys.path.insert(0, os.path.dirname(__file__))

import numpy as np
import pytest

import compare
import program
import rotation

import keras
import tensorflow as tf

tf.config.threading.set_intra_op_parallelism_threads(2)
tf.config.threading.set_inter_op_parallelism_threads(2)


@pytest.fixture(autouse=True)
def fresh():
    """Makes layer names and random numbers independent of the tests that ran before."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def pytest_sessionstart(session):
    if not os.path.exists(program.PROGRAM[0]):
        pytest.exit(f"no program at {program.PROGRAM[0]}: build it, or name it by PLIMSOLL", returncode=2)


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"cases of large sets were chosen with PLIMSOLL_SEED={rotation.SEED}")
    if compare.worst:
        terminalreporter.write_line("nearest to their bounds:")
        for line in compare.report():
            terminalreporter.write_line(line)
