"""Models with several outputs: one file of predictions per output, and sample weights for each, for all, or for only one output."""

import keras
import numpy as np
import pytest

import compare
import keras_side
import program
import runs

L = keras.layers
N, BATCH = 22, 8  # the last batch has six samples
OUTPUTS = ("kind", "size", "mask")


def network():
    image, facts = keras.Input((6, 6, 2), name="image"), keras.Input((5,), name="facts")
    features = L.Conv2D(4, 3, padding="same", activation="tanh")(image)
    both = L.Concatenate()([L.Flatten()(features), L.Dense(6, activation="tanh")(facts)])
    kind = L.Dense(4, activation="softmax", name="kind")(both)
    size = L.Dense(3, name="size")(both)
    mask = L.Conv2D(1, 1, activation="sigmoid", name="mask")(features)
    model = keras_side.randomize(keras.Model([image, facts], {"kind": kind, "size": size, "mask": mask}))
    model.compile(
        keras.optimizers.SGD(0.125, momentum=0.5),
        {"kind": "sparse_categorical_crossentropy", "size": "mse", "mask": "binary_crossentropy"},
        loss_weights={"kind": 1.0, "size": 0.5, "mask": 2.0},
        metrics={"kind": ["accuracy"], "size": ["mae"]},
        weighted_metrics={"kind": ["accuracy"], "size": ["mse"]},
    )
    return model


def samples(rng):
    x = {
        "image": rng.standard_normal((N, 6, 6, 2), dtype=np.float32),
        "facts": rng.standard_normal((N, 5), dtype=np.float32),
    }
    y = {
        "kind": rng.integers(0, 4, N),
        "size": rng.standard_normal((N, 3), dtype=np.float32),
        "mask": rng.integers(0, 2, (N, 6, 6, 1)).astype(np.float32),
    }
    return x, y


def weights_of(rng, which):
    """(arrays of the .npz, Keras's sample_weight: one number per sample, as [N, 1, 1], because Keras broadcasts only that over pixels)."""
    arrays, theirs = drawn_weights(rng, which)
    return arrays, {**theirs, "mask": theirs["mask"].reshape(N, 1, 1)}


def drawn_weights(rng, which):
    drawn = {name: rng.random(N, np.float32) * 2 for name in OUTPUTS}
    if which == "for_each":
        return {f"sample_weight_{name}": w for name, w in drawn.items()}, drawn
    if which == "for_all":
        return {"sample_weight": drawn["kind"]}, {name: drawn["kind"] for name in OUTPUTS}
    ones = np.ones(N, np.float32)  # Keras requires a weight for every output
    return {"sample_weight_size": drawn["size"]}, {**{name: ones for name in OUTPUTS}, "size": drawn["size"]}


def test_predictions_of_every_output(tmp_path, rng):
    model = network()
    model.save(tmp_path / "model.keras")
    x, _ = samples(rng)
    data = program.archive(tmp_path, **x)
    flags = ["--data", data, "--batch-size", BATCH, "--threads", 2, "--output", tmp_path / "out.npy"]
    told = program.run("predict", tmp_path / "model.keras", *flags).stderr
    assert all(f"out.{name}.npy" in told for name in OUTPUTS), told
    assert sorted(p.name for p in tmp_path.glob("out*")) == sorted(f"out.{name}.npy" for name in OUTPUTS)
    for name, want in model.predict(x, batch_size=BATCH, verbose=0).items():
        compare.close("output", name, np.load(tmp_path / f"out.{name}.npy"), want, compare.OUTPUT)


def test_predictions_of_a_file_that_cannot_be_written_leave_none(tmp_path, rng):
    """All output files are written, or none: the folder of the second file does not exist."""
    model = network()
    model.save(tmp_path / "model.keras")
    x, _ = samples(rng)
    (tmp_path / "out.size.npy").mkdir()
    flags = ["--data", program.archive(tmp_path, **x), "--output", tmp_path / "out.npy"]
    ended = program.run("predict", tmp_path / "model.keras", *flags, expect=6)
    assert "error P60" in ended.stderr
    assert [p.name for p in tmp_path.glob("out*") if p.is_file()] == []


@pytest.mark.parametrize("which", ("for_each", "for_all", "for_one"))
def test_sample_weights(which, tmp_path, rng):
    model = network()
    model.save(tmp_path / "model.keras")
    (x, y), (arrays, theirs) = samples(rng), weights_of(rng, which)
    data = program.archive(tmp_path, **x, **y, **arrays)

    got = program.evaluate(tmp_path / "model.keras", data, batch_size=BATCH)
    want = model.evaluate(x, y, sample_weight=theirs, batch_size=N, verbose=0, return_dict=True)
    compare.close("evaluate loss", which, got["loss"], want.pop("loss"), compare.LOSS)
    assert set(got["metrics"]) == set(want)
    for name, value in want.items():
        compare.close("metric", f"{which}: {name}", got["metrics"][name], value, compare.LOSS)

    trained = program.fit(tmp_path, tmp_path / "model.keras", data, batch_size=BATCH, epochs=2, steps=6)
    losses = []
    for begin in [*range(0, N, BATCH)] * 2:
        bx, by, bw = (keras_side.take(d, slice(begin, begin + BATCH)) for d in (x, y, theirs))
        losses.append(float(model.train_on_batch(bx, by, sample_weight=bw, return_dict=True)["loss"]))
    for step, (a, b) in enumerate(zip(trained.losses, losses, strict=True)):
        compare.close("few steps loss", f"{which}: step {step + 1}", a, b, compare.FEW_STEPS)
    loaded = keras_side.load(trained.saved)
    runs.check_weights(which, keras_side.values(loaded), keras_side.values(model), model.weights, compare.FEW_STEPS)


def test_sample_weights_in_micro_batches(tmp_path, rng):
    """Splitting the window in another way does not change its mean."""
    model = network()
    model.save(tmp_path / "model.keras")
    (x, y), (arrays, _) = samples(rng), weights_of(rng, "for_each")
    data = program.archive(tmp_path, **x, **y, **arrays)
    whole, cut = (
        program.fit(tmp_path, tmp_path / "model.keras", data, name=f"m{m}", batch_size=N, epochs=1, micro_batch=m, steps=1)
        for m in (N, 5)
    )
    compare.close("micro loss", "several outputs", cut.losses, whole.losses, compare.LOSS)
    before = keras_side.values(keras_side.load(tmp_path / "model.keras"))
    pairs = zip(*(keras_side.values(keras_side.load(t.saved)) for t in (cut, whole)), before)
    for k, (a, b, start) in enumerate(pairs):
        compare.close("micro", str(k), a - start, b - start, compare.MICRO, allowance=compare.HALF_ULP * compare.largest(b))
