"""TFRecord, HDF5 and CSV: the same numbers as tf.data, h5py and NumPy read from the same files."""

import csv

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf

import program
from test_image_folders import PIXEL, identity, pictures

L = keras.layers


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PLIMSOLL_CACHE", str(tmp_path / "cache"))


def feature(value):
    value = np.asarray(value) if not isinstance(value, bytes) else value
    if isinstance(value, bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
    if np.issubdtype(value.dtype, np.floating):
        return tf.train.Feature(float_list=tf.train.FloatList(value=value.ravel()))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=value.ravel()))


def write(path, rows, compression=""):
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for row in rows:
            features = tf.train.Features(feature={name: feature(value) for name, value in row.items()})
            writer.write(tf.train.Example(features=features).SerializeToString())
    return path


def predicted(folder, data, shape, *flags):
    return program.predict(folder, identity(folder, shape), data, *flags, batch_size=7)


def linear(folder, inputs, loss="mse", outputs=1):
    model = keras.Sequential([keras.Input((inputs,)), L.Dense(outputs)])
    model.compile(keras.optimizers.SGD(0.01), loss)
    model.save(folder / "model.keras")
    return model


def evaluated(folder, data, *flags):
    return program.evaluate(folder / "model.keras", data, *flags, batch_size=8)["loss"]


def check_loss(got, want):
    assert abs(got - want) <= 1e-5 * max(1, abs(want))


# ---- TFRecord


def test_floats_and_labels(tmp_path, rng):
    x, y = rng.standard_normal((50, 6)).astype(np.float32), rng.standard_normal(50).astype(np.float32)
    rows = [{"features": a, "label": np.array([b]), "other": b"text"} for a, b in zip(x, y)]
    write(tmp_path / "all.tfrecord", rows)
    write(tmp_path / "all.tfrecord.gz", rows, "GZIP")
    for k in range(3):
        write(tmp_path / f"part-{k}.tfrecord", rows[k * 20 : k * 20 + 20])
    assert np.array_equal(predicted(tmp_path, tmp_path / "all.tfrecord", (6,)), x)
    model = linear(tmp_path, 6)
    want = model.evaluate(x, y, batch_size=8, verbose=0)
    for name in ("all.tfrecord", "all.tfrecord.gz", "part-*.tfrecord"):
        check_loss(evaluated(tmp_path, tmp_path / name), want)
    trained = program.fit(tmp_path, tmp_path / "model.keras", tmp_path / "part-*.tfrecord", batch_size=10, epochs=1)
    for step in range(5):
        check_loss(trained.losses[step], model.train_on_batch(x[step * 10 : step * 10 + 10], y[step * 10 : step * 10 + 10]))


def test_integers_and_chosen_features(tmp_path, rng):
    x = rng.integers(-(2**40), 2**40, (20, 3))
    rows = [{"a": a, "b": np.arange(3), "c": np.array([0.5])} for a in x]
    write(tmp_path / "data.tfrecord", rows)
    got = predicted(tmp_path, tmp_path / "data.tfrecord", (3,), "--features", "x=a")
    assert np.array_equal(got, x.astype(np.float32))
    ended = program.run(
        "predict", tmp_path / "identity.keras", "--data", tmp_path / "data.tfrecord", "--output", tmp_path / "o.npy", expect=2
    )
    for words in ("a: 3 integers", "b: 3 integers", "c: 1 floats", "--features x=FEATURE"):
        assert words in ended.stderr, ended.stderr


@pytest.mark.parametrize("dtype", ["uint8", "float32", "int16"])
def test_raw_bytes(dtype, tmp_path, rng):
    x = rng.integers(0, 100, (30, 4, 5, 1)).astype(dtype)
    write(tmp_path / "data.tfrecord", [{"image_raw": a.tobytes()} for a in x])
    flags = ("--features", "x=image_raw:int16") if dtype == "int16" else ()
    got = predicted(tmp_path, tmp_path / "data.tfrecord", (4, 5, 1), *flags)
    assert np.array_equal(got, x.astype(np.float32))


def test_pictures_in_records(tmp_path, rng):
    data = list(pictures(rng).values())
    write(tmp_path / "data.tfrecord", [{"image/encoded": one, "image/class/label": np.array([k])} for k, one in enumerate(data)])
    decode = lambda one: tf.image.resize(tf.io.decode_image(one, 3, expand_animations=False), (24, 40)).numpy()
    want = np.stack([decode(one) for one in data])
    assert np.abs(predicted(tmp_path, tmp_path / "data.tfrecord", (24, 40, 3)) - want).max() <= PIXEL


