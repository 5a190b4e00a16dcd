"""Models that begin with strings: the tokens, ids and outputs of Keras's own layers for the same texts, from every format that
holds strings."""

import json
import zipfile

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf

import program

L = keras.layers

TEXTS = [
    "The cat sat on the mat.",
    "A dog, a cat! And... a DOG?",
    "naïve café ÜBER straße İstanbul ﬁ",
    "",
    "   ",
    "\t tabs\nand  new\r\nlines\x0b\x0c ",
    "don't stop-me now: it's 3.14 (or 42) [a] {b} <c> a_b `x` ~y ^z |w \\v \"u\" 'q' @at #h $d %p &a *s +p =e",
    "日本語のテキスト 中文 русский текст",
    "emoji 😀 👍🏽 zero\u200bwidth nbsp\u00a0here \u3000wide \u2028line",
    "word " * 300,
    "x" * 5000,
    "the the the cat",
    "[UNK] cat [UNK]",
]
BYTES = [
    b"caf\xe9 latin1 \xff\xfe bytes",
    b"\xc3 \xc3\x28 cut \xe2\x82 and \xf0\x9f\x98 end",
    b"\xed\xa0\x80 surrogate \xc0\x80 overlong \xf4\x90\x80\x80 big \xf5\x80",
    b"nul\x00inside and \x00 at the end\x00",
    b"\x80\x81\x82 the cat \xc2\x85 next",
]
ALL = [text.encode() for text in TEXTS] + BYTES
VOCABULARY = ["the", "cat", "a", "dog", "word", "naïve", "日本語のテキスト", "x" * 5000, "and", "a cat", "the cat", "[unk]", "é", "\ufffd", "t", " "]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PLIMSOLL_CACHE", str(tmp_path / "cache"))


