"""Model files that are damaged or not supported."""

import pathlib
import json

import h5py
import pytest

import bad_files
from bad_files import GOLDEN, changed, datasets, fit_refused, layer, refused, with_config, with_weights


def cut(folder, share):
    blob = (GOLDEN / "cnn.keras").read_bytes()
    path = pathlib.Path(folder) / "model.keras"
    path.write_bytes(blob[: int(len(blob) * share)])
    return path


@pytest.mark.parametrize("share", (0, 0.001, 0.3, 0.6, 0.95, 0.999))
def test_truncated_zip(share, tmp_path):
    fit_refused(tmp_path, 203, cut(tmp_path, share), mentions=["model.keras"])


def test_missing_file(tmp_path):
    fit_refused(tmp_path, 202, tmp_path / "nowhere.keras", mentions=["nowhere.keras"])


def test_folder_instead_of_file(tmp_path):
    (tmp_path / "model.keras").mkdir()
    text = bad_files.program.run("plan", tmp_path / "model.keras", expect=2).stderr
    assert "error P20" in text


@pytest.mark.parametrize("entry", ("config.json", "model.weights.h5"))
def test_entry_missing(entry, tmp_path):
    fit_refused(tmp_path, 203, changed(tmp_path, lambda _: None, part=entry), mentions=[entry])


@pytest.mark.parametrize(
    "bad",
    (b"", b"{", b'{"class_name": "Sequential"', b"\xff\xfe\x00", b"[" * 100000),
    ids=("empty", "open", "cut", "not_utf8", "deep"),
)
def test_bad_json(bad, tmp_path):
    fit_refused(tmp_path, 204, changed(tmp_path, lambda _: bad), mentions=["config.json"])


@pytest.mark.parametrize(
    "value", (None, 3, [], "Sequential", {"class_name": 3}, {"class_name": "Sequential", "config": []}), ids=str
)
def test_json_of_something_else(value, tmp_path):
    fit_refused(tmp_path, 204, changed(tmp_path, lambda _: json.dumps(value).encode()))


@pytest.mark.parametrize(
    "key,value",
    (
        ("filters", "many"),
        ("filters", -4),
        ("kernel_size", [3]),
        ("strides", [0, 1]),
        ("padding", 7),
        ("activation", 1.5),
    ),
    ids=str,
)
def test_field_of_the_wrong_kind(key, value, tmp_path):
    model = with_config(tmp_path, lambda c: layer(c, "Conv2D").__setitem__(key, value))
    text = bad_files.program.run("plan", model, "--batch-size", 4, expect=2).stderr
    assert "error P204" in text or "error P205" in text or "error P210" in text, text
    assert "conv2d" in text, text
    assert "error P204" not in text or "model.keras: " in text, text


def test_missing_weight(tmp_path):
    gone = {}

    def remove(f):
        gone["path"] = datasets(f)[0]
        del f[gone["path"]]

    fit_refused(tmp_path, 206, with_weights(tmp_path, remove), mentions=["kernel"])


def test_wrong_weight_shape(tmp_path):
    def replace(f):
        path = datasets(f)[0]
        shape = f[path].shape
        del f[path]
        f.create_dataset(path, shape=shape[:-1] + (shape[-1] + 1,), dtype="f4")

    fit_refused(tmp_path, 207, with_weights(tmp_path, replace))


def test_damaged_weights_file(tmp_path):
    fit_refused(tmp_path, 213, changed(tmp_path, lambda blob: b"\0" * len(blob), part="model.weights.h5"))


@pytest.mark.parametrize("share", (0.1, 0.5, 0.9))
def test_truncated_weights_file(share, tmp_path):
    text = bad_files.program.run(
        "fit",
        changed(tmp_path, lambda blob: blob[: int(share * len(blob))], part="model.weights.h5"),
        "--data",
        bad_files.data(),
        "--batch-size",
        4,
        expect=2,
    ).stderr
    assert "error P213" in text or "error P206" in text, text


