"""Names, sizes and data as new users write them: the program understands them, or says what to write instead."""

import json

import numpy as np
import pytest

import program
from bad_files import GOLDEN, changed, data, layer, refused, with_config

MODEL = GOLDEN / "cnn.keras"
X, Y = np.load(GOLDEN / "cnn_x.npy"), np.load(GOLDEN / "cnn_y.npy")


def plan(*flags, model=MODEL):
    return program.run("plan", model, "--batch-size", 4, "--json", *flags)


@pytest.mark.parametrize(
    "word, meant",
    (("train", "fit"), ("paln", "plan"), ("test", "evaluate"), ("eval", "evaluate"), ("infer", "predict"), ("Plan", "plan")),
)
def test_commands_of_other_programs(word, meant):
    refused(201, word, MODEL, mentions=[f"no command '{word}'", f"try: plimsoll {meant}\n"])


@pytest.mark.parametrize(
    "flags, said",
    (
        (("--shuffle", "perhaps"), "--shuffle takes true or false, got 'perhaps'"),
        (("--validation-split", "half"), "--validation-split takes a number, got 'half'"),
        (("--batchnorm", "sometimes"), "--batchnorm: takes exact or per-micro-batch, got 'sometimes'"),
        (("--budget",), "--budget needs a value"),
        (("--lr", "0.1"), "has no flag --lr\n  try: --learning-rate\n"),
        (("--output", "a.keras"), "has no flag --output\n  try: --save\n"),
        (("--batch", "4"), "has no flag --batch\n  try: --batch-size\n"),
    ),
    ids=str,
)
def test_flags_are_refused_in_plain_words(flags, said):
    refused(201, "fit", MODEL, "--data", data(), *flags, mentions=[said])


def test_what_is_required_has_an_example():
    refused(201, "fit", MODEL, mentions=["--data is required", "try: --data x.npy,y.npy\n"])


def test_help_and_version_in_words():
    version = program.run("--version").stdout
    assert "plimsoll" in version
    assert program.run("version").stdout == program.run("-V").stdout == version
    assert program.run("help").stdout == program.run("--help").stdout
    assert program.run("help", "fit").stdout == program.run("fit", "--help").stdout


@pytest.mark.parametrize("text, size", (("4G", 4 << 30), ("512M", 512 << 20), ("8gb", 8 * 10**9), ("1.5 GiB", 3 << 29)))
def test_sizes(text, size):
    assert plan("--budget", text).json()["budget_bytes"] == size


@pytest.mark.parametrize("device", ("CPU", "/CPU:0", "cpu:0", "/device:CPU:0"))
def test_devices_in_other_words(device):
    assert plan("--device", device).json()["device"]["kind"] == "cpu"


@pytest.mark.parametrize("device", ("GPU", "GPU:0", "/GPU:0", "/device:GPU:0", "cuda", "cuda:0"))
def test_gpus_in_other_words(device):
    """Other spellings behave like `gpu`, with or without a GPU."""
    ended = program.run("plan", MODEL, "--device", device, "--json", expect=None)
    assert ended.code == program.run("plan", MODEL, "--device", "gpu", expect=None).code
    assert ended.code in (0, 6), ended


@pytest.mark.parametrize("device", ("t4", "rtx3060", "RTX 3060"))
def test_cards_without_their_ending(device):
    meant = {"t4": "t4-16g"}.get(device, "rtx-3060-12g")
    shown = [json.loads(program.run("plan", MODEL, "--brief", "--device", name, "--json").stdout) for name in (device, meant)]
    assert shown[0]["device"] == shown[1]["device"]


def test_a_card_with_several_sizes_needs_its_ending():
    refused(201, "plan", MODEL, "--device", "a100", mentions=["no device", "try: --device a100-80g\n"])


