"""--buckets: samples in groups by length, each batch cut to the length of its group, against Keras on the same batches."""

import keras
import numpy as np
import pytest

import compare
import keras_side
import program
import runs

L = keras.layers
N, T, WORDS, BATCH = 45, 24, 20, 6
LIMITS = (T, 16, 7)


def sentences(rng, longest=T, padding=0):
    x = rng.integers(1, WORDS, (N, longest)).astype(np.int32)
    for row, used in enumerate(rng.integers(1, longest + 1, N)):
        x[row, used:] = padding
    x[3] = rng.integers(1, WORDS, longest)
    return x


def masked_lstm():
    hidden = L.Bidirectional(L.LSTM(6))(L.Embedding(WORDS, 5, mask_zero=True)(i := keras.Input((None,), dtype="int32")))
    return keras.Model(i, L.Dense(1, activation="sigmoid")(hidden)), "binary_crossentropy", ()


def unmasked_cnn():
    """Without masks, shorter padding changes the result: what counts is that both sides cut in the same place."""
    hidden = L.Conv1D(6, 3, padding="same", activation="tanh")(L.Embedding(WORDS, 5)(i := keras.Input((None,), dtype="int32")))
    return keras.Model(i, L.Dense(1)(L.GlobalAveragePooling1D()(hidden))), "mse", ()


def tagger():
    """A class per word: the targets are cut with the inputs."""
    hidden = L.GRU(6, return_sequences=True)(L.Embedding(WORDS, 5, mask_zero=True)(i := keras.Input((None,), dtype="int32")))
    return keras.Model(i, L.Dense(4)(hidden)), keras.losses.SparseCategoricalCrossentropy(from_logits=True), (T,)


def attention():
    i = keras.Input((None,), dtype="int32")
    words = L.Embedding(WORDS, 8, mask_zero=True)(i)
    hidden = L.LayerNormalization()(words + L.MultiHeadAttention(2, 4)(words, words))
    return keras.Model(i, L.Dense(1)(L.GlobalAveragePooling1D()(hidden))), "mse", ()


def batches(x, y, limits=LIMITS, batch=BATCH, padding=0):
    """The batches of an epoch without shuffling: groups one after the other, the longest first."""
    used = T - np.argmax(x[:, ::-1] != padding, axis=1)
    for limit, below in zip(limits, (*limits[1:], 0)):
        rows = np.flatnonzero((used > below) & (used <= limit))
        for at in range(0, len(rows), batch):
            chosen = rows[at : at + batch]
            yield x[chosen, :limit], y[chosen, :limit] if y.ndim > 1 and y.shape[1] == T else y[chosen]


def targets(rng, shape, loss):
    if shape:
        return rng.integers(0, 4, (N, *shape)).astype(np.int32)
    return rng.integers(0, 2, N).astype(np.float32)[:, None]


@pytest.mark.parametrize("flags", [(), ("--micro-batch", "4")], ids=["whole", "by_4"])
@pytest.mark.parametrize("make", [masked_lstm, unmasked_cnn, tagger, attention], ids=lambda m: m.__name__)
def test_each_length_is_trained_as_in_keras(make, flags, tmp_path, rng):
    model, loss, shape = make()
    if flags and make is not masked_lstm:
        pytest.skip("one model is enough")
    keras_side.randomize(model)
    model.compile(keras.optimizers.SGD(0.05, momentum=0.5), loss)
    x, y = sentences(rng), targets(rng, shape, loss)
    model.save(tmp_path / "model.keras")
    data = program.arrays(tmp_path, x=x, y=y)
    named = dict(buckets="16,7", batch_size=BATCH, epochs=2)
    trained = program.fit(tmp_path, tmp_path / "model.keras", data, *flags, **named)
    want = [float(model.train_on_batch(*one)) for _ in range(2) for one in batches(x, y)]
    # One scale for all steps: the squared error of a small last batch may be near 0, where its terms cancel.
    for step, (a, b) in enumerate(zip(trained.losses, want, strict=True)):
        compare.close("run loss", f"{make.__name__}: step {step + 1}", a, b, compare.RUN_LOSS, scale=max(want))
    loaded = keras_side.load(trained.saved)
    runs.check_weights(make.__name__, keras_side.values(loaded), keras_side.values(model), model.weights)
    buckets = trained.done["buckets"]
    assert [b["steps"] for b in buckets] == list(LIMITS) and sum(b["samples"] for b in buckets) == N
    for bucket in buckets:
        assert bucket["arena_planned_bytes"] == bucket["arena_peak_bytes"], bucket
    planned = [b["arena_planned_bytes"] for b in buckets]
    assert planned == sorted(planned, reverse=True) and planned[0] > planned[-1], planned




def test_padding_of_numbers_and_two_inputs(tmp_path, rng):
    """A step of several numbers is padding if all of them are; the longest of the inputs decides."""
    i, j = keras.Input((None, 3), name="a"), keras.Input((None,), name="b")
    joined = L.Concatenate()([L.SimpleRNN(4)(L.Masking(-1.0)(i)), L.GlobalAveragePooling1D()(L.Reshape((-1, 1))(j))])
    model = keras_side.randomize(keras.Model([i, j], L.Dense(1)(joined)))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    model.save(tmp_path / "model.keras")
    a = rng.standard_normal((N, T, 3)).astype(np.float32)
    b = rng.standard_normal((N, T)).astype(np.float32)
    for row, used in enumerate(rng.integers(1, T + 1, N)):
        a[row, used:], b[row, max(used - 2, 1) :] = -1, -1
        a[row, used - 1, 0] = -1  # one number alone is no padding
    a[0], b[1] = 1, 1
    y = rng.standard_normal((N, 1)).astype(np.float32)
    data = program.archive(tmp_path, a=a, b=b, y=y)
    trained = program.fit(
        tmp_path, tmp_path / "model.keras", data, batch_size=BATCH, epochs=1, buckets="10", padding=-1
    )
    used = np.array([max(np.flatnonzero((a[r] != -1).any(-1) | (b[r] != -1))) + 1 for r in range(N)])
    want = []
    for limit, rows in ((T, np.flatnonzero(used > 10)), (10, np.flatnonzero(used <= 10))):
        for at in range(0, len(rows), BATCH):
            chosen = rows[at : at + BATCH]
            want.append(float(model.train_on_batch([a[chosen, :limit], b[chosen, :limit]], y[chosen])))
    for step, (one, other) in enumerate(zip(trained.losses, want, strict=True)):
        compare.close("run loss", f"two inputs: step {step + 1}", one, other, compare.RUN_LOSS, scale=max(want))