def test_everything_unsupported_is_listed_at_once(tmp_path):
    def edit(config):
        layers = config["config"]["layers"]
        layers[1]["class_name"] = "HashedCrossing"
        layers[1]["config"]["kernel_constraint"] = {
            "module": "keras.constraints",
            "class_name": "MaxNorm",
            "config": {"max_value": 2},
            "registered_name": None,
        }
        layers[-1]["config"]["activation"] = "glu"
        config["compile_config"]["optimizer"]["config"]["invented"] = True
        config["compile_config"]["loss"] = "own_loss"

    fit_refused(tmp_path, 205, with_config(tmp_path, edit), mentions=["HashedCrossing", "glu", "invented", "own_loss"])


@pytest.mark.parametrize(
    "change",
    (
        lambda c: layer(c, "Conv2D").__setitem__("lora_rank", 4),
        lambda c: layer(c, "Dense").__setitem__(
            "bias_constraint",
            {"module": "keras.constraints", "class_name": "Invented", "config": {}, "registered_name": None},
        ),
        lambda c: c["compile_config"]["optimizer"]["config"].__setitem__("invented", True),
        lambda c: c["compile_config"]["optimizer"].__setitem__("class_name", "MultiOptimizer"),
        lambda c: c["compile_config"].__setitem__("loss", "own_loss"),
    ),
    ids=("lora", "constraint", "key", "optimizer", "loss"),
)
def test_nothing_is_ignored_in_silence(change, tmp_path):
    fit_refused(tmp_path, 205, with_config(tmp_path, change))


def test_never_compiled(tmp_path):
    fit_refused(
        tmp_path,
        208,
        with_config(tmp_path, lambda c: c.__setitem__("compile_config", None)),
        mentions=["--optimizer", "--loss"],
    )


def test_unknown_input_size(tmp_path):
    def edit(config):
        layer(config, "InputLayer")["batch_shape"] = [None, None, None, 2]
        config["config"]["layers"] = config["config"]["layers"][:3]

    refused(209, "plan", with_config(tmp_path, edit), "--batch-size", 4, mentions=["--input-shape"])


def test_pool_larger_than_its_input(tmp_path):
    model = with_config(tmp_path, lambda c: layer(c, "MaxPooling2D").update(pool_size=[12, 12], strides=[12, 12]))
    fit_refused(tmp_path, 210, model, mentions=["max_pooling2d"])


@pytest.mark.parametrize("units", (2**31, 2**40, 2**62, 10**30))
def test_huge_dimensions(units, tmp_path):
    """Sizes whose product overflows, or that exceed any memory, are an error about the layer, not a crash."""
    text = bad_files.program.run(
        "plan",
        with_config(tmp_path, lambda c: layer(c, "Dense").__setitem__("units", units)),
        "--batch-size",
        4,
        expect=None,
    )
    assert text.code in (2, 3) and "error P" in text.stderr, text
    assert text.code == 3 or "dense" in text.stderr, text.stderr


def test_huge_input(tmp_path):
    def edit(config):
        layer(config, "InputLayer")["batch_shape"] = [None, 2**40, 2**40, 2]

    ended = bad_files.program.run("plan", with_config(tmp_path, edit), "--batch-size", 4, expect=None)
    assert ended.code == 2 and "error P2" in ended.stderr, ended


def test_layer_that_reads_one_that_is_not_there(tmp_path):
    def edit(config):
        text = json.dumps(config["config"]["layers"][2]["inbound_nodes"]).replace(
            config["config"]["layers"][1]["name"], "nobody"
        )
        config["config"]["layers"][2]["inbound_nodes"] = json.loads(text)

    fit_refused(tmp_path, 204, with_config(tmp_path, edit, "resnet"), bad_files.data("resnet"), mentions=["nobody"])


def test_weights_are_not_read_for_a_plan(tmp_path):
    """`plan` needs shapes only; a file without weights still has a plan."""
    with h5py.File(tmp_path / "x.h5", "w"):
        pass
    model = changed(tmp_path, lambda _: (tmp_path / "x.h5").read_bytes(), part="model.weights.h5")
    bad_files.program.plan(model, batch_size=4)
