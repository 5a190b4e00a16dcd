"""Differential fuzzing: random functional models of up to 30 layers against Keras. `make test` tries 50, `make test-long` 2,000.

    python tests/keras/test_random_models.py COUNT [SEED]      a long run; prints each failing model, shrunk, as Python

Every model compares outputs, the loss and all gradients of one step. A model that the program refuses (P205) counts as refused,
and the test fails if too many are, because then it would compare nothing."""

import os
import pathlib
import sys
import tempfile

if __name__ == "__main__":
    os.environ.update(KERAS_BACKEND="tensorflow", CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="3", TF_ENABLE_ONEDNN_OPTS="0")

import keras
import numpy as np
import pytest

import compare
import keras_side
import one_step
import program
import random_models
import rotation
import runs

COUNT = 2000 if rotation.LONG else 50
GROUPS = 10  # tests, so that a failure does not hide the others
# No dimension of a sample: Keras 3.15 on TensorFlow takes a [batch, 1] that it adds for a bias if the batch has as many samples as channels.
N = 11
MOST_REFUSED = 0.4
# Gradients of thirty layers: rounding of each is amplified by those above it; a wrong formula is off by far more.
BOUND = 1e-3


def batch(model, rng):
    x = {t.name: rng.standard_normal((N,) + tuple(t.shape[1:])).astype(np.float32) for t in model.inputs}
    for value in x.values():
        if value.ndim == 3:
            value[rng.random(value.shape[:2]) < 0.3] = 0.5  # what Masking masks
    return x, rng.standard_normal((N, 3)).astype(np.float32)


def check(steps, seed, folder):
    """One step on both sides; raises AssertionError if they differ, program.Failed if the program ends in an error."""
    keras.backend.clear_session()
    model = keras_side.randomize(random_models.Network(steps).model(), seed)
    x, y = batch(model, np.random.default_rng(seed))
    before = keras_side.values(model)
    inputs = [x[t.name] for t in model.inputs]
    model.compile(keras.optimizers.SGD(1.0), "mse")
    predictions = np.array(model(inputs, training=False))
    loss, gradients = keras_side.step_gradients(model, inputs, y)
    if not np.isfinite(loss) or not np.all(np.isfinite(predictions)):
        return
    statistics = keras_side.values(model)
    rate = one_step.rate_for(gradients)
    model.set_weights(before)
    model.compile(keras.optimizers.SGD(rate), "mse")
    path = folder / "model.keras"
    model.save(path)
    only = program.archive(folder, "only.npz", **x)
    got = program.predict(folder, path, only, batch_size=N)
    compare.close("random output", "random", got, predictions, BOUND / 10)
    trained = program.fit(folder, path, runs.data_of(folder, x, {"out": y}), batch_size=N, epochs=1, steps=1)
    compare.close("random loss", "random", trained.losses[0], loss, BOUND / 10)
    after = keras_side.values(keras_side.load(trained.saved))
    top = max((compare.largest(g) for g in gradients if g is not None), default=0)
    at = {id(v): g for v, g in zip(model.trainable_variables, gradients)}
    for variable, moved, new in zip(model.weights, statistics, after):
        want = at.get(id(variable))
        if want is None:
            compare.close("random statistic", variable.path, new, moved, BOUND / 10)
            continue
        gradient, rounding = compare.recovered_gradient(moved, new, rate)
        compare.close("random gradient", variable.path, gradient, want, BOUND, scale=max(compare.largest(want), 1e-3 * top), allowance=rounding)


def outcome(steps, seed, folder):
    """"" if both sides agree, "refused", or what is wrong."""
    try:
        check(steps, seed, folder)
    except program.Failed as e:
        return "refused" if "error P205" in str(e) else str(e)
    except AssertionError as e:
        return str(e)
    return ""


def run(numbers, folder, stop=1):
    """(refused, failures) of the models with these numbers; a failure is shrunk and shown as Python."""
    refused, failures = 0, []
    for number in numbers:
        seed = int(rotation.rng("models", number).integers(2**31))
        steps = random_models.draw(np.random.default_rng(seed))
        what = outcome(steps, seed, folder)
        if what == "refused":
            refused += 1
        elif what:
            same = lambda smaller: outcome(smaller, seed, folder) not in ("", "refused")
            small = random_models.shrink(steps, same)
            failures.append(
                f"model {number} of PLIMSOLL_SEED={rotation.SEED} (numpy seed {seed}):\n{outcome(small, seed, folder)}\n"
                f"{random_models.text_of(small)}\n"
            )
            if len(failures) >= stop:
                break
    return refused, failures


@pytest.mark.parametrize("group", range(GROUPS))
def test_random_models(group, tmp_path):
    numbers = range(group, COUNT, GROUPS)
    refused, failures = run(numbers, tmp_path)
    assert not failures, "\n".join(failures)
    assert refused <= MOST_REFUSED * len(numbers), f"{refused} of {len(numbers)} models are refused"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        refused, failures = run(range(int(sys.argv[1])), pathlib.Path(folder), stop=10)
        print(f"PLIMSOLL_SEED={rotation.SEED}: {sys.argv[1]} models, {refused} refused, {len(failures)} failures")
        print("\n".join(failures))