def test_a_packed_list_may_be_unpacked(tmp_path):
    """Old writers wrote one field per element: tag, then four bytes."""
    floats = b"".join(b"\x0d" + np.float32(v).tobytes() for v in (1, 2, 3))
    value = b"\x12" + bytes([len(floats)]) + floats
    entry = b"\x0a\x01x\x12" + bytes([len(value)]) + value
    features = b"\x0a" + bytes([len(entry)]) + entry
    with tf.io.TFRecordWriter(str(tmp_path / "data.tfrecord")) as writer:
        writer.write(b"\x0a" + bytes([len(features)]) + features)
    assert np.array_equal(predicted(tmp_path, tmp_path / "data.tfrecord", (3,)), [[1, 2, 3]])


def test_every_record_once_per_epoch_from_an_index_that_knows_few(tmp_path):
    """More records than the index has entries. The sum of all targets is that of the losses of an epoch."""
    count = 600_000
    one = write(tmp_path / "one.tfrecord", [{"x": np.array([1.0], np.float32), "y": np.array([2.0], np.float32)}]).read_bytes()
    (tmp_path / "data.tfrecord").write_bytes(one * (count - 1) + write(
        tmp_path / "last.tfrecord", [{"x": np.array([1.0], np.float32), "y": np.array([1002.0], np.float32)}]
    ).read_bytes())
    model = keras.Sequential([keras.Input((1,)), L.Dense(1, kernel_initializer="zeros", use_bias=False)])
    model.compile(keras.optimizers.SGD(0.0), "mae")
    model.save(tmp_path / "model.keras")
    trained = program.fit(
        tmp_path, tmp_path / "model.keras", tmp_path / "data.tfrecord", batch_size=60_000, epochs=2, shuffle="true", seed=5
    )
    for epoch in (0, 1):
        total = trained.losses[epoch * 10 : epoch * 10 + 10].sum() * 60_000
        assert abs(total - (2.0 * count + 1000)) < 1
    assert trained.plan["data_bytes"] < 2**24


@pytest.mark.parametrize("damage", ["length", "data", "cut", "no_example"])
def test_damaged_records(damage, tmp_path, rng):
    x = rng.standard_normal((10, 3)).astype(np.float32)
    path = write(tmp_path / "data.tfrecord", [{"x": a} for a in x])
    data = bytearray(path.read_bytes())
    size = len(data) // 10
    if damage == "length":
        data[3 * size + 2] ^= 1
    elif damage == "data":
        data[3 * size + 20] ^= 1
    elif damage == "cut":
        data = data[:-5]
    else:
        with tf.io.TFRecordWriter(str(tmp_path / "other")) as writer:
            writer.write(b"\xff" * 10)
        data[3 * size : 4 * size] = (tmp_path / "other").read_bytes()
    path.write_bytes(data)
    model, out = identity(tmp_path, (3,)), tmp_path / "out.npy"
    ended = program.run("predict", model, "--data", path, "--output", out, expect=4)
    assert "P401" in ended.stderr and f"{path}" in ended.stderr and "at byte" in ended.stderr
    ended = program.run("predict", model, "--data", path, "--output", out, "--on-bad-record", "skip")
    assert "1 damaged records are left out" in ended.stderr
    assert np.array_equal(np.load(out), np.delete(x, 9 if damage == "cut" else 3, 0))


def test_a_record_of_another_length_is_named(tmp_path):
    path = write(tmp_path / "data.tfrecord", [{"x": np.zeros(n, np.float32)} for n in (3, 3, 4)])
    ended = program.run(
        "predict", identity(tmp_path, (3,)), "--data", path, "--output", tmp_path / "out.npy", expect=4
    )
    assert "record 2" in ended.stderr and "4 floats, expected 3" in ended.stderr


# ---- HDF5


@pytest.mark.parametrize("how", ["contiguous", "chunked", "gzip", "big_endian", "latest"])
def test_hdf5(how, tmp_path, rng):
    x, y = rng.standard_normal((100, 7)).astype(np.float32), rng.standard_normal((100, 1)).astype(np.float32)
    options = {"chunked": dict(chunks=(9, 1)), "gzip": dict(compression="gzip", shuffle=True)}.get(how, {})
    stored = x.astype(">f4") if how == "big_endian" else x
    with h5py.File(tmp_path / "f.h5", "w", libver="latest" if how == "latest" else "earliest") as file:
        file.create_dataset("train/a", data=stored, **options)
        file.create_dataset("train/b", data=y, **options)
        file.create_dataset("names", data=["one"] * 100)
    model = linear(tmp_path, 7)
    want = model.evaluate(x, y, batch_size=8, verbose=0)
    check_loss(evaluated(tmp_path, f"{tmp_path}/f.h5:/train/a,/train/b"), want)
    ended = program.run(
        "evaluate", tmp_path / "model.keras", "--data", f"{tmp_path}/f.h5:/names,/train/b", "--json", expect=4
    )
    assert "/names: it holds strings" in ended.stdout + ended.stderr


