"""Text: ids in integer files, Embedding, and the masks it makes, through layers to the losses and metrics."""

import keras
import numpy as np
import pytest

import compare
import keras_side
import program
import runs
from one_step import check_step

L = keras.layers
N, T, WORDS = 12, 9, 20


def sentences(rng, n=N, length=T, words=WORDS, dtype=np.int32):
    """Ids padded with 0 to one length; the longest sentence fills it."""
    ids = rng.integers(1, words, (n, length)).astype(dtype)
    for row, used in enumerate(rng.integers(1, length + 1, n)):
        ids[row, used:] = 0
    ids[0] = rng.integers(1, words, length)
    return ids


def model_of(*layers, shape=(T,), dtype="int32"):
    return keras.Sequential([keras.Input(shape, dtype=dtype), *layers])


def classifier(mask_zero):
    return model_of(
        L.Embedding(WORDS, 8, mask_zero=mask_zero),
        L.Conv1D(6, 3, activation="tanh", padding="same"),
        L.GlobalMaxPooling1D(),
        L.Dense(4, activation="softmax"),
    )


MODELS = {
    "cnn": lambda: classifier(False),
    "cnn_masked": lambda: classifier(True),  # Conv1D stops the mask
    "mean": lambda: model_of(L.Embedding(WORDS, 8), L.GlobalAveragePooling1D(), L.Dense(2)),
    "masked_mean": lambda: model_of(L.Embedding(WORDS, 8, mask_zero=True), L.GlobalAveragePooling1D(), L.Dense(2)),
    "masked_mean_keepdims": lambda: model_of(
        L.Embedding(WORDS, 8, mask_zero=True),
        L.Dense(5, activation="tanh"),
        L.GlobalAveragePooling1D(keepdims=True),
        L.Dense(2),
    ),
    "masked_loss": lambda: model_of(L.Embedding(WORDS, 8, mask_zero=True), L.Dense(3, activation="tanh"), L.Dense(2)),
    "penalized": lambda: model_of(L.Embedding(WORDS, 8, embeddings_regularizer="l2"), L.Flatten(), L.Dense(2)),
    "constrained": lambda: model_of(L.Embedding(WORDS, 8, embeddings_constraint="non_neg"), L.Flatten(), L.Dense(2)),
    "of_one": lambda: model_of(L.Embedding(WORDS, 3), L.Dense(2), shape=()),
    "of_images": lambda: model_of(L.Embedding(WORDS, 3, mask_zero=True), L.Dense(2), shape=(3, 4)),
    "of_floats": lambda: model_of(L.Embedding(WORDS, 3), L.Flatten(), L.Dense(2), dtype="float32"),
}


@pytest.mark.parametrize("name", MODELS)
def test_embedding(name, tmp_path, rng):
    model = MODELS[name]()
    shape = model.input_shape[1:]
    x = sentences(rng, length=int(np.prod(shape)) if shape else 1).reshape((N, *shape))
    if name == "of_floats":
        x = x.astype(np.float32) + 0.75  # Keras cuts off the fraction
    y = rng.standard_normal((N, *model.output_shape[1:])).astype(np.float32)
    check_step(tmp_path, model, x, y, "mse")


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.uint16])
def test_ids_of_other_dtypes(dtype, tmp_path, rng):
    model = classifier(False)
    y = rng.standard_normal((N, 4)).astype(np.float32)
    check_step(tmp_path, model, sentences(rng, dtype=dtype), y, "mse")


def test_text_is_trained_as_in_keras(tmp_path, rng):
    """The model of a well-known example: embedding, convolution, pooling, classes; several epochs of Adam."""
    model = keras_side.randomize(classifier(True))
    model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
    x = rng.integers(1, WORDS, (40, T)).astype(np.int32)
    runs.check_run(tmp_path, "text", model, x, rng.integers(0, 4, 40).astype(np.int32), 8, epochs=4)


@pytest.mark.parametrize("optimizer", ["Adam", "RMSprop", "Adagrad", "Adamax", "Nadam", "Lion", "Ftrl", "Lamb", "AdamW"])
def test_optimizers_square_the_gradient_of_each_token(optimizer, tmp_path, rng):
    """Keras keeps the gradient of a table as IndexedSlices, and squares it before the tokens of a row are added up."""
    model = keras_side.randomize(model_of(L.Embedding(WORDS, 8), L.Flatten(), L.Dense(3)))
    model.compile(getattr(keras.optimizers, optimizer)(0.01), "mse")
    x = rng.integers(0, 5, (24, T)).astype(np.int32)
    y = rng.standard_normal((24, 3)).astype(np.float32)
    runs.check_run(tmp_path, optimizer, model, x, y, 8, epochs=2)


