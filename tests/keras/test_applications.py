"""Every model of keras.applications: opens and plans exactly at its own size, trains with Keras's loss and gradients, is written back.

Float32 gradients of such deep models are not exact even in Keras: with oneDNN on and off, their norms differ. Ours are compared with
Keras's in the same way as Keras with itself, at three quantiles over all weights of the model, so that neither one wrong weight
nor a class of slightly wrong ones can hide. `make test` runs three of the models, `make test-long` all 40 (rotation.py)."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest

import applications
import compare
import keras_side
import one_step
import program
import rotation

BATCH = 4
LOSS = 1e-4  # rounding of up to a thousand float32 layers; Keras's own float32 differs by 1e-5 from its float64 in ResNet50
SPREAD = 4  # times Keras's own spread between oneDNN on and off
LEAST = 1e-4  # share of a gradient's norm: what Keras's two runs may agree better than by chance
CHOSEN = rotation.some(applications.NAMES, 3, "applications")


def test_there_are_forty_models():
    assert len(applications.NAMES) == 40


@pytest.mark.parametrize("name", CHOSEN)
def test_plans_at_its_own_size(name, tmp_path):
    """The plan is exact by construction; here it must exist and be within 2 % of the live set."""
    path = applications.own_size_json(name, tmp_path)
    planned = program.plan(path, batch_size=8, budget="1TiB", threads=2, **applications.COMPILED)
    assert 0 <= planned["gap"] <= 0.02, planned["gap"]
    assert planned["arena_bytes"] == round((1 + planned["gap"]) * planned["live_set_bytes"])


@pytest.mark.parametrize("name", CHOSEN)
def test_one_step(name, tmp_path, rng):
    model = applications.small(name)
    x, y = applications.data(model, rng, BATCH)
    before = keras_side.values(model)
    model.compile(keras.optimizers.SGD(1.0), "sparse_categorical_crossentropy")
    _, gradients = keras_side.step_gradients(model, x, y)
    want_loss, want = float(_), np.array([np.linalg.norm(g.astype(np.float64)) for g in gradients])
    # A large power of two, so that the rounding of the stored weights hides no gradient.
    rate = one_step.rate_for(gradients) * 2.0**12
    trainable = {id(v): i for i, v in enumerate(model.trainable_variables)}
    order = [trainable.get(id(v)) for v in model.weights]
    model.set_weights(before)
    for layer in model.layers:
        if isinstance(layer, keras.layers.Normalization):
            layer.finalize_state()
    model.compile(keras.optimizers.SGD(rate), "sparse_categorical_crossentropy")
    path = tmp_path / "model.keras"
    model.save(path)
    del model, gradients
    keras.backend.clear_session()
    xy = program.arrays(tmp_path, x=x, y=y)
    on_loss, on = with_onednn(path, tmp_path)

    trained = program.fit(tmp_path, path, xy, batch_size=BATCH, epochs=1, steps=1)
    compare.close("application loss", name, trained.losses[0], want_loss, max(LOSS, SPREAD * abs(on_loss / want_loss - 1)))
    after = keras_side.values(keras_side.load(trained.saved))
    got = np.zeros(len(want))
    for old, new, i in zip(before, after, order, strict=True):
        if i is not None:
            got[i] = np.linalg.norm(compare.recovered_gradient(old, new, rate)[0])
    check_norms(name, got, want, on)


def with_onednn(path, folder):
    """Loss and norms of the same step by Keras with oneDNN, in a process of its own because the switch is read at import."""
    out = folder / "onednn.npz"
    command = [sys.executable, applications.__file__, "--step", path, folder / "x.npy", folder / "y.npy", out]
    subprocess.run(list(map(str, command)), check=True, env={**os.environ, "TF_ENABLE_ONEDNN_OPTS": "1"})
    with np.load(out) as f:
        return float(f["loss"]), f["norms"]


def check_norms(name, got, want, other):
    top = np.max(want)
    real = want > compare.ZERO * top  # a bias before BatchNorm has a true gradient of zero: both sides hold its rounding error
    ours, theirs = np.abs(got - want)[real] / want[real], np.abs(other - want)[real] / want[real]
    for share in (0.5, 0.9, 1.0):
        allowed = SPREAD * np.quantile(theirs, share) + LEAST
        compare.close("gradient norms", f"{name}: quantile {share}", np.quantile(ours, share), 0.0, allowed, scale=1)
    zero = got[~real]
    assert np.all(zero <= 10 * compare.ZERO * top), f"{name}: a gradient that should vanish has norm {zero.max()}, largest {top}"
