"""Whole models in .h5, weights of other files, and SavedModel folders that are damaged or do not fit; and the endings of --save."""

import pathlib
import shutil

import h5py
import numpy as np
import pytest

import program
from bad_files import GOLDEN, fit_refused, refused

KERAS2 = GOLDEN / "keras2"
DATA = f"{KERAS2 / 'x.npy'},{KERAS2 / 'y.npy'}"
COMPILED = ("--optimizer", "adam", "--loss", "sparse_categorical_crossentropy")


def edited(folder, edit, name="adam.h5"):
    path = pathlib.Path(folder) / name
    shutil.copy(KERAS2 / name, path)
    with h5py.File(path, "r+") as file:
        edit(file)
    return path


def saved_model(folder, edit=lambda _: None):
    path = pathlib.Path(folder) / "folder"
    shutil.copytree(KERAS2 / "saved-model", path)
    edit(path)
    return path


def test_weights_alone_are_no_model(tmp_path):
    fit_refused(tmp_path, 203, KERAS2 / "weights.h5", DATA, mentions=["weights.h5", "--weights", "model.to_json()"])


def test_architecture_alone_cannot_predict(tmp_path):
    refused(201, "predict", KERAS2 / "sequential.json", "--data", KERAS2 / "x.npy", "--output", tmp_path / "p.npy", mentions=["sequential.json"])


def test_weights_from_an_architecture(tmp_path):
    fit_refused(tmp_path, 203, KERAS2 / "sequential.json", DATA, *COMPILED, "--weights", KERAS2 / "sequential.json", mentions=["no weights"])


def test_weights_of_another_model(tmp_path):
    """Layers or weights are missing: the error names both sides."""
    fit_refused(tmp_path, 206, KERAS2 / "sequential.json", DATA, *COMPILED, "--weights", KERAS2 / "adam.h5", mentions=["adam.h5", "separable", "conv2d"])


def test_weights_for_a_built_in_model():
    refused(201, "plan", "seed-1", "--weights", KERAS2 / "weights.h5", mentions=["--weights", "seed-1"])


def test_weight_of_another_shape(tmp_path):
    def edit(file):
        del file["model_weights/z/z/bias:0"]
        file["model_weights/z/z/bias:0"] = np.zeros(7, np.float32)

    fit_refused(tmp_path, 207, edited(tmp_path, edit), DATA, mentions=["adam.h5", "z/bias", "[7]"])


def test_listed_weight_is_missing(tmp_path):
    fit_refused(tmp_path, 206, edited(tmp_path, lambda f: f.__delitem__("model_weights/z/z/bias:0")), DATA, mentions=["adam.h5", "z/bias:0"])


@pytest.mark.parametrize("value", (3, b"\xff\xfe", b"{", np.zeros(4)), ids=("number", "not_utf8", "open", "numbers"))
def test_model_config_of_another_kind(value, tmp_path):
    model = edited(tmp_path, lambda f: f.attrs.__setitem__("model_config", value))
    text = program.run("plan", model, expect=2).stderr
    assert ("error P204" in text or "error P213" in text) and "model_config" in text, text


@pytest.mark.parametrize("share", (0.01, 0.3, 0.6, 0.95))
def test_truncated_h5(share, tmp_path):
    blob = (KERAS2 / "adam.h5").read_bytes()
    (tmp_path / "m.h5").write_bytes(blob[: int(share * len(blob))])
    fit_refused(tmp_path, 213, tmp_path / "m.h5", DATA, mentions=["m.h5"])


def test_folder_that_is_no_model(tmp_path):
    (tmp_path / "empty").mkdir()
    fit_refused(tmp_path, 203, tmp_path / "empty", DATA, mentions=["empty", "model.save('model.keras')"])


def test_exported_model(tmp_path):
    def edit(folder):
        (folder / "keras_metadata.pb").rename(folder / "saved_model.pb")

    fit_refused(tmp_path, 203, saved_model(tmp_path, edit), DATA, mentions=["model.export", "model.save('model.keras')"])


def test_saved_model_with_a_changed_weight(tmp_path):
    def edit(folder):
        data = folder / "variables" / "variables.data-00000-of-00001"
        blob = bytearray(data.read_bytes())
        blob[40] ^= 1
        data.write_bytes(blob)

    fit_refused(tmp_path, 213, saved_model(tmp_path, edit), DATA, mentions=["checksum"])


def test_saved_model_without_its_data(tmp_path):
    edit = lambda folder: (folder / "variables" / "variables.data-00000-of-00001").unlink()
    fit_refused(tmp_path, 202, saved_model(tmp_path, edit), DATA, mentions=["variables.data-00000-of-00001"])


def test_endings_of_save(tmp_path):
    fit = ("fit", GOLDEN / "cnn.keras", "--data", f"{GOLDEN / 'cnn_x.npy'},{GOLDEN / 'cnn_y.npy'}", "--batch-size", 4, "--quiet")
    refused(201, *fit, "--save", tmp_path / "out.bin", mentions=[".keras", ".weights.h5", "out.keras"])
    refused(201, *fit, "--save", tmp_path / "out.h5", mentions=["out.keras", "out.weights.h5"])
    refused(201, *fit, "--save-best", tmp_path / "out.h5:loss", mentions=["--save-best"])
    program.run(*fit, "--save", tmp_path / "out.weights.h5")
    with h5py.File(tmp_path / "out.weights.h5") as file:
        assert "layers" in file and "optimizer" in file
    refused(201, "fit", KERAS2 / "saved-model", "--data", DATA, "--save", tmp_path / "out.h5", mentions=["out.keras"])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.weights.h5"]


def test_an_h5_model_saves_itself_in_place(tmp_path):
    """The file is read and replaced in one run; the old one is whole until the new one is."""
    model = shutil.copy(KERAS2 / "adam.h5", tmp_path / "m.h5")
    fit = ("fit", model, "--data", DATA, "--batch-size", 4, "--quiet", "--save", model)
    program.run(*fit)
    program.run(*fit, "--save-best", tmp_path / "best.h5:loss")
    with h5py.File(model) as file, h5py.File(tmp_path / "best.h5") as best:
        assert file["optimizer_weights/iteration:0"][()] == 3 + 6 + 6
        assert set(best) == set(file) == {"model_weights", "optimizer_weights"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["best.h5", "m.h5"]


def test_weights_by_environment_and_help():
    text = program.run("plan", KERAS2 / "sequential.json", *COMPILED, env={"PLIMSOLL_WEIGHTS": "nowhere.h5"}, expect=2).stderr
    assert "error P202" in text and "nowhere.h5" in text, text
    for command in ("plan", "fit", "evaluate", "predict"):
        assert "--weights" in program.run(command, "--help").stdout