@pytest.mark.parametrize("optimizer", ["Adam", "Adamax", "Adafactor", "Muon"])
def test_micro_batches_add_up_the_squares_of_the_tokens(optimizer, tmp_path, rng):
    """A row that occurs several times in a batch, in one micro-batch or in several."""
    model = keras_side.randomize(model_of(L.Embedding(WORDS, 8), L.Flatten(), L.Dense(3)))
    model.compile(getattr(keras.optimizers, optimizer)(0.01), "mse")
    x = rng.integers(0, 5, (24, T)).astype(np.int32)
    y = rng.standard_normal((24, 3)).astype(np.float32)
    runs.check_run(tmp_path, optimizer, model, x, y, 8, ("--micro-batch", "3"), epochs=2)


def test_micro_batches_of_masked_tokens_under_adam(tmp_path, rng):
    """The mask's factor is known at the end of the window: it multiplies the squares twice."""
    table = L.Embedding(WORDS, 8, mask_zero=True)
    i = keras.Input((T,), dtype="int32")
    words = table(i)
    model = keras_side.randomize(keras.Model(i, L.Dense(5, activation="softmax")(words + L.Dense(8)(table(i)))))
    model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy")
    x = sentences(rng, 36, words=6)
    y = rng.integers(0, 5, (36, T)).astype(np.int32)
    runs.check_run(tmp_path, "masked", model, x, y, 12, ("--micro-batch", "5"), epochs=3)


def test_micro_batches_beside_accumulation_and_penalties(tmp_path, rng):
    """Where Keras squares the sum, so do micro-batches: with the optimizer's own accumulation, and with a penalty."""
    for name, table, options in (
        ("accumulated", L.Embedding(WORDS, 4), {"gradient_accumulation_steps": 2}),
        ("penalized", L.Embedding(WORDS, 4, embeddings_regularizer="l2"), {}),
    ):
        model = keras_side.randomize(model_of(table, L.Flatten(), L.Dense(2)))
        model.compile(keras.optimizers.Adam(0.01, **options), "mse")
        x = rng.integers(0, 5, (24, T)).astype(np.int32)
        y = rng.standard_normal((24, 2)).astype(np.float32)
        runs.check_run(tmp_path, name, model, x, y, 8, ("--micro-batch", "3"), epochs=2)


def test_clipped_tokens_refuse_micro_batches(tmp_path, rng):
    model = model_of(L.Embedding(WORDS, 8), L.Flatten(), L.Dense(3))
    model.compile(keras.optimizers.Adam(0.01, clipnorm=1.0), "mse")
    model.save(tmp_path / "model.keras")
    ended = program.run("plan", tmp_path / "model.keras", "--batch-size", 8, "--micro-batch", 4, expect=None)
    assert ended.code != 0 and "P302" in ended.stderr and "clips the gradient of each token" in ended.stderr, ended.stderr


@pytest.mark.parametrize("clip", [{"clipnorm": 0.1}, {"global_clipnorm": 0.1}, {"clipvalue": 0.01}], ids=lambda c: [*c][0])
def test_clipping_sees_each_token(clip, tmp_path, rng):
    model = keras_side.randomize(model_of(L.Embedding(WORDS, 8), L.Flatten(), L.Dense(3)))
    model.compile(keras.optimizers.Adam(0.01, **clip), "mse")
    x = rng.integers(0, 5, (24, T)).astype(np.int32)
    y = rng.standard_normal((24, 3)).astype(np.float32)
    runs.check_run(tmp_path, "clipped", model, x, y, 8, epochs=2)


def test_a_table_that_is_read_twice(tmp_path, rng):
    i = keras.Input((T,), dtype="int32")
    table = L.Embedding(WORDS, 8)
    model = keras_side.randomize(keras.Model(i, L.Dense(3)(L.Flatten()(table(i) * L.Dense(8)(table(i[:, ::-1]))))))
    model.compile(keras.optimizers.Adam(0.01), "mse")
    x = rng.integers(0, 5, (24, T)).astype(np.int32)
    y = rng.standard_normal((24, 3)).astype(np.float32)
    runs.check_run(tmp_path, "twice", model, x, y, 8, epochs=2)


@pytest.mark.parametrize("flags", [(), ("--micro-batch", "3")], ids=["whole", "by_3"])
def test_masked_tokens_are_trained_as_in_keras(flags, tmp_path, rng):
    """Classes of words: the loss is a mean over the words that are there."""
    model = keras_side.randomize(model_of(L.Embedding(WORDS, 8, mask_zero=True), L.Dense(5, activation="softmax")))
    model.compile(keras.optimizers.SGD(0.5, momentum=0.5), "sparse_categorical_crossentropy")
    x = sentences(rng, 36)
    runs.check_run(tmp_path, "words", model, x, rng.integers(0, 5, (36, T)).astype(np.int32), 12, flags, epochs=4)


