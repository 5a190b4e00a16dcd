"""A batch cut into pieces inside one step trains as Keras trains the whole batch, BatchNormalization included: 1,000 samples,
batch 96, a last window of 40 samples. The program fit_in_pieces (tests/support) is $FIT_IN_PIECES, or stands beside the program
under test."""

import os
import pathlib
import subprocess

import keras
import pytest

import compare
import keras_side
import program
import runs
from test_accumulation import BATCH, prepared


@pytest.fixture
def trainer():
    beside = pathlib.Path(program.PROGRAM[0]).parent / "fit_in_pieces"
    trainer = pathlib.Path(os.environ.get("FIT_IN_PIECES", beside))
    if not trainer.exists():
        pytest.skip(f"no {trainer}: build the target fit_in_pieces")
    return trainer


@pytest.mark.parametrize("pieces", (2, 5))
def test_whole_run(pieces, trainer, tmp_path, rng):
    model, x, y, _, data = prepared(tmp_path, rng, keras.optimizers.SGD(0.05, momentum=0.9), normalize=True)
    saved = tmp_path / "out.keras"
    ended = subprocess.run(
        [trainer, tmp_path / "model.keras", data, str(BATCH), str(pieces), saved], check=True, capture_output=True, text=True
    )
    want = keras_side.train(model, x, y, BATCH)
    for step, (a, b) in enumerate(zip(map(float, ended.stdout.split()), want, strict=True)):
        compare.close("run loss", f"{pieces} pieces: step {step + 1}", a, b, compare.RUN_LOSS)
    loaded = keras_side.load(saved)
    runs.check_weights(f"{pieces} pieces", keras_side.values(loaded), keras_side.values(model), model.weights)
    runs.check_state(f"{pieces} pieces", keras_side.state(loaded), keras_side.state(model))
