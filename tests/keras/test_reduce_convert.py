"""plimsoll reduce and plimsoll convert against numpy's SVD, numpy's statistics and TensorFlow's readers, on the same files."""

import json

import numpy as np
import pytest
import tensorflow as tf

import program

RNG = np.random.default_rng(7)
BUDGET = "64MiB"


def correlated(rows, shape):
    """uint8 samples with a falling spectrum, so that their components are well defined."""
    features = int(np.prod(shape))
    hidden = RNG.standard_normal((rows, features)) * 0.9 ** np.arange(features)
    mixed = hidden @ np.linalg.qr(RNG.standard_normal((features, features)))[0]
    return np.clip(128 + 30 * mixed, 0, 255).astype(np.uint8).reshape((rows,) + shape)


def reduce(folder, *arguments, **named):
    ended = program.run("reduce", *arguments, "--json", "--budget", BUDGET, cwd=folder, **named)
    found = ended.json()
    assert 0 < found["peak_bytes"] <= found["planned_bytes"], found
    return found


def pca_by_svd(x, count):
    centred = x - x.mean(0)
    _, values, vectors = np.linalg.svd(centred, full_matrices=False)
    signs = np.sign(vectors[np.arange(len(vectors)), np.argmax(np.abs(vectors), 1)])
    return centred, vectors[:count] * signs[:count, None], values**2 / (len(x) - 1)