def test_an_id_outside_of_the_table_is_found_in_the_data(tmp_path, rng):
    model = classifier(False)
    model.compile("sgd", "mse")
    model.save(tmp_path / "model.keras")
    x, y = sentences(rng), np.zeros((N, 4), np.float32)
    x[3, 2] = WORDS
    data = program.arrays(tmp_path, x=x, y=y)
    ended = program.run("fit", tmp_path / "model.keras", "--data", data, "--save", tmp_path / "out.keras", expect=4)
    assert "error P404" in ended.stderr and "sample 3 has the id 20 at (2,)" in ended.stderr, ended.stderr


def given_masks():
    i, m = keras.Input((T, 4), name="x"), keras.Input((T,), dtype="bool", name="mask")
    j = keras.Input((T, 4), name="other")
    hidden = L.Dense(5, activation="tanh")
    return {
        "pooling": keras.Model([i, m], L.Dense(2)(L.GlobalAveragePooling1D()(hidden(i), mask=m))),
        "batch_norm": keras.Model([i, m], L.Dense(2)(L.BatchNormalization(momentum=0.5)(hidden(i), mask=m))),
        "numbers": keras.Model([i, j], L.GlobalAveragePooling1D()(hidden(i), mask=keras.ops.sum(j, -1) > 0.5)),
    }


@pytest.mark.parametrize("name", ["pooling", "batch_norm", "numbers"])
def test_a_mask_that_a_call_is_given(name, tmp_path, rng):
    model = given_masks()[name]
    x = {"x": rng.standard_normal((N, T, 4)).astype(np.float32)}
    if name == "numbers":
        x["other"] = rng.standard_normal((N, T, 4)).astype(np.float32)
        x["other"][:, 0] = 1
    else:
        x["mask"] = rng.random((N, T)) < 0.7
        x["mask"][:, 0] = True
    y = rng.standard_normal((N, *model.output_shape[1:])).astype(np.float32)
    keras_side.randomize(model)
    model.compile(keras.optimizers.SGD(0.125), "mse")
    path = tmp_path / "model.keras"
    model.save(path)
    y_name = model.output_names[0]
    data = program.archive(tmp_path, **x, **{y_name: y})
    trained = program.fit(tmp_path, path, data, batch_size=N, epochs=3, steps=3)
    want = keras_side.train(model, x, y, N, 3, eager=True)
    for step, (a, b) in enumerate(zip(trained.losses, want, strict=True)):
        compare.close("loss", f"step {step}", a, b, compare.LOSS)


def two_outputs(first_masked, second_masked, penalty=None):
    i, j = keras.Input((T,), dtype="int32", name="a"), keras.Input((T,), dtype="int32", name="b")
    p = L.Dense(3, name="p", activity_regularizer=penalty)(L.Embedding(WORDS, 4, mask_zero=first_masked)(i))
    q = L.Dense(2, name="q")(L.Embedding(WORDS, 4, mask_zero=second_masked)(j))
    return keras.Model([i, j], {"p": p, "q": q})


