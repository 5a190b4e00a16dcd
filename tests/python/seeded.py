"""Runs the script that is named first, with seeds set from outside it."""

import runpy
import sys

import keras

keras.utils.set_random_seed(1)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
