"""Runs the program on bad input, without Keras: the input is the files of tests/golden and changed copies of them."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "keras")]

import pytest

import program


def pytest_sessionstart(session):
    if not os.path.exists(program.PROGRAM[0]):
        pytest.exit(f"no program at {program.PROGRAM[0]}: build it, or name it by PLIMSOLL", returncode=2)