@pytest.mark.parametrize(
    "flag, value, meant",
    (
        ("--precision", "bf16", "mixed_bfloat16"),
        ("--precision", "fp16", "mixed_float16"),
        ("--precision", "mixed_bfloat_16", "mixed_bfloat16"),
        ("--loss", "sparse_categorical_crossentropi", "sparse_categorical_crossentropy"),
        ("--optimizer", "adm", "adam"),
        ("--metrics", "acuracy", "accuracy"),
        ("--forbid", "recomputee", "recompute"),
        ("--allow", "microbatch", "micro-batch"),
    ),
)
def test_slips_in_names(flag, value, meant):
    refused(201, "plan", MODEL, flag, value, mentions=[value, meant, "try:"])


def test_names_of_keras_that_are_not_supported_are_no_slips():
    text = refused(205, "plan", MODEL, "--optimizer", "multioptimizer", mentions=["optimizer multioptimizer"])
    assert "did you mean" not in text


def test_built_in_models():
    refused(202, "plan", "fashion_cnn", mentions=["try:", "fashion-cnn"])


def test_the_last_of_two_flags_counts(tmp_path):
    run = program.fit(tmp_path, MODEL, data(), "--epochs", 3, "--epochs", 1, "--batch-size", 8, "--batch-size", 4)
    assert len(run.of("epoch")) == 1 and run.plan["batch"]["effective"] == 4
    program.run("plan", MODEL, "--json", "--json", "--quiet", "--quiet")


def test_a_flag_counts_more_than_its_variable():
    ended = program.run("plan", MODEL, "--json", "--batch-size", 8, "--batch-size", 4, env={"PLIMSOLL_BATCH_SIZE": "2"})
    assert ended.json()["batch"]["effective"] == 4


def test_a_lever_is_not_both_allowed_and_forbidden():
    refused(201, "plan", MODEL, "--allow", "recompute", "--forbid", "recompute", mentions=["recompute", "cannot be both", "try:"])


# Metrics.


def with_metrics(folder, metrics):
    return with_config(folder, lambda c: c["compile_config"].__setitem__("metrics", metrics))


AUC = {"module": "keras.metrics", "class_name": "AUC", "config": {"name": "auc"}, "registered_name": None}


def test_metrics_that_are_not_computed_are_a_warning_and_stay_in_the_file(tmp_path):
    model = with_metrics(tmp_path, ["accuracy", AUC, "Precision"])
    run = program.fit(tmp_path, model, data(), batch_size=4)
    assert "warning: Plimsoll does not compute the metrics auc, Precision; the saved file keeps them\n" in run.ended.stderr
    assert set(run.of("epoch")[0]["metrics"]) == {"loss", "accuracy"}
    import bad_files

    saved = json.loads(bad_files.entries(run.saved)["config.json"])
    assert saved["compile_config"]["metrics"] == ["accuracy", AUC, "Precision"]
    told = program.run("evaluate", run.saved, "--data", data(), "--json")
    assert set(told.json()["metrics"]) == {"accuracy"} and told.json()["skipped_metrics"] == ["auc", "Precision"]
    assert "does not compute" in told.stderr


def test_early_stopping_by_a_metric_that_is_not_computed(tmp_path):
    model = with_metrics(tmp_path, [AUC])
    flags = ("--batch-size", 4, "--validation-data", data(), "--early-stopping", "val_auc:2")
    refused(201, "fit", model, "--data", data(), *flags, mentions=["the metric 'auc' is requested, but Plimsoll does not compute it"])


def test_metrics_of_flags_are_for_the_run_alone(tmp_path):
    import bad_files

    model = with_metrics(tmp_path, ["accuracy", AUC])
    before = json.loads(bad_files.entries(model)["config.json"])["compile_config"]["metrics"]
    for flag, computed in (("acc", {"loss", "acc"}), ("none", {"loss"}), ("AUC,acc", {"loss", "acc"})):
        run = program.fit(tmp_path, model, data(), "--metrics", flag, batch_size=4)
        assert set(run.of("epoch")[0]["metrics"]) == computed
        assert json.loads(bad_files.entries(run.saved)["config.json"])["compile_config"]["metrics"] == before
        assert ("does not compute" in run.ended.stderr) == (flag == "AUC,acc")
    refused(201, "plan", model, "--metrics", "none,acc", mentions=["'none' cannot be combined with metrics"])