def test_hdf5_by_name(tmp_path, rng):
    x, y = rng.integers(0, 255, (40, 6)).astype(np.uint8), rng.integers(0, 3, 40)
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["x_train"], file["y_train"] = x[:10], y[:10]
        file["x_test"], file["y_test"] = x, y
    model = linear(tmp_path, 6, keras.losses.SparseCategoricalCrossentropy(from_logits=True), 3)
    check_loss(evaluated(tmp_path, tmp_path / "data.h5"), model.evaluate(x.astype(np.float32), y, batch_size=8, verbose=0))


def test_arrays_of_an_archive_by_name(tmp_path, rng):
    x, y = rng.standard_normal((20, 4)).astype(np.float32), rng.standard_normal((20, 1)).astype(np.float32)
    np.savez(tmp_path / "data.npz", first=x, second=y, third=x)
    model = linear(tmp_path, 4)
    want = model.evaluate(x, y, batch_size=8, verbose=0)
    check_loss(evaluated(tmp_path, f"{tmp_path}/data.npz:first,second"), want)
    program.run("evaluate", tmp_path / "model.keras", "--data", f"{tmp_path}/data.npz:first", expect=2)


# ---- CSV


def table(path, header, rows, delimiter=",", newline="\n"):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter, lineterminator=newline)
        if header:
            writer.writerow(header)
        writer.writerows(rows)
    return path


@pytest.mark.parametrize("delimiter, newline, ending", [(",", "\n", "csv"), (";", "\r\n", "csv"), ("\t", "\n", "tsv")])
def test_csv(delimiter, newline, ending, tmp_path, rng):
    x, y = rng.standard_normal((30, 4)), rng.standard_normal(30)
    rows = [[repr(float(v)) for v in (*a[:2], b, *a[2:])] for a, b in zip(x, y)]
    path = table(tmp_path / f"f.{ending}", ["a", 'the "b"', "out", "c\nc", "d"], rows, delimiter, newline)
    model = linear(tmp_path, 4)
    want = model.evaluate(x.astype(np.float32), y.astype(np.float32), batch_size=8, verbose=0)
    check_loss(evaluated(tmp_path, path, "--label-column", "out"), want)
    check_loss(evaluated(tmp_path, path, "--label-column", "2"), want)
    assert np.array_equal(predicted(tmp_path, path, (4,), "--label-column", "out"), x.astype(np.float32))


def test_csv_with_classes_and_missing_values(tmp_path, rng):
    x, names = rng.standard_normal((12, 3)).astype(np.float32), ["setosa", "virginica", "other one"] * 4
    rows = [[*map(float, a), n] for a, n in zip(x, names)]
    rows[4][1] = ""
    path = table(tmp_path / "iris.csv", ["a", "b", "c", "class"], rows)
    model = linear(tmp_path, 3, keras.losses.SparseCategoricalCrossentropy(from_logits=True), 3)
    y = np.array([sorted(set(names)).index(n) for n in names])
    keep = np.arange(12) != 4
    check_loss(evaluated(tmp_path, path, "--missing", "drop"), model.evaluate(x[keep], y[keep], batch_size=8, verbose=0))
    zero = x.copy()
    zero[4, 1] = 0
    check_loss(evaluated(tmp_path, path, "--missing", "zero"), model.evaluate(zero, y, batch_size=8, verbose=0))
    ended = program.run("evaluate", tmp_path / "model.keras", "--data", path, expect=4)
    assert "line 6" in ended.stderr and "column 'b' has no value" in ended.stderr and "--missing drop" in ended.stderr


@pytest.mark.parametrize(
    "text, words",
    [
        ("a,b,label\n1,2,3\n4,5\n", "line 3, at byte 16: it has 2 fields, expected 3"),
        ('a,b,label\n1,2,3\n4,"5,6\n', "a quote is not closed"),
        ("a,b,label\n1,2,3\n4,five,6\n", "the column 'b' holds 'five', which is no number"),
        ("a,b,label\n", "no lines of data"),
    ],
)
def test_bad_csv(text, words, tmp_path):
    (tmp_path / "f.csv").write_text(text)
    linear(tmp_path, 2)
    ended = program.run("evaluate", tmp_path / "model.keras", "--data", tmp_path / "f.csv", expect=4)
    assert words in ended.stderr, ended.stderr
