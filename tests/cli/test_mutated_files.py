"""A sample of tests/fuzz/whole_program.py: on mutated files the whole program ends with a proper error.

MUTATED_FILES is the number of files per kind; `make test-long` sets it to 2,000.
"""

import os
import subprocess
import sys

import pytest

import program


@pytest.mark.parametrize("kind", ("plan", "checkpoint", "zip", "hdf5", "config", "h5", "saved_model"))
def test_mutated_files_cost_an_error_and_nothing_else(kind):
    script = program.ROOT / "tests" / "fuzz" / "whole_program.py"
    ended = subprocess.run([sys.executable, script, kind, os.environ.get("MUTATED_FILES", "50")], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