# Data.


def test_channels_first_says_transpose_and_never_reshape(tmp_path):
    files = program.arrays(tmp_path, x=np.transpose(X, (0, 3, 1, 2)), y=Y)
    text = refused(402, "fit", MODEL, "--data", files, mentions=["try: np.transpose(x, (0, 2, 3, 1))"])
    assert "reshape" not in text
    model = any_size(tmp_path)
    for flags in ((), ("--input-shape", ",".join(map(str, X.shape[1:])))):
        text = refused(402, "plan", model, "--data", files, *flags, mentions=["try: np.transpose(x, (0, 2, 3, 1))"])
        assert "reshape" not in text and "leave" not in text


def test_arrays_as_keras_and_numpy_name_them(tmp_path):
    mnist = program.archive(tmp_path, "mnist.npz", x_train=X[:8], y_train=Y[:8], x_test=X[8:12], y_test=Y[8:12])
    run = program.fit(tmp_path, MODEL, mnist, "--validation-data", mnist, batch_size=4, steps=2)
    test = program.arrays(tmp_path, "test_", x=X[8:12], y=Y[8:12])
    assert program.evaluate(run.saved, mnist)["loss"] == pytest.approx(program.evaluate(run.saved, test)["loss"], abs=0)
    assert run.of("epoch")[0]["metrics"]["val_loss"] == pytest.approx(program.evaluate(run.saved, test)["loss"], rel=1e-6)
    assert len(program.predict(tmp_path, run.saved, mnist)) == 4
    np.savez(tmp_path / "plain.npz", X[:8], Y[:8])
    assert program.fit(tmp_path, MODEL, tmp_path / "plain.npz", batch_size=4, steps=2).losses == pytest.approx(run.losses, abs=0)


def any_size(folder):
    def open_sizes(config):
        layer(config, "InputLayer")["batch_shape"][1:3] = [None, None]
        config.pop("build_config", None)

    return with_config(folder, open_sizes)


def test_sizes_that_the_model_leaves_open_come_from_the_data(tmp_path):
    model = any_size(tmp_path)
    refused(209, "plan", model, mentions=["--input-shape", "--data"])
    asked = program.plan(model, "--input-shape", ",".join(map(str, X.shape[1:])), "--data", data(), batch_size=4)
    found = program.plan(model, "--data", data(), batch_size=4)
    assert found["peak_bytes"] == asked["peak_bytes"]
    run = program.fit(tmp_path, model, data(), batch_size=4)
    program.evaluate(run.saved, data())
    assert len(program.predict(tmp_path, run.saved, GOLDEN / "cnn_x.npy")) == len(X)
    other = ",".join(map(str, (X.shape[1] + 2, X.shape[2], X.shape[3])))
    refused(402, "plan", model, "--input-shape", other, "--data", data(), mentions=[f"--input-shape {other}", "remove --input-shape"])


@pytest.mark.parametrize("version, noted", (("2.15.0", True), ("3.0.0", False), ("3.15.1", False), ("3.16.0", True), ("4.0.0", True)))
def test_versions_of_keras_that_are_not_tested_are_noted(version, noted, tmp_path):
    def edit(text):
        return json.dumps({**json.loads(text), "keras_version": version}).encode()

    told = plan(model=changed(tmp_path, edit, part="metadata.json")).stderr
    assert ("was saved by Keras " + version.rsplit(".", 1)[0] in told) == noted, told


def test_a_subclassed_model_needs_python(tmp_path):
    def edit(config):
        config.update(module=None, class_name="VAE", registered_name="VAE", config={"name": "vae"})

    refused(205, "plan", with_config(tmp_path, edit), mentions=["custom class VAE", "custom Python code cannot be read from a file"])