def records(path, rows):
    """TFRecord: values that are bytes, lists of bytes, or numbers."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for row in rows:
            features = {}
            for name, value in row.items():
                if isinstance(value, bytes):
                    value = [value]
                if isinstance(value, list) and isinstance(value[0] if value else 0, bytes):
                    features[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=value))
                elif np.issubdtype(np.asarray(value).dtype, np.floating):
                    features[name] = tf.train.Feature(float_list=tf.train.FloatList(value=np.ravel(value)))
                else:
                    features[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=np.ravel(value)))
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
    return path


VECTORIZATIONS = {
    "int": dict(output_sequence_length=20),
    "none": dict(output_sequence_length=9, standardize=None),
    "lower": dict(output_sequence_length=9, standardize="lower"),
    "strip": dict(output_sequence_length=9, standardize="strip_punctuation"),
    "characters": dict(output_sequence_length=40, split="character", standardize="lower"),
    "raw_characters": dict(output_sequence_length=40, split="character", standardize=None),
    "bigrams": dict(output_sequence_length=30, ngrams=2),
    "chosen_ngrams": dict(output_sequence_length=30, ngrams=(3, 1)),
    "character_ngrams": dict(output_mode="count", split="character", ngrams=3),
    "multi_hot": dict(output_mode="multi_hot"),
    "padded": dict(output_mode="multi_hot", pad_to_max_tokens=True, max_tokens=40),
    "count": dict(output_mode="count", ngrams=2),
    "tf_idf": dict(output_mode="tf_idf", idf_weights=np.linspace(0.1, 2, len(VOCABULARY))),
}


def together(inputs, outputs):
    """One row with all numbers."""
    model = keras.Model(inputs, L.Concatenate()([L.Rescaling(1.0)(one) for one in outputs]) if len(outputs) > 1 else L.Rescaling(1.0)(outputs[0]))
    return model


def test_vectorization_is_keras_own(tmp_path):
    text = keras.Input((), dtype="string", name="text")
    layers = [L.TextVectorization(vocabulary=VOCABULARY, name=name, **named) for name, named in VECTORIZATIONS.items()]
    model = together(text, [layer(text) for layer in layers])
    model.save(tmp_path / "m.keras")
    want = model(tf.constant(ALL)).numpy()
    data = records(tmp_path / "t.tfrecord", [{"text": one} for one in ALL])
    got = program.predict(tmp_path, tmp_path / "m.keras", data, batch_size=4)
    at = 0
    for layer in layers:
        width = layer(tf.constant(ALL)).shape[-1]
        wrong = np.argwhere(got[:, at : at + width] != want[:, at : at + width])
        assert len(wrong) == 0, (layer.name, wrong[:5], ALL[wrong[0][0]])
        at += width
    assert at == got.shape[1]


def test_adapted_vocabularies_come_from_the_file(tmp_path):
    text = keras.Input((1,), dtype="string", name="text")
    layers = [
        L.TextVectorization(output_sequence_length=12, max_tokens=30),
        L.TextVectorization(output_mode="tf_idf", ngrams=2, name="weights"),
        L.TextVectorization(output_mode="multi_hot", split="character", name="characters"),
    ]
    for layer in layers:  # Keras cannot read back a vocabulary of characters that end a line
        layer.adapt(tf.constant([text for text in TEXTS if text.isprintable()]))
    outputs = [L.Flatten(name=f"out_{i}")(L.Rescaling(1.0)(layer(text))) for i, layer in enumerate(layers)]
    model = keras.Model(text, outputs)
    model.save(tmp_path / "m.keras")
    np.save(tmp_path / "x.npy", np.array(TEXTS))
    program.run("predict", tmp_path / "m.keras", "--data", tmp_path / "x.npy", "--output", tmp_path / "p.npy")
    for i, layer in enumerate(layers):
        want = layer(tf.constant(TEXTS)).numpy().astype(np.float32)
        got = np.load(tmp_path / f"p.out_{i}.npy")
        assert np.allclose(got, want, rtol=1e-6, atol=0), layer.name


LOOKUPS = {
    "int": dict(),
    "masked": dict(mask_token=""),
    "buckets": dict(num_oov_indices=7),
    "salted": dict(num_oov_indices=5, salt=[133, 137], oov_method="farmhash"),
    "one_hot": dict(output_mode="one_hot"),
    "masked_hot": dict(output_mode="one_hot", mask_token="the the the cat", num_oov_indices=3),
    "padded": dict(output_mode="multi_hot", max_tokens=30, pad_to_max_tokens=True),
    "count": dict(output_mode="count", num_oov_indices=2),
    "tf_idf": dict(output_mode="tf_idf", idf_weights=[0.5, 0.25, 2.0, 0.1]),
}
HASHES = {
    "hash": dict(num_bins=11),
    "mask": dict(num_bins=11, mask_value=""),
    "salt": dict(num_bins=9, salt=1234567),
    "salts": dict(num_bins=300, salt=[2**62, 3]),
    "hot": dict(num_bins=6, output_mode="one_hot"),
    "hots": dict(num_bins=6, output_mode="multi_hot"),
    "counts": dict(num_bins=6, output_mode="count", mask_value="a"),
}


def test_lookups_and_hashes_are_keras_own(tmp_path):
    one = keras.Input((1,), dtype="string", name="one")
    words = ["red", "a", "naïve", "x" * 70]
    layers = [L.StringLookup(vocabulary=words, name="lookup_" + name, **named) for name, named in LOOKUPS.items()]
    layers += [L.Hashing(name="hashing_" + name, **named) for name, named in HASHES.items()]
    model = together(one, [layer(one) for layer in layers])
    model.save(tmp_path / "m.keras")
    strings = ALL + [w.encode() for w in words] + [bytes([65 + i % 26]) * i for i in range(150)]
    want = model(tf.constant(strings)[:, None]).numpy()
    data = records(tmp_path / "t.tfrecord", [{"one": s} for s in strings])
    got = program.predict(tmp_path, tmp_path / "m.keras", data, batch_size=16)
    assert np.array_equal(got, want), np.argwhere(got != want)[:5]


def test_several_strings_per_sample(tmp_path, rng):
    tags = keras.Input((3,), dtype="string", name="tags")
    words = ["red", "green", "blue"]
    layers = [L.StringLookup(vocabulary=words), L.StringLookup(vocabulary=words, output_mode="multi_hot"), L.StringLookup(vocabulary=words, output_mode="count"), L.Hashing(5)]
    layers += [L.TextVectorization(vocabulary=words, split=None, **named) for named in ({}, {"output_sequence_length": 2}, {"output_sequence_length": 5}, {"output_mode": "multi_hot"})]
    model = together(tags, [layer(tags) for layer in layers])
    model.save(tmp_path / "m.keras")
    x = rng.choice(words + ["", "grey"], (20, 3))
    want = model(tf.constant(x)).numpy()
    np.save(tmp_path / "u.npy", x)
    np.save(tmp_path / "s.npy", x.astype("S"))
    np.savez_compressed(tmp_path / "c.npz", tags=x)
    records(tmp_path / "t.tfrecord", [{"tags": [s.encode() for s in row]} for row in x])
    with h5py.File(tmp_path / "h.h5", "w") as file:
        file["tags"] = x.astype("S")
    with h5py.File(tmp_path / "z.h5", "w") as file:
        file.create_dataset("tags", data=x.astype("S"), compression="gzip", chunks=(3, 3))
    with h5py.File(tmp_path / "v.h5", "w") as file:
        file.create_dataset("tags", data=x.astype(object), dtype=h5py.string_dtype())
    for name in ("u.npy", "s.npy", "c.npz", "t.tfrecord", "h.h5", "z.h5", "v.h5"):
        got = program.predict(tmp_path, tmp_path / "m.keras", tmp_path / name, batch_size=6)
        assert np.array_equal(got, want), name


def sentiment(vectorize, embed=16):
    model = keras.Sequential(
        [
            keras.Input((1,), dtype="string"),
            vectorize,
            L.Embedding(vectorize.vocabulary_size(), embed, mask_zero=True),
            L.LSTM(8),
            L.Dense(1, activation="sigmoid"),
        ]
    )
    model.compile(keras.optimizers.Adam(0.01), "binary_crossentropy", metrics=["accuracy"])
    return model


def reviews(rng, n):
    good, bad = ["great", "lovely", "Superb!"], ["awful", "boring,", "bad"]
    labels = rng.integers(0, 2, n)
    texts = [" ".join(rng.choice(["the", "film", "was", "so", *(good if label else bad)], rng.integers(3, 12))) for label in labels]
    return texts, labels


def text_folder(folder, texts, labels):
    for i, (text, label) in enumerate(zip(texts, labels)):
        place = folder / ("pos" if label else "neg")
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{i:03}.txt").write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def test_a_text_classifier_trains_like_keras_and_goes_back(tmp_path, rng):
    texts, labels = reviews(rng, 40)
    vectorize = L.TextVectorization(max_tokens=50, output_sequence_length=10)
    vectorize.adapt(tf.constant(texts))
    model = sentiment(vectorize)
    model.save(tmp_path / "m.keras")
    np.savez(tmp_path / "d.npz", x=np.array(texts), y=labels.astype(np.float32))
    trained = program.fit(tmp_path, tmp_path / "m.keras", tmp_path / "d.npz", batch_size=8, epochs=2, budget="96MiB")
    x = tf.constant(texts)[:, None]
    for step in range(10):
        i = step % 5 * 8
        model.reset_metrics()
        want = model.train_on_batch(x[i : i + 8], labels[i : i + 8, None], return_dict=True)["loss"]
        assert abs(trained.losses[step] - want) < 1e-4, step
    back = keras.models.load_model(trained.saved)
    assert np.allclose(back.predict(x, verbose=0), model.predict(x, verbose=0), atol=2e-5)
    assert back.layers[0].get_vocabulary() == vectorize.get_vocabulary()
    with zipfile.ZipFile(trained.saved) as new, zipfile.ZipFile(tmp_path / "m.keras") as old:
        assert json.loads(new.read("config.json")) == json.loads(old.read("config.json"))
        assert {n for n in old.namelist() if "assets" in n} <= set(new.namelist())
    # another optimizer rewrites the configuration; the vocabulary stays where it was
    other = program.fit(tmp_path, trained.saved, tmp_path / "d.npz", "--optimizer", "sgd", name="other", batch_size=8, epochs=1)
    with zipfile.ZipFile(other.saved) as new:
        assert '"vocabulary": null' in json.dumps(json.loads(new.read("config.json")))
    assert keras.models.load_model(other.saved).layers[0].get_vocabulary() == vectorize.get_vocabulary()


def test_the_plan_counts_the_vocabulary_and_a_run_resumes_bitwise(tmp_path, rng):
    words = [f"word{i:06}" for i in range(40_000)]
    texts = [" ".join(rng.choice(words, 30)) for _ in range(64)]
    labels = rng.integers(0, 2, 64)
    folder = text_folder(tmp_path / "texts", texts, labels)
    model = sentiment(L.TextVectorization(vocabulary=words, output_sequence_length=20), embed=2)
    model.save(tmp_path / "m.keras")
    common = dict(batch_size=8, seed=3, shuffle="true")
    plan = program.plan(tmp_path / "m.keras", "--data", folder, **{k: common[k] for k in ("batch_size",)})
    assert plan["data_bytes"] > 40_000 * (10 + 8 + 4)
    whole = program.fit(tmp_path, tmp_path / "m.keras", folder, name="whole", epochs=2, budget="200MiB", **common)
    assert whole.done["process_peak_bytes"] <= whole.plan["peak_bytes"]
    checkpoints = tmp_path / "checkpoints"
    program.fit(tmp_path, tmp_path / "m.keras", folder, "--checkpoint", checkpoints, name="half", epochs=1, **common)
    rest = program.fit(tmp_path, tmp_path / "m.keras", folder, "--checkpoint", checkpoints, "--resume", name="rest", epochs=2, **common)
    assert list(rest.losses) == list(whole.losses[8:])


def test_a_folder_of_texts_is_that_of_keras(tmp_path, rng):
    texts, labels = reviews(rng, 30)
    texts[:5] = BYTES
    texts[5] = ""
    folder = text_folder(tmp_path / "texts", texts, labels)
    (folder / "pos" / "notes.md").write_text("ignored")
    (folder / "pos" / "deep").mkdir()
    (folder / "pos" / "deep" / "A.TXT").write_text("film great")
    (folder / ".hidden").mkdir()
    vectorize = L.TextVectorization(max_tokens=50, output_sequence_length=10)
    vectorize.adapt(tf.constant(texts[5:]))
    model = sentiment(vectorize)
    model.save(tmp_path / "m.keras")
    read = keras.utils.text_dataset_from_directory
    whole = read(str(folder), label_mode="binary", shuffle=False, batch_size=7, verbose=False)
    got = program.predict(tmp_path, tmp_path / "m.keras", folder, batch_size=7)
    assert np.allclose(got, model.predict(whole, verbose=0), atol=1e-6)
    want = model.evaluate(whole, verbose=0, return_dict=True)
    answer = program.evaluate(tmp_path / "m.keras", folder, batch_size=7)
    assert abs(answer["loss"] - want["loss"]) < 1e-5 and abs(answer["metrics"]["accuracy"] - want["accuracy"]) < 1e-6
    held = read(str(folder), label_mode="binary", validation_split=0.3, subset="validation", seed=5, batch_size=7, shuffle=True, verbose=False)
    ended = program.run(
        *("fit", tmp_path / "m.keras", "--data", folder, "--validation-split", 0.3, "--seed", 5, "--epochs", 1, "--learning-rate", 1e-30),
        *("--batch-size", 7, "--save", tmp_path / "s.keras", "--log", tmp_path / "l.jsonl"),
    )
    assert ended.code == 0
    epoch = [e for e in program.read_log(tmp_path / "l.jsonl") if e["event"] == "epoch"][0]
    want = model.evaluate(held, verbose=0, return_dict=True)
    assert abs(epoch["metrics"]["val_loss"] - want["loss"]) < 1e-5


def test_csv_columns_of_strings(tmp_path, rng):
    import csv

    n = 24
    text = keras.Input((1,), dtype="string", name="review")
    color = keras.Input((1,), dtype="string", name="color")
    size = keras.Input((2,), name="size")
    vectorize = L.TextVectorization(vocabulary=VOCABULARY[:6], output_mode="multi_hot")
    lookup = L.StringLookup(vocabulary=["red", "green"], output_mode="one_hot")
    x = L.Concatenate()([L.Flatten()(vectorize(text)), lookup(color), size])
    model = keras.Model([text, color, size], L.Dense(1)(x))
    model.compile("sgd", "mse")
    model.save(tmp_path / "m.keras")
    texts = [(TEXTS * 2)[i] for i in range(n)]
    colors, sizes, y = rng.choice(["red", "green", "NA", ""], n), rng.random((n, 2)).astype(np.float32), rng.random(n).astype(np.float32)
    with open(tmp_path / "t.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["w", "review", "label", "color", "h"])
        for i in range(n):
            writer.writerow([sizes[i, 0], texts[i], y[i], colors[i], sizes[i, 1]])
    # The reader takes \r\n as the end of a line outside quotes only.
    want = model.evaluate([tf.constant(texts)[:, None], tf.constant(colors)[:, None], sizes], y, batch_size=5, verbose=0)
    assert abs(program.evaluate(tmp_path / "m.keras", tmp_path / "t.csv", batch_size=5)["loss"] - want) < 1e-5 * max(1, want)
    trained = program.fit(tmp_path, tmp_path / "m.keras", tmp_path / "t.csv", batch_size=6, epochs=2)
    assert len(trained.losses) == 8


def test_features_of_variable_length(tmp_path, rng):
    rows = [{"ids": rng.integers(1, 30, rng.integers(0, 9)), "label": np.array([float(i % 2)], np.float32)} for i in range(20)]
    rows[3]["ids"] = np.zeros(0, np.int64)
    data = records(tmp_path / "v.tfrecord", rows)
    padded = np.zeros((20, 8), np.int64)
    for i, row in enumerate(rows):
        padded[i, : len(row["ids"])] = row["ids"]
    for shape in ((8,), (None,), (12,)):
        model = keras.Sequential([keras.Input(shape, dtype="int32"), L.Embedding(30, 4, mask_zero=True), L.LSTM(3), L.Dense(1)])
        model.compile("sgd", "mse")
        model.save(tmp_path / "m.keras")
        x = np.pad(padded, ((0, 0), (0, 4))) if shape == (12,) else padded
        want = model.predict(x, verbose=0)
        got = program.predict(tmp_path, tmp_path / "m.keras", data, "--features", "x=ids:variable", batch_size=6)
        assert np.allclose(got, want, atol=1e-6), shape
    model = keras.Sequential([keras.Input((None,), dtype="int32"), L.Embedding(30, 4, mask_zero=True), L.LSTM(3), L.Dense(1)])
    model.compile("sgd", "mse")
    model.save(tmp_path / "m.keras")
    trained = program.fit(tmp_path, tmp_path / "m.keras", data, "--features", "x=ids:variable", "--buckets", "2,4", batch_size=4, epochs=1)
    assert len(trained.losses) >= 5
    short = keras.Sequential([keras.Input((5,), dtype="int32"), L.Embedding(30, 4, mask_zero=True), L.LSTM(3), L.Dense(1)])
    short.compile("sgd", "mse")
    short.save(tmp_path / "m.keras")
    ended = program.run("evaluate", tmp_path / "m.keras", "--data", data, "--features", "x=ids:variable", expect=4)
    assert "more than the 5" in ended.stderr and ":cut" in ended.stderr
    want = short.predict(padded[:, :5], verbose=0)
    got = program.predict(tmp_path, tmp_path / "m.keras", data, "--features", "x=ids:cut", batch_size=6)
    assert np.allclose(got, want, atol=1e-6)
    ended = program.run("evaluate", tmp_path / "m.keras", "--data", data, "--features", "x=ids", expect=None)
    assert ended.code in (2, 4) and ":variable" in ended.stderr


def test_open_length_takes_the_longest_text(tmp_path, rng):
    texts, labels = reviews(rng, 20)
    vectorize = L.TextVectorization()
    vectorize.adapt(tf.constant(texts))
    model = sentiment(vectorize)
    model.save(tmp_path / "m.keras")
    np.savez(tmp_path / "d.npz", x=np.array(texts), y=labels.astype(np.float32))
    want = model.predict(tf.constant(texts)[:, None], batch_size=20, verbose=0)
    got = program.predict(tmp_path, tmp_path / "m.keras", tmp_path / "d.npz", batch_size=20)
    assert np.allclose(got, want, atol=1e-5)
    trained = program.fit(tmp_path, tmp_path / "m.keras", tmp_path / "d.npz", "--buckets", "4,8", batch_size=5, epochs=1)
    assert len(trained.losses) >= 4


def test_convert_keeps_strings(tmp_path, rng):
    folder = text_folder(tmp_path / "texts", TEXTS + [b"caf\xe9"], [i % 2 for i in range(len(TEXTS) + 1)])
    order = sorted(range(len(TEXTS) + 1), key=lambda i: (i % 2, i))
    want = [(TEXTS[i].encode() if i < len(TEXTS) else b"caf\xe9") for i in order]
    program.run("convert", folder, tmp_path / "a.tfrecord")
    read = tf.data.TFRecordDataset(str(tmp_path / "a.tfrecord")).map(
        lambda r: tf.io.parse_single_example(r, {"x": tf.io.FixedLenFeature([], tf.string), "y": tf.io.FixedLenFeature([], tf.int64)})
    )
    rows = list(read.as_numpy_iterator())
    assert [row["x"] for row in rows] == want and [row["y"] for row in rows] == [i % 2 for i in order]
    program.run("convert", tmp_path / "a.tfrecord", tmp_path / "b.npz", "--features", "x=x:text")
    arrays = np.load(tmp_path / "b.npz")
    assert list(arrays["x"]) == want and list(arrays["y"].ravel()) == [i % 2 for i in order]
    program.run("convert", tmp_path / "b.npz", tmp_path / "c.csv")
    program.run("convert", tmp_path / "c.csv", tmp_path / "d.tfrecord", "--features", "x=x:text", "--label-column", "label")
    again = tf.data.TFRecordDataset(str(tmp_path / "d.tfrecord")).map(lambda r: tf.io.parse_single_example(r, {"x": tf.io.FixedLenFeature([], tf.string)})["x"])
    assert list(again.as_numpy_iterator()) == want
    ended = program.run("convert", tmp_path / "b.npz", tmp_path / "e.safetensors", expect=2)
    assert "no strings" in ended.stderr


def test_what_is_not_taken_is_named(tmp_path):
    text = keras.Input((1,), dtype="string", name="text")

    def refused(build, expect=2):
        model = keras.Model(text, build(text))
        model.compile("sgd", "mse")
        model.save(tmp_path / "m.keras")
        return program.run("plan", tmp_path / "m.keras", expect=expect).stderr

    assert "sparse=true" in refused(lambda t: L.Dense(1)(L.TextVectorization(vocabulary=["a"], output_mode="multi_hot", sparse=True)(t)))
    assert "ragged=true" in refused(lambda t: L.Embedding(5, 2)(L.TextVectorization(vocabulary=["a"], ragged=True)(t)))
    assert "reads strings" in refused(lambda t: L.StringLookup(vocabulary=["a"])(L.Reshape((1,))(t)))
    np.save(tmp_path / "o.npy", np.array(["a", None], dtype=object), allow_pickle=True)
    np.save(tmp_path / "f.npy", np.zeros((4, 1), np.float32))
    model = keras.Model(text, L.Dense(1)(L.StringLookup(vocabulary=["a"], output_mode="one_hot")(text)))
    model.save(tmp_path / "m.keras")
    ended = program.run("predict", tmp_path / "m.keras", "--data", tmp_path / "o.npy", "--output", tmp_path / "p.npy", expect=None)
    assert ended.code in (2, 4) and "Python objects" in ended.stderr and "astype(str)" in ended.stderr
    ended = program.run("predict", tmp_path / "m.keras", "--data", tmp_path / "f.npy", "--output", tmp_path / "p.npy", expect=None)
    assert ended.code in (2, 4) and "takes strings" in ended.stderr
    strict = keras.Model(text, L.Dense(1)(L.StringLookup(vocabulary=["a"], num_oov_indices=0, output_mode="one_hot")(text)))
    strict.save(tmp_path / "m.keras")
    np.save(tmp_path / "s.npy", np.array(["a", "b"]))
    ended = program.run("predict", tmp_path / "m.keras", "--data", tmp_path / "s.npy", "--output", tmp_path / "p.npy", expect=None)
    assert ended.code in (2, 4) and "'b'" in ended.stderr and "sample 1" in ended.stderr


def test_a_tflite_file_has_no_strings(tmp_path):
    text = keras.Input((1,), dtype="string", name="text")
    keras.Model(text, L.Dense(1)(L.StringLookup(vocabulary=["a"], output_mode="one_hot")(text))).save(tmp_path / "m.keras")
    ended = program.run("shrink", "quantize", tmp_path / "m.keras", "-o", tmp_path / "m.tflite", expect=2)
    assert "error P205" in ended.stderr and "(StringLookup)" in ended.stderr and not (tmp_path / "m.tflite").exists()