DIFFERENT = {
    "both": ((True, True), {}),
    "one": ((True, False), {}),
    "penalty": ((True, True), {"penalty": "l2"}),
    "sum_and_mean": ((True, True), {"losses": lambda: {"p": keras.losses.MeanSquaredError(reduction="sum"), "q": "mse"}}),
    "weighted_mean": (
        (True, True),
        {"losses": lambda: {"p": keras.losses.MeanSquaredError(reduction="mean_with_sample_weight"), "q": "mae"}},
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_losses_with_different_masks(name, tmp_path, rng):
    masked, options = DIFFERENT[name]
    model = keras_side.randomize(two_outputs(*masked, options.get("penalty")))
    losses = options.get("losses", lambda: {"p": "mse", "q": "mae"})()
    model.compile(keras.optimizers.SGD(1 / 64), losses, loss_weights={"p": 1.0, "q": 0.5})
    x = {"a": sentences(rng), "b": sentences(rng)}
    y = {k: rng.standard_normal((N, T, c)).astype(np.float32) for k, c in (("p", 3), ("q", 2))}
    path = tmp_path / "model.keras"
    model.save(path)
    trained = program.fit(tmp_path, path, program.archive(tmp_path, **x, **y), batch_size=6, epochs=3, steps=6)
    want = keras_side.train(model, x, y, 6, 3, eager=True)
    for step, (a, b) in enumerate(zip(trained.losses, want, strict=True)):
        compare.close("loss", f"{name}: step {step}", a, b, compare.LOSS)
    loaded = keras_side.load(trained.saved)
    runs.check_weights(name, keras_side.values(loaded), keras_side.values(model), model.weights, compare.FEW_STEPS)


METRICS = {
    "mse": lambda: ["mse", "mae", "cosine_similarity"],
    "binary": lambda: ["binary_accuracy", keras.metrics.BinaryCrossentropy(), "root_mean_squared_error"],
    "classes": lambda: ["categorical_accuracy", keras.metrics.TopKCategoricalAccuracy(2)],
    "thresholds": lambda: [keras.metrics.AUC(num_thresholds=9), keras.metrics.Precision(), keras.metrics.Recall()],
}


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("name", METRICS)
def test_metrics_of_a_masked_output(name, weighted, tmp_path, rng):
    model = keras_side.randomize(
        model_of(L.Embedding(WORDS, 6, mask_zero=True), L.Dense(3, activation="sigmoid"))
    )
    model.compile("sgd", "mse", **{"weighted_metrics" if weighted else "metrics": METRICS[name]()})
    x, y = sentences(rng), rng.integers(0, 2, (N, T, 3)).astype(np.float32)
    weight = rng.random(N).astype(np.float32) if weighted else None
    model.save(tmp_path / "model.keras")
    data = program.arrays(tmp_path, x=x, y=y, sample_weight=weight)
    got = program.evaluate(tmp_path / "model.keras", data, batch_size=5)
    rows = None if weight is None else weight.reshape(N, 1)
    want = model.evaluate(x, y, sample_weight=rows, batch_size=5, verbose=0, return_dict=True)
    for metric, value in got["metrics"].items():
        compare.close("metric", metric, value, want[metric], compare.LOSS)
    assert len(got["metrics"]) >= 1


def recommender(rows, width):
    """The architecture alone: Keras would hold the table while it is made."""
    model = model_of(L.Embedding(7, width), L.GlobalAveragePooling1D(), L.Dense(2), shape=(20,))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return model.to_json().replace('"input_dim": 7', f'"input_dim": {rows}')


def test_a_large_table_is_trained_within_2_gib(tmp_path):
    """793,471 x 512 floats are 1.51 GiB: SGD changes rows in place, and no gradient as large as the table is stored."""
    path = tmp_path / "model.json"
    path.write_text(recommender(793471, 512))
    plan = program.plan(path, batch_size=128, budget="2GiB", optimizer="sgd", loss="mse")
    assert plan["fits"] and plan["peak_bytes"] < 2 << 30
    assert plan["arena_bytes"] < 793471 * 512 * 4 + (64 << 20)


def test_the_time_of_a_step_does_not_grow_with_the_table(tmp_path):
    seconds = []
    for rows in (1000, 100000):
        path = tmp_path / f"{rows}.json"
        path.write_text(recommender(rows, 64))
        seconds.append(program.plan(path, batch_size=128, optimizer="sgd", loss="mse")["step_seconds"])
    assert seconds[1] == seconds[0]


VOCABULARY = 4100


def language_model(activation):
    i = keras.Input((16,), dtype="int32")
    x = L.Embedding(VOCABULARY, 4)(i)
    x = x + L.MultiHeadAttention(2, 4, use_bias=False)(x, x, use_causal_mask=True)
    model = keras.Model(i, L.Dense(VOCABULARY, activation=activation, name="out")(L.LayerNormalization()(x)))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=activation is None)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    return keras_side.randomize(model)


@pytest.mark.parametrize("activation, micro", [(None, 16), ("softmax", 5)])
def test_logits_of_a_large_vocabulary_in_chunks(activation, micro, tmp_path, rng):
    model, n, batch = language_model(activation), 32, 16
    x = rng.integers(0, VOCABULARY, (n, 16)).astype(np.int32)
    y = rng.integers(0, VOCABULARY, (n, 16)).astype(np.int32)
    model.save(tmp_path / "model.keras")
    shared = {"batch_size": batch, "data": runs.data_of(tmp_path, x, y)}
    flags = ("--micro-batch", str(micro), "--allow", "micro-batch,chunk-logits")
    budget = program.plan(tmp_path / "model.keras", *flags, **shared)["least_bytes"]
    whole = program.plan(tmp_path / "model.keras", *flags[:3], "micro-batch", **shared)
    assert budget < whole["least_bytes"]
    trained, _ = runs.check_run(tmp_path, "vocabulary", model, x, y, batch, (*flags, "--budget", str(budget)), epochs=3)
    levers = {lever["name"]: lever for lever in trained.plan["levers"]}
    assert levers["chunk-logits"]["effect"] == "rounding"
