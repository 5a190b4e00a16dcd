"""plimsoll shrink with files of other kinds, bad files, budgets and interrupted runs. Needs no Keras."""

import json
import os
import zipfile

import pytest

import program
from bad_files import GOLDEN, data

MODEL = GOLDEN / "resnet.keras"
OLD = sorted(p for p in (GOLDEN / "keras2").glob("*") if p.suffix in (".h5", ".keras"))


def shrunk(folder, model, *flags, expect=0, way="prune"):
    return program.run("shrink", way, model, *flags, "-o", folder / "small.keras", expect=expect)


def widths(path):
    """The numbers of filters and units of a file, in order."""
    config = json.loads(zipfile.ZipFile(path).read("config.json"))
    found = [layer["config"] for layer in config["config"]["layers"]]
    return [c.get("filters", c.get("units")) for c in found if "filters" in c or "units" in c]


@pytest.mark.parametrize("path", OLD, ids=lambda p: p.name)
def test_models_of_other_formats_become_keras_files(path, tmp_path):
    ended = program.run("shrink", "prune", path, "--ratio", 0.5, "--multiple", 1, "-o", tmp_path / "small.keras",
                        expect=None)
    assert ended.code in (0, 2), ended
    if ended.code == 0:
        program.plan(tmp_path / "small.keras", batch_size=2, optimizer="sgd", loss="mse")


def test_architecture_without_weights(tmp_path):
    config = json.loads(zipfile.ZipFile(MODEL).read("config.json"))
    (tmp_path / "model.json").write_text(json.dumps(config))
    shrunk(tmp_path, tmp_path / "model.json", "--width", 0.5, way="resize")
    assert [w * 2 for w in widths(tmp_path / "small.keras")[:-1]] == widths(MODEL)[:-1]


def test_a_missing_output_has_an_example_of_its_kind():
    assert "--output small.keras" in program.run("shrink", "prune", MODEL, "--ratio", 0.5, expect=2).stderr
    assert "--output model.tflite" in program.run("shrink", "quantize", MODEL, expect=2).stderr


def test_an_existing_file_stays_if_something_fails(tmp_path):
    small = tmp_path / "small.keras"
    small.write_bytes(b"kept")
    shrunk(tmp_path, MODEL, "--target", "1KiB", expect=3)
    shrunk(tmp_path, MODEL, "--ratio", 2, expect=2)
    shrunk(tmp_path, GOLDEN / "cnn_x.npy", "--ratio", 0.5, expect=2)
    assert small.read_bytes() == b"kept" and os.listdir(tmp_path) == ["small.keras"]


def test_budget_is_kept(tmp_path):
    """A model whose weights and slices do not fit is refused before anything is written."""
    ended = shrunk(tmp_path, "seed-2", "--ratio", 0.5, "--budget", "6MiB", expect=3)
    assert "error P301" in ended.stderr and not os.listdir(tmp_path)
    shrunk(tmp_path, "seed-2", "--ratio", 0.5, "--budget", "64MiB")


def test_training_afterwards_keeps_the_budget(tmp_path):
    ended = program.run("shrink", "prune", GOLDEN / "cnn.keras", "--ratio", 0.5, "--epochs", 2, "--data", data(),
                        "--batch-size", 4, "--budget", "56MiB", "-o", tmp_path / "small.keras")
    assert "MiB of 56.0 MiB" in ended.stderr


def test_output_must_be_a_keras_file(tmp_path):
    for flags, words in ((("-o", tmp_path / "small.h5"), "must end in .keras"),
                         (("-o", tmp_path / "none" / "small.keras"), "P602")):
        ended = program.run("shrink", "prune", MODEL, "--ratio", 0.5, *flags, expect=None)
        assert ended.code in (2, 6) and words in ended.stderr, ended


def test_flags_before_the_way_are_refused(tmp_path):
    ended = program.run("shrink", "--target", "1MiB", "prune", MODEL, "--ratio", 0.5, "-o", tmp_path / "s.keras", expect=2)
    assert "--target stands before 'prune'" in ended.stderr
    program.run("shrink", "prune", MODEL, "--ratio", 0.5, "--multiple", 1, "-o", tmp_path / "s.keras",
                env={"PLIMSOLL_BUDGET": "1GiB"})
