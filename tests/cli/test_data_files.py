"""Wrong data: exit code 4, and the message names the place in the file."""

import pathlib

import numpy as np
import pytest

from bad_files import GOLDEN, data, fit_refused, refused, saved_array

X, Y = np.load(GOLDEN / "cnn_x.npy"), np.load(GOLDEN / "cnn_y.npy")


def pair(folder, x=X, y=Y):
    return f"{saved_array(folder, 'x.npy', x)},{saved_array(folder, 'y.npy', y)}"


@pytest.mark.parametrize("value", (np.nan, np.inf, -np.inf))
@pytest.mark.parametrize("where", (0, 13, 19))
def test_not_finite(value, where, tmp_path):
    x = X.copy()
    x[where, 4, 3, 1] = value
    fit_refused(tmp_path, 403, None, pair(tmp_path, x), mentions=["x.npy", where])


@pytest.mark.parametrize("label", (3, -1, 2**31 - 1))
def test_label_out_of_range(label, tmp_path):
    y = Y.copy()
    y[17] = label
    fit_refused(tmp_path, 404, None, pair(tmp_path, y=y), mentions=["y.npy", label])


def test_empty(tmp_path):
    fit_refused(tmp_path, 405, None, pair(tmp_path, X[:0], Y[:0]))


def test_lengths_differ(tmp_path):
    fit_refused(tmp_path, 406, None, pair(tmp_path, X, Y[:-3]), mentions=[20, 17])


@pytest.mark.parametrize(
    "x", (X[:, :9], X[..., :1], X[..., 0], X.reshape(20, -1)), ids=("rows", "channels", "rank", "flat")
)
def test_wrong_shape(x, tmp_path):
    fit_refused(tmp_path, 402, None, pair(tmp_path, x), mentions=["(10, 10, 2)"])


def test_targets_of_another_shape(tmp_path):
    fit_refused(tmp_path, 402, None, pair(tmp_path, y=np.zeros((20, 7), np.int32)))


def truncated(folder, keep):
    path = pathlib.Path(folder) / "x.npy"
    np.save(path, X)
    path.write_bytes(path.read_bytes()[:keep])
    return f"{path},{GOLDEN / 'cnn_y.npy'}"


@pytest.mark.parametrize("keep", (0, 5, 60, 200, 16000))
def test_truncated_array(keep, tmp_path):
    fit_refused(tmp_path, 401, None, truncated(tmp_path, keep), mentions=["x.npy"])


@pytest.mark.parametrize(
    "header",
    (
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 10, 10, 2), }",
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4), }",
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 10, 10, 2), }",
        b"{'descr': '|O', 'fortran_order': False, 'shape': (20, 10, 10, 2), }",
        b"{'descr': '<f4', 'shape': (20, 10, 10, 2), }",
        b"not a dictionary",
    ),
    ids=("overflow", "product", "negative", "objects", "no_order", "words"),
)
def test_bad_header(header, tmp_path):
    text = header + b" " * (117 - len(header)) + b"\n"
    path = tmp_path / "x.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + X.tobytes())
    fit_refused(tmp_path, 401, None, f"{path},{GOLDEN / 'cnn_y.npy'}", mentions=["x.npy"])


def test_something_else_entirely(tmp_path):
    (tmp_path / "x.npy").write_text("a,b,c\n1,2,3\n")
    fit_refused(tmp_path, 401, None, f"{tmp_path / 'x.npy'},{GOLDEN / 'cnn_y.npy'}")


def test_missing_file(tmp_path):
    fit_refused(
        tmp_path, 202, None, f"{tmp_path / 'gone.npy'},{GOLDEN / 'cnn_y.npy'}", mentions=["gone.npy", "No such file"]
    )


def test_archive_without_the_arrays(tmp_path):
    np.savez(tmp_path / "d.npz", pictures=X, y=Y)
    fit_refused(tmp_path, 401, None, tmp_path / "d.npz", mentions=["x", "pictures"])


def test_truncated_archive(tmp_path):
    np.savez(tmp_path / "d.npz", x=X, y=Y)
    blob = (tmp_path / "d.npz").read_bytes()
    (tmp_path / "d.npz").write_bytes(blob[: len(blob) // 2])
    fit_refused(tmp_path, 401, None, tmp_path / "d.npz")


def test_negative_sample_weights_are_allowed_but_not_nan(tmp_path):
    w = np.ones(20, np.float32)
    w[7] = np.nan
    fit_refused(tmp_path, 403, None, f"{pair(tmp_path)},{saved_array(tmp_path, 'w.npy', w)}", mentions=["w.npy"])


def test_sample_weights_of_another_length(tmp_path):
    fit_refused(tmp_path, 406, None, f"{pair(tmp_path)},{saved_array(tmp_path, 'w.npy', np.ones(19, np.float32))}")


@pytest.mark.parametrize("command,code", (("evaluate", 403), ("predict", 403)))
def test_other_commands_refuse_it_too(command, code, tmp_path):
    x = X.copy()
    x[3, 0, 0, 0] = np.nan
    spec = pair(tmp_path, x) if command == "evaluate" else str(saved_array(tmp_path, "x.npy", x))
    out = tmp_path / "predictions.npy"
    refused(
        code,
        command,
        GOLDEN / "cnn.keras",
        "--data",
        spec,
        "--batch-size",
        4,
        *(["--output", out] if command == "predict" else []),
    )
    assert not out.exists()


def test_gzipped_idx_by_mistake(tmp_path):
    (tmp_path / "x.idx").write_bytes(b"\x1f\x8b\x08\x00" + bytes(40))
    fit_refused(tmp_path, 401, None, f"{tmp_path / 'x.idx'},{GOLDEN / 'cnn_y.npy'}")


def test_data_is_fine(tmp_path):
    """The same command succeeds with good data, so the errors above are caused by the data."""
    from bad_files import program

    trained = program.fit(tmp_path, GOLDEN / "cnn.keras", data(), batch_size=4, epochs=1, steps=5)
    want = np.load(GOLDEN / "cnn_expected.npz")["losses"]
    assert np.max(np.abs(trained.losses - want) / want) < 1e-5