def test_pca(tmp_path):
    x, y = correlated(700, (7, 9)), RNG.integers(0, 5, 700).astype(np.int32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    found = reduce(tmp_path, "x.npy,y.npy", "--pca", 12, "-o", "small.npz")
    small, saved = np.load(tmp_path / "small.npz"), np.load(tmp_path / "small.reduction.npz")
    centred, components, variances = pca_by_svd(x.reshape(700, -1).astype(np.float64), 12)
    np.testing.assert_allclose(saved["pca_components"], components, atol=1e-10)
    np.testing.assert_allclose(saved["pca_explained_variance"], variances[:12], rtol=1e-12)
    np.testing.assert_allclose(found["explained_variance_ratio"], variances[:12].sum() / variances.sum(), rtol=1e-12)
    np.testing.assert_allclose(small["x"], centred @ components.T, rtol=1e-6, atol=1e-5)
    assert small["x"].dtype == np.float32 and np.array_equal(small["y"], y)
    # the same for new data
    new = correlated(20, (7, 9))
    np.save(tmp_path / "new.npy", new)
    reduce(tmp_path, "new.npy", "--apply", "small.reduction.npz", "-o", "new_small.npy")
    want = (new.reshape(20, -1) - saved["pca_mean"]) @ saved["pca_components"].T
    np.testing.assert_allclose(np.load(tmp_path / "new_small.npy"), want, rtol=1e-6, atol=1e-5)


def test_pca_of_fewer_samples_than_features(tmp_path):
    for features in (8, 300):  # most of 300 eigenvalues are zero
        x = RNG.standard_normal((5, features)).astype(np.float32)
        x[:, ::3] = 7
        np.save(tmp_path / "x.npy", x)
        reduce(tmp_path, "x.npy", "--pca", 4, "-o", "small.npy")
        centred, components, _ = pca_by_svd(x.astype(np.float64), 4)
        np.testing.assert_allclose(np.load(tmp_path / "small.npy"), centred @ components.T, atol=1e-5)
    np.save(tmp_path / "same.npy", np.full((9, 30), 3, np.uint8))
    reduce(tmp_path, "same.npy", "--pca", 2, "-o", "none.npy")
    assert not np.load(tmp_path / "none.npy").any()
    np.save(tmp_path / "x.npy", x[:, :8])
    message = program.run("reduce", "x.npy", "--pca", 6, "-o", "no.npy", cwd=tmp_path, expect=2).stderr
    assert "at most 5 components" in message


def test_selected_features(tmp_path):
    x = RNG.standard_normal((300, 9)) * np.array([1, 0, 2, 0.05, 1, 3, 1e-9, 0.5, 1]) + 1e4
    y = np.eye(3)[RNG.integers(0, 3, 300)]
    x[:, 4] += 5 * y[:, 1]
    np.savez(tmp_path / "d.npz", x=x, y=y.astype(np.float32))
    reduce(tmp_path, "d.npz", "--select-variance", 0.01, "-o", "v.npz")
    keep = np.flatnonzero(x.var(0) > 0.01)
    assert np.array_equal(np.load(tmp_path / "v.npz")["x"], x[:, keep])
    assert np.array_equal(np.load(tmp_path / "v.reduction.npz")["features"], keep)
    reduce(tmp_path, "d.npz", "--select-correlation", 3, "-o", "c.npz")
    with np.errstate(invalid="ignore"):
        score = np.nan_to_num(np.abs(np.corrcoef(x.T, y.T)[:9, 9:])).max(1)
    keep = np.sort(np.argsort(-score, kind="stable")[:3])
    assert 4 in keep and np.array_equal(np.load(tmp_path / "c.npz")["x"], x[:, keep])


def test_resolution(tmp_path):
    x = RNG.integers(0, 256, (6, 17, 12, 3), np.uint8)
    np.savez(tmp_path / "d.npz", x=x, y=np.arange(6))
    reduce(tmp_path, "d.npz", "--resolution", "5,8", "-o", "r.npz")
    want = tf.image.resize(x, (5, 8)).numpy()
    got = np.load(tmp_path / "r.npz")["x"]
    assert got.dtype == np.uint8
    assert np.abs(got - want).max() <= 0.5 + 1e-4
    np.save(tmp_path / "f.npy", x.astype(np.float32))
    reduce(tmp_path, "f.npy", "--apply", "r.reduction.npz", "-o", "f_small.npy")
    np.testing.assert_allclose(np.load(tmp_path / "f_small.npy"), want, rtol=1e-6, atol=1e-4)


def test_subsets(tmp_path):
    """Exactly that many samples, the classes' shares kept, the same for the same seed, and each sample equally likely."""
    y = np.repeat(np.arange(4), [500, 300, 150, 51]).astype(np.int64)
    RNG.shuffle(y)
    x = np.arange(len(y), dtype=np.int32)[:, None]
    np.savez(tmp_path / "d.npz", x=x, y=y)

    def taken(seed, *more):
        reduce(tmp_path, "d.npz", "--take", 101, "--seed", seed, "-o", "s.npz", *more)
        s = np.load(tmp_path / "s.npz")
        assert np.array_equal(y[s["x"][:, 0]], s["y"]) and np.all(np.diff(s["x"][:, 0]) > 0)
        return s["x"][:, 0], s["y"]

    rows, labels = taken(1, "--stratified")
    assert np.bincount(labels).tolist() == [51, 30, 15, 5]  # of 50.45, 30.27, 15.14, 5.15: the largest remainder
    assert np.array_equal(taken(1, "--stratified")[0], rows) and not np.array_equal(taken(2, "--stratified")[0], rows)
    runs = 40
    counts = np.zeros(len(y))
    for seed in range(runs):
        rows, _ = taken(seed)
        assert len(rows) == 101
        counts[rows] += 1
    # Thirds of the file get equal shares: a binomial number with a deviation of 31.
    assert np.all(np.abs(counts.reshape(-1)[:999].reshape(3, 333).sum(1) - 101 * runs / 3) < 5 * 31)


def test_reduce_refuses(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((4, 3000), np.float32))
    np.save(tmp_path / "bad.npy", np.array([[1, np.nan]], np.float32).repeat(3, 0))

    def message(code, *arguments):
        return program.run("reduce", *arguments, cwd=tmp_path, expect=code).stderr

    assert "needs" in message(3, "x.npy", "--pca", 2, "-o", "o.npy", "--budget", "48MiB")
    assert "row 0 holds nan" in message(4, "bad.npy", "--pca", 1, "-o", "o.npy")
    assert "no feature has a larger variance" in message(2, "x.npy", "--select-variance", 0, "-o", "o.npy")
    assert "needs targets" in message(2, "x.npy", "--select-correlation", 2, "-o", "o.npy")
    assert "does not name a format" in message(2, "x.npy", "--pca", 2, "-o", "o.parquet")
    assert "exclude each other" in message(2, "x.npy", "--pca", 2, "--resolution", 4, "-o", "o.npy")
    (tmp_path / "r.reduction.npz").write_bytes(b"PK")
    assert "not a zip archive" in message(4, "x.npy", "--apply", "r.reduction.npz", "-o", "o.npy")
    np.savez(tmp_path / "r.reduction.npz", input_shape=np.array([3000]), features=np.array([3000]))
    assert "names feature 3000 of 3000" in message(4, "x.npy", "--apply", "r.reduction.npz", "-o", "o.npy")
    assert not (tmp_path / "o.npy").exists()


def test_convert_between_arrays(tmp_path):
    arrays = {
        "x_train": RNG.standard_normal((300, 40, 3)).astype(np.float32),
        "y_train": RNG.integers(-5, 5, 300).astype(np.int16),
        "x_test": RNG.standard_normal((7, 40, 3)),
        "flags": RNG.integers(0, 2, 4).astype(bool),
    }
    np.savez_compressed(tmp_path / "d.npz", **arrays)

    def convert(*arguments):
        found = program.run("convert", *arguments, "--json", "--budget", BUDGET, cwd=tmp_path).json()
        assert found["peak_bytes"] <= found["planned_bytes"], found
        return found

    convert("d.npz", "d.safetensors")
    convert("d.safetensors", "again.npz")
    again = np.load(tmp_path / "again.npz")
    assert set(again.files) == set(arrays)
    for name, array in arrays.items():
        assert again[name].dtype == array.dtype and np.array_equal(again[name], array), name
    convert("again.npz:x_train,y_train", "x.npy,y.npy")
    assert np.array_equal(np.load(tmp_path / "x.npy"), arrays["x_train"])
    assert np.array_equal(np.load(tmp_path / "y.npy"), arrays["y_train"])
    convert("again.npz:x_test", "t.csv")
    convert("t.csv", "t.npy")
    np.testing.assert_allclose(np.load(tmp_path / "t.npy"), arrays["x_test"].reshape(7, -1), rtol=1e-6)
    message = program.run("convert", "d.npz", "o.tfrecord", cwd=tmp_path, expect=4).stderr
    assert "'x_train' holds 300 rows" in message and "x_train,y_train" in message


def test_records_that_tensorflow_reads(tmp_path):
    x = RNG.integers(0, 256, (103, 5, 4), np.uint8)
    f = RNG.standard_normal((103, 6)).astype(np.float16)
    y = RNG.integers(-(2**62), 2**62, 103)
    np.savez(tmp_path / "d.npz", x=x, f=f, y=y, one=np.arange(103, dtype=np.uint8))
    found = program.run("convert", "d.npz", "r.tfrecord", "--shards", 4, "--json", cwd=tmp_path).json()
    assert found["files"] == [f"r-{i:05}-of-00004.tfrecord" for i in range(4)]
    schema = {
        "x": tf.io.FixedLenFeature([], tf.string),
        "f": tf.io.FixedLenFeature([6], tf.float32),
        "y": tf.io.FixedLenFeature([], tf.int64),
        "one": tf.io.FixedLenFeature([1], tf.int64),
    }
    sizes = [sum(1 for _ in tf.data.TFRecordDataset(str(tmp_path / one))) for one in found["files"]]
    assert sum(sizes) == 103 and max(sizes) - min(sizes) <= 1
    records = tf.data.TFRecordDataset([str(tmp_path / one) for one in found["files"]]).batch(200)
    for batch in records.map(lambda r: tf.io.parse_example(r, schema)):
        assert np.array_equal(tf.io.decode_raw(batch["x"], tf.uint8).numpy(), x.reshape(103, -1))
        assert np.array_equal(batch["f"].numpy(), f.astype(np.float32))
        assert np.array_equal(batch["y"].numpy(), y) and np.array_equal(batch["one"].numpy()[:, 0], np.arange(103))
    program.run("convert", "r-*.tfrecord", "back.npz", "--features", "x=x,y=y", cwd=tmp_path)
    back = np.load(tmp_path / "back.npz")
    assert np.array_equal(back["x"], x.reshape(103, -1)) and np.array_equal(back["y"], y)


def test_nothing_half_written(tmp_path):
    np.savez(tmp_path / "d.npz", x=np.zeros((10, 4), np.float32), y=np.zeros(10))
    (tmp_path / "out.npz").write_bytes(b"kept")
    full = program.run("convert", "d.npz", "/dev/full/out.npz", cwd=tmp_path, expect=None)
    assert full.code in (2, 4, 6), full.stderr
    data = (tmp_path / "d.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(data[:300])
    assert program.run("convert", "cut.npz", "out.npz", cwd=tmp_path, expect=None).code == 4
    assert (tmp_path / "out.npz").read_bytes() == b"kept"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cut.npz", "d.npz", "out.npz"]


def test_interrupted(tmp_path):
    """Ctrl-C in the middle leaves no file."""
    import signal
    import subprocess
    import time

    np.lib.format.open_memmap(tmp_path / "x.npy", mode="w+", dtype=np.uint8, shape=(2**31, 1)).flush()  # sparse
    child = subprocess.Popen(
        program.command("convert", tmp_path / "x.npy", tmp_path / "out.csv"), stderr=subprocess.PIPE, text=True
    )
    for _ in range(200):
        time.sleep(0.02)
        if len(list(tmp_path.iterdir())) > 1:
            break
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 5 and "nothing was written" in err, err
    assert [p.name for p in tmp_path.iterdir()] == ["x.npy"]