def test_shuffled_runs_resume_and_validate(tmp_path, rng):
    """A resumed run ends with the same bits; lengths that the data choose; validation at the length of the arrays."""
    model, loss, _ = masked_lstm()
    model.compile("adam", loss)
    model.save(tmp_path / "model.keras")
    x, y = sentences(rng), targets(rng, (), loss)
    data = program.arrays(tmp_path, x=x, y=y)
    held = program.arrays(tmp_path, prefix="held_", x=x[:10], y=y[:10])
    named = dict(
        buckets="auto", batch_size=BATCH, shuffle="true", validation_data=held, seed=3, checkpoint_every=4
    )
    whole = program.fit(tmp_path, tmp_path / "model.keras", data, name="whole", epochs=3, **named)
    assert len(whole.done["buckets"]) > 1
    run = dict(named, checkpoint=tmp_path / "run")
    program.fit(tmp_path, tmp_path / "model.keras", data, name="half", epochs=1, **run)
    resumed = program.fit(tmp_path, tmp_path / "model.keras", data, "--resume", name="resumed", epochs=3, **run)
    assert [e["metrics"] for e in whole.of("epoch")][1:] == [e["metrics"] for e in resumed.of("epoch")]
    for a, b in zip(*(keras_side.values(keras_side.load(one.saved)) for one in (whole, resumed))):
        assert np.array_equal(a, b)
    assert not np.array_equal(whole.losses[:8], whole.losses[8:16])
    other = program.run(
        "fit", tmp_path / "model.keras", "--data", data, "--save", tmp_path / "o.keras", "--resume",
        *program.options(**{**run, "buckets": "5,9"}), expect=2,
    )  # fmt: skip
    assert "P212" in other.stderr and "--buckets" in other.stderr, other.stderr


def test_a_budget_holds_for_all_plans(tmp_path, rng):
    """Each length keeps its kernels: a budget that fits one plan but not all of them is refused before the first step."""
    model, loss, _ = attention()
    model.compile("sgd", loss)
    model.save(tmp_path / "model.keras")
    data = program.arrays(tmp_path, x=sentences(rng), y=targets(rng, (), loss))
    named = dict(batch_size=BATCH)
    one = program.fit(tmp_path, tmp_path / "model.keras", data, buckets=T, **named).plan["peak_bytes"]
    many = program.fit(tmp_path, tmp_path / "model.keras", data, buckets="20,16,12,9,7,5,3", **named)
    assert many.plan["peak_bytes"] > one and len(many.plan["buckets"]) > 6
    tight = program.run(
        "fit", tmp_path / "model.keras", "--data", data, "--save", tmp_path / "o.keras",
        *program.options(**named, budget=one, buckets="20,16,12,9,7,5,3"), expect=3,
    )  # fmt: skip
    assert "P301" in tight.stderr and "fewer lengths in --buckets" in tight.stderr, tight.stderr


@pytest.mark.parametrize(
    "flags, says",
    [
        (["--buckets", "8,x"], "takes auto, or lengths"),
        (["--buckets", "0"], "takes auto, or lengths"),
        (["--buckets", ",".join(map(str, range(1, 40)))], "at most 32"),
        (["--buckets", "8", "--batch-size", "auto"], "--batch-size auto"),
        (["--buckets", "8", "--profile"], "--profile"),
        (["--padding", "1"], "--padding requires --buckets"),
    ],
)
def test_wrong_flags(flags, says, tmp_path, rng):
    model = keras.Sequential([keras.Input((None,), dtype="int32"), L.Embedding(WORDS, 3), L.GlobalAveragePooling1D(), L.Dense(1)])
    model.compile("sgd", "mse")
    model.save(tmp_path / "model.keras")
    x = rng.integers(1, WORDS, (8, 64)).astype(np.int32)
    data = program.arrays(tmp_path, x=x, y=np.zeros((8, 1), np.float32))
    ended = program.run(
        "fit", tmp_path / "model.keras", "--data", data, "--save", tmp_path / "o.keras", *flags, expect=2
    )
    assert says in ended.stderr, ended.stderr


def test_a_model_with_a_fixed_length_has_no_buckets(tmp_path, rng):
    model = keras.Sequential([keras.Input((T,), dtype="int32"), L.Embedding(WORDS, 3), L.Flatten(), L.Dense(1)])
    model.compile("sgd", "mse")
    model.save(tmp_path / "model.keras")
    data = program.arrays(tmp_path, x=sentences(rng), y=np.zeros((N, 1), np.float32))
    ended = program.run(
        "fit", tmp_path / "model.keras", "--data", data, "--save", tmp_path / "o.keras", "--buckets", "8", expect=2
    )
    assert "declared with [24]" in ended.stderr, ended.stderr
