"""Scripts after the best-known examples of keras.io (examples/keras_io): in the engine with Keras's losses, or in Keras with a reason.

Dropout is switched off for the comparison, and tf.random draws from Keras's generator: other random numbers are not Keras's. `make test` runs
three others each day (PLIMSOLL_SEED=20261119 repeats those of that day), and PLIMSOLL_SLOW_TESTS=1 runs all.
"""

import contextlib
import datetime
import math
import os
import pathlib
import random
import runpy

import keras
import pytest

import plimsoll
from plimsoll import tensorflow_names

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "examples" / "keras_io"
# `make test` leaves them out: they take a minute each.
SLOW = ("cyclegan", "deeplabv3_plus", "image_classification_efficientnet_fine_tuning", "retinanet", "siamese_network")
# Scripts that Keras runs, and why.
FALLS_BACK = {
    "captcha_ocr": "tf.gather_nd()",
    "ddim": "it computes with the value of variable",
    "image_captioning": "are not built before its first step",
    "neural_machine_translation_with_transformer": "'positional_embedding' makes a mask, or passes one on",
}
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
SEED = int(os.environ.get("PLIMSOLL_SEED") or datetime.date.today().strftime("%Y%m%d"))
SAMPLE = sorted(random.Random(SEED).sample([name for name in NAMES if name not in SLOW], 3))


@contextlib.contextmanager
def without_dropout():
    plain = keras.layers.Dropout.__init__
    keras.layers.Dropout.__init__ = lambda self, rate, *arguments, **named: plain(self, 0.0, *arguments, **named)
    try:
        yield
    finally:
        keras.layers.Dropout.__init__ = plain


def history_of(name):
    keras.backend.clear_session()
    with without_dropout(), tensorflow_names.drawn_by_keras():
        left = runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    [history] = [m.history.history for m in left.values() if isinstance(m, keras.Model) and getattr(m, "history", None) and m.history.history]
    return history


@pytest.mark.parametrize("name", NAMES if "PLIMSOLL_SLOW_TESTS" in os.environ else SAMPLE)
def test_script(name, capfd):
    with plimsoll.live(budget="6GiB"):
        ours = history_of(name)
    told = capfd.readouterr().err
    if name in FALLS_BACK:
        assert "runs in Keras" in told and FALLS_BACK[name] in told and f"{name}.py:" in told, told
        return
    assert "runs in Keras" not in told and "plimsoll: fit() of" in told, told
    theirs = history_of(name)
    assert list(ours) == list(theirs)
    for metric, numbers in theirs.items():
        for a, b in zip(ours[metric], numbers, strict=True):
            close = 1e-3 if "loss" in metric else 2e-2
            assert math.isclose(a, b, rel_tol=close, abs_tol=2e-2 if "loss" not in metric else 1e-5), (metric, ours[metric], numbers)
