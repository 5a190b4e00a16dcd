"""Wrong flags, budgets that are too small, and full disks."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import numpy as np
import pytest

import program
from bad_files import GOLDEN, OLD, data, fit_refused, refused

MODEL = GOLDEN / "cnn.keras"
COMMANDS = ("plan", "fit", "evaluate", "predict", "doctor", "explain", "profile", "top", "reduce", "convert", "shrink",
            "shrink prune", "shrink resize")


def fit(*flags):
    return "fit", MODEL, "--data", data(), "--batch-size", 4, *flags


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command):
    text = program.run(*command.split(), "--help").stdout
    assert f"plimsoll {command}" in text


@pytest.mark.parametrize(
    "arguments",
    (
        ("fit", MODEL, "--data", data(), "--bach-size", 4),
        ("fit", MODEL, "--data", data(), "--batch-size", 0),
        ("fit", MODEL, "--data", data(), "--batch-size", -5),
        ("fit", MODEL, "--data", data(), "--batch-size", "many"),
        ("fit", MODEL, "--data", data(), "--budget", "12XB"),
        ("fit", MODEL, "--data", data(), "--budget", "-1GiB"),
        ("fit", MODEL, "--data", data(), "--precision", "float8"),
        ("fit", MODEL, "--data", data(), "--forbid", "magic"),
        ("fit", MODEL, "--data", data(), "--epochs", -1),
        ("fit", MODEL, "--data", data(), "--batchnorm", "sometimes"),
        ("fit", MODEL, "--data", data(), "--class-weight", "a:b"),
        ("fit", MODEL, "--data", data(), "--shuffle", "perhaps"),
        ("fit", MODEL),
        ("fit",),
        ("train", MODEL),
        (),
        ("plan",),
        ("predict", MODEL, "--data", GOLDEN / "cnn_x.npy", "--output"),
        ("fit", MODEL, "--data", data(), "--validation-split", "1.5"),
        ("fit", MODEL, "--data", ""),
        ("fit", MODEL, "--data", data(), "--save", ""),
        ("fit", MODEL, "--data", data(), "--seed", -1),
        ("fit", MODEL, "--data", data(), "more"),
        ("doctor", "--threads", -1),
        ("fit", MODEL, "--data", data(), "--resume"),
        ("plan", MODEL, "--batch-size", 10**25),
        ("plan", MODEL, "--micro-batch", 8, "--forbid", "micro-batch"),
        ("plan", MODEL, "--micro-batch", 8, "--allow", "recompute"),
        ("plan", MODEL, "--precision", "float64", "--device", "h200-141g"),
        ("fit", MODEL, "--data", data(), "--save", "trained.h5"),
        ("predict", MODEL, "--data", GOLDEN / "cnn_x.npy", "--output", "predictions.txt"),
    ),
    ids=lambda a: " ".join(str(p).rsplit("/", 1)[-1] for p in a)[-40:],
)
def test_bad_usage(arguments):
    refused(201, *arguments)


@pytest.mark.parametrize("flag", ("--gradient-accumulation-steps", "--learning-rate", "--validation-batch-size"))
@pytest.mark.parametrize("value", (0, -1, "some", "inf", "1e400", "2 "))
def test_numbers_that_do_not_do_say_what_would(flag, value):
    number = "number" if flag == "--learning-rate" else "whole number"
    refused(201, "plan", MODEL, flag, value, mentions=[f"{flag}: takes a {number} above 0, got '{value}'"])


def test_more_samples_than_can_be_counted():
    refused(201, "plan", MODEL, "--batch-size", 3, "--gradient-accumulation-steps", 6148914691236517206)


@pytest.mark.parametrize("name, proposed", (("../out", "../out.keras"), ("a.b/out", "a.b/out.keras"), ("x.h5", "x.keras   the whole model")))
def test_files_are_called_what_they_are(name, proposed):
    refused(201, *fit("--save", name), mentions=[f"try: --save {proposed}\n"])


def test_sizes_that_do_not_do_name_their_flag():
    refused(201, "plan", MODEL, "--budget", "7gobs", mentions=["--budget: '7gobs' is not a size"])


@pytest.mark.parametrize("flag", (["--bach-size", 4], ["--batch_size", 4], ["--batch_size=4"], ["--batchsize", 4]), ids=str)
def test_unknown_flag_names_its_neighbour(flag):
    text = refused(201, "fit", MODEL, "--data", data(), *flag)
    assert f"has no flag {flag[0].split('=')[0]}\n  try: --batch-size\n" in text


def test_unknown_flag_without_a_neighbour():
    refused(201, "fit", MODEL, "--data", data(), "--amsgrad", mentions=["no flag --amsgrad\n  try: plimsoll fit --help"])


def test_unknown_command():
    refused(201, "train", MODEL, mentions=["no command 'train'", "commands: plan, fit, evaluate, predict, reduce, convert, shrink, doctor"])
    refused(201, "evalute", MODEL, mentions=["try: plimsoll evaluate"])


@pytest.mark.parametrize("metric, flags", (("acuracy", []), ("val_loss", []), ("val_mae", ["--validation-data", data()])))
def test_early_stopping_by_a_metric_that_is_not_there(metric, flags):
    refused(201, *fit("--early-stopping", f"{metric}:2", *flags), mentions=[f"'{metric}'", "computes loss, accuracy"])


def test_training_that_keeps_nothing_says_so(tmp_path):
    assert "the trained weights are not saved" in program.run(*fit()).stderr
    assert "the trained weights are not saved" not in program.run(*fit("--save", tmp_path / "s.keras")).stderr


def test_device_that_nobody_knows():
    refused(201, "plan", MODEL, "--device", "abacus", mentions=["abacus", "cpu", "rtx-4090-24g"])


def test_gpu_that_is_not_here():
    ended = program.run("plan", MODEL, "--device", "gpu", expect=None)
    assert ended.code == 0 or (ended.code == 6 and "error P603" in ended.stderr and "--device cpu" in ended.stderr), ended


def test_the_doctor_lists_the_cards_to_plan_for():
    told = program.run("doctor", "--json").json()
    assert "rtx-4090-24g" in told["profiles"] and isinstance(told["gpus"], list) and isinstance(told["missing"], list)


def test_card_that_is_not_here_is_planned_for_and_trains_nothing():
    plan = json.loads(program.run("plan", MODEL, "--device", "rtx-4090-24g", "--json").stdout)
    assert plan["device"]["kind"] == "gpu" and plan["memories"][0]["space"] == "gpu:0"
    assert plan["peak_bytes"] == plan["arena_bytes"] + plan["overhead_bytes"] + plan["data_bytes"]
    refused(603, "fit", MODEL, "--data", data(), "--device", "rtx-4090-24g", mentions=["not in this machine"])


def test_half_precision_on_the_cpu_saves_memory():
    flags = ("plan", "fashion-cnn", "--device", "cpu", "--batch-size", 1024, "--forbid", "recompute,micro-batch")
    whole = json.loads(program.run(*flags, "--json", "--brief", "--precision", "float32").stdout)
    for precision in ("mixed_bfloat16", "mixed_float16"):
        half = json.loads(program.run(*flags, "--json", "--brief", "--precision", precision).stdout)
        assert half["precision"] == precision
        assert half["live_set_bytes"] < 0.7 * whole["live_set_bytes"]


def test_layers_in_float32_that_do_not_exist():
    flags = ("plan", MODEL, "--device", "t4-16g", "--precision", "mixed_float16", "--float32-layers")
    refused(201, *flags, "block5_*", mentions=["block5_*", "its layers:"])
    program.run(*flags, "*")


def test_card_without_bfloat16():
    flags = ("plan", MODEL, "--device", "t4-16g", "--batch-size")
    for batch in ("8", "auto"):
        refused(201, *flags, batch, "--precision", "mixed_bfloat16", mentions=["Tesla T4", "--precision mixed_float16"])
        plan = json.loads(program.run(*flags, batch, "--precision", "mixed_float16", "--json").stdout)
        assert plan["precision"] == "mixed_float16" and plan["fits"]


def test_optimizer_that_is_not_supported():
    refused(201, "fit", MODEL, "--data", data(), "--optimizer", "magic", mentions=["Keras has no such optimizer", "adamw"])
    refused(205, "fit", MODEL, "--data", data(), "--optimizer", "MultiOptimizer", mentions=["optimizer MultiOptimizer", "--optimizer adam"])


@pytest.mark.parametrize("batch", (2**40, 2**62))
def test_huge_batch(batch):
    ended = program.run("plan", MODEL, "--batch-size", batch, expect=None)
    assert ended.code in (2, 3) and "error P" in ended.stderr, ended


def test_budget_too_small_names_the_least_that_would_do(tmp_path):
    least = program.plan(MODEL, batch_size=4, data=data(), threads=2)["least_bytes"]
    text = fit_refused(tmp_path, 301, None, None, "--budget", least // 2)
    number = re.search(r"needs ([\d.]+) (B|KiB|MiB|GiB)", text)
    assert number, text
    told = float(number[1]) * {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}[number[2]]
    assert abs(told - least) < 0.1 * least, text
    trained = program.fit(tmp_path, MODEL, data(), batch_size=4, epochs=1, budget=least, steps=5)
    assert trained.done["budget_bytes"] == least


@pytest.mark.parametrize("budget", ("1", "1KiB", "1MiB"))
def test_hopeless_budget(budget, tmp_path):
    fit_refused(tmp_path, 301, None, None, "--budget", budget)


def test_budget_by_environment():
    refused(301, "fit", MODEL, "--data", data(), "--batch-size", 4, env={"PLIMSOLL_BUDGET": "1MiB"})


def test_error_as_json():
    """One JSON document contains the smallest plan and the error with its remedies."""
    found = program.run("plan", MODEL, "--batch-size", 4, "--budget", "1KiB", "--json", expect=3).json()
    assert found["fits"] is False and found["error"]["code"] == "P301" and found["error"]["try"], found


@pytest.mark.parametrize("device", ("cpu", "rtx-4090-24g", "t4-16g"))
def test_the_budget_that_is_proposed_does(device):
    flags = ("plan", "fashion-cnn", "--batch-size", 256, "--device", device, "--budget")
    remedies = program.run(*flags, "1MiB", "--json", expect=3).json()["error"]["try"]
    proposed = re.match(r"--budget (\d+MiB) ", remedies[0])
    plan = program.run(*flags, proposed[1], "--json").json()
    assert plan["fits"] and plan["least_bytes"] <= plan["peak_bytes"] <= plan["budget_bytes"]


def test_no_budget_is_larger_than_the_card():
    plan = program.run("plan", MODEL, "--device", "t4-16g", "--budget", "1TiB", "--json").json()
    assert plan["budget_bytes"] == plan["device"]["memory_bytes"]
    text = refused(301, "plan", "fashion-cnn", "--device", "t4-16g", "--batch-size", 2**22, "--forbid", "micro-batch,offload")
    assert "Tesla T4 has" in text and "try: --budget" not in text


def test_a_reader_that_has_gone_changes_no_exit_code():
    ended = subprocess.run(
        ["bash", "-c", 'set -o pipefail; (sleep 0.3; "$@") | true', "-", *program.command("plan", MODEL, "--budget", "1MiB", "--json")]
    )
    assert ended.returncode == 3


def test_messages_that_nobody_reads_stop_nothing(tmp_path):
    with open("/dev/full", "w") as full:
        subprocess.run(program.command(*fit("--save", tmp_path / "s.keras")), stderr=full, check=True)
    assert (tmp_path / "s.keras").exists()


def test_output_that_does_not_arrive():
    for flags in (("plan", MODEL), ("plan", MODEL, "--json"), ("plan", "--nope", "--json"), ("--help",)):
        with open("/dev/full", "w") as full:
            ended = subprocess.run(program.command(*flags), stdout=full, stderr=subprocess.PIPE, text=True)
        assert ended.returncode == 6 and "error P601" in ended.stderr, ended


def test_damaged_checkpoint(tmp_path):
    flags = [
        "fit",
        MODEL,
        "--data",
        data(),
        "--batch-size",
        4,
        "--epochs",
        2,
        "--checkpoint",
        tmp_path / "c",
        "--checkpoint-every",
        2,
        "--save",
        tmp_path / "s.keras",
    ]
    program.run(*flags)
    files = [p for p in (tmp_path / "c").rglob("*") if p.is_file()]
    assert files
    for p in files:
        blob = p.read_bytes()
        p.write_bytes(blob[: len(blob) // 2])
    before = (tmp_path / "s.keras").read_bytes()
    refused(212, *flags[:7], 4, *flags[8:], "--resume")
    assert (tmp_path / "s.keras").read_bytes() == before


def test_checkpoint_of_another_model(tmp_path):
    tail = ["--batch-size", 4, "--epochs", 2, "--checkpoint", tmp_path / "c", "--save", tmp_path / "s.keras"]
    program.run("fit", GOLDEN / "mlp.keras", "--data", data("mlp"), *tail)
    refused(212, "fit", MODEL, "--data", data(), *tail, "--resume")


@contextlib.contextmanager
def small_disk(folder, size, *options):
    """A tmpfs of that many bytes; skips the test if it may not mount one."""
    folder.mkdir(exist_ok=True)
    p = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", ",".join([f"size={size}", *options]), "tmpfs", folder],
        capture_output=True,
        text=True,
    )
    if p.returncode:
        pytest.skip(f"cannot mount a small file system: {p.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def train_to(saved, *flags):
    return "fit", MODEL, "--data", data(), "--batch-size", 4, "--epochs", 1, "--save", saved, *flags


def test_disk_full_on_save(tmp_path):
    with small_disk(tmp_path / "disk", 16384) as disk:
        saved = disk / "model.keras"
        saved.write_bytes(OLD)
        refused(601, *train_to(saved), mentions=["model.keras"])
        assert saved.read_bytes() == OLD
        assert [p.name for p in disk.iterdir()] == ["model.keras"]


def test_disk_full_on_checkpoint(tmp_path):
    """If the disk is full when a checkpoint is written, the previous checkpoint stays and can be resumed."""
    with small_disk(tmp_path / "disk", 16384) as disk:
        flags = ("--checkpoint-every", 1)
        refused(601, *train_to(tmp_path / "model.keras", "--checkpoint", disk / "c", *flags))
        left = [p.name for p in disk.rglob("*") if p.is_file()]
        assert left in ([], ["checkpoint.plimsoll"]), left
        shutil.copytree(disk, tmp_path / "copy")
    assert not (tmp_path / "model.keras").exists()
    program.run(*train_to(tmp_path / "model.keras", "--checkpoint", tmp_path / "copy" / "c", *flags, "--resume"))
    assert (tmp_path / "model.keras").exists()


def test_disk_full_on_predictions(tmp_path):
    with small_disk(tmp_path / "disk", 4096) as disk:
        (disk / "filler").write_bytes(bytes(4096))
        refused(601, "predict", MODEL, "--data", GOLDEN / "cnn_x.npy", "--output", disk / "p.npy", "--batch-size", 4)
        assert [p.name for p in disk.iterdir()] == ["filler"]


def test_unwritable_folder(tmp_path):
    """The error comes before the first step, not after the last."""

    def check(folder):
        log = tmp_path / "log.jsonl"
        refused(602, *train_to(folder / "model.keras", "--log", log), mentions=["model.keras"])
        assert not log.exists() or '"step"' not in log.read_text()

    if os.geteuid() == 0:
        with small_disk(tmp_path / "disk", 65536, "ro") as disk:
            check(disk)
    else:
        (tmp_path / "closed").mkdir(mode=0o555)
        check(tmp_path / "closed")


@pytest.mark.parametrize("target", ("missing/model.keras", "a_file/model.keras"))
def test_no_such_folder(target, tmp_path):
    (tmp_path / "a_file").write_text("")
    refused(602, *train_to(tmp_path / target))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a_file"]


def test_unwritable_log(tmp_path):
    refused(602, *train_to(tmp_path / "model.keras", "--log", tmp_path / "missing" / "log.jsonl"))
    assert not (tmp_path / "model.keras").exists()


def test_results_on_stdout_messages_on_stderr():
    ended = program.run("plan", MODEL, "--batch-size", 4, "--json")
    assert ended.stderr == "" or "error" not in ended.stderr
    assert json.loads(ended.stdout)["schema"] == "plimsoll.plan/1"


def test_plan_is_deterministic():
    def one():
        plan = program.plan(MODEL, batch_size=16, budget="64MiB")
        plan.pop("solver", None)
        plan["device"].pop("free_bytes", None)
        plan.pop("budget_bytes", None)
        return plan

    assert one() == one()


def test_doctor():
    device = [line for line in program.run("doctor", "--threads", 2).stdout.splitlines() if line.startswith("device")]
    assert len(device) == 1 and device[0].count("threads") == 1, device
    assert isinstance(program.run("doctor", "--json").json(), dict)


def test_page_cache_does_not_fill_a_cgroup():
    """Files read twice are in the "active" page cache, which the kernel can also reclaim."""
    # A file system in memory would keep the file in memory, so the file is in the program's folder.
    with tempfile.NamedTemporaryFile(dir=pathlib.Path(program.PROGRAM[0]).resolve().parent) as file:
        fill = 'head -c 128M /dev/zero >"$0"; cat "$0" "$0" >/dev/null; exec "$@"'
        limit = [str(program.ROOT / "scripts" / "in_cgroup.sh"), "256MiB", "--"]
        ended = program.run("doctor", "--json", prefix=[*limit, "sh", "-c", fill, file.name], expect=None)
    if ended.code == 77:
        pytest.skip(ended.stderr.strip())
    doctor = ended.json()
    assert doctor["limited_by_cgroup"] and 192 * 2**20 < doctor["device"]["free_bytes"] <= 256 * 2**20
    assert doctor["default_budget_bytes"] < doctor["device"]["free_bytes"]


def test_predictions_are_in_the_order_of_the_data(tmp_path):
    got = program.predict(tmp_path, MODEL, GOLDEN / "cnn_x.npy", batch_size=4)
    want = np.load(GOLDEN / "cnn_expected.npz")["predictions"]
    assert got.shape == (20, 3) and np.max(np.abs(got[:4] - want)) < 1e-5
    assert pathlib.Path(tmp_path / "predictions.npy").exists()


CARD = ("plan", MODEL, "--batch-size", 4, "--device", "rtx-4090-24g")


@pytest.mark.parametrize(
    ("flags", "env", "grows"),
    (
        ((), {}, False),
        (("--memory-growth",), {}, True),
        ((), {"PLIMSOLL_MEMORY_GROWTH": "1"}, True),
        ((), {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}, True),
        (("--memory-growth",), {"TF_FORCE_GPU_ALLOW_GROWTH": "false"}, False),
        ((), {"TF_FORCE_GPU_ALLOW_GROWTH": "1"}, False),
        (("--memory-growth",), {"TF_FORCE_GPU_ALLOW_GROWTH": "1"}, True),
    ),
)
def test_memory_growth_by_flag_and_variable(flags, env, grows):
    """The variable overrides the flag, as in TensorFlow. A value other than true and false is ignored, with a note."""
    ended = program.run(*CARD, *flags, env=env)
    assert ("memory growth: " in ended.stdout) == grows, ended
    assert program.run(*CARD, "--json", *flags, env=env).json()["device"].get("memory_growth", False) == grows
    told = env.get("TF_FORCE_GPU_ALLOW_GROWTH") == "1" or (flags and not grows)
    assert ("TF_FORCE_GPU_ALLOW_GROWTH" in ended.stderr) == bool(told), ended


def test_memory_growth_changes_no_plan():
    def one(*flags):
        plan = program.run(*CARD, "--json", *flags).json()
        plan.pop("solver")
        plan.pop("next")  # the command has the flag
        plan["device"].pop("memory_growth", None)
        return plan

    assert one() == one("--memory-growth")


def test_memory_growth_on_the_cpu_changes_nothing(tmp_path):
    assert "--memory-growth" in program.run("fit", "--help").stdout
    if program.run("doctor", "--json").json()["device"]["kind"] != "cpu":
        pytest.skip("this build has no CPU backend")
    named = {"batch_size": 4, "epochs": 1, "device": "cpu"}
    plain = program.fit(tmp_path, MODEL, data(), name="plain", **named)
    grown = program.fit(tmp_path, MODEL, data(), "--memory-growth", name="grown", **named)
    assert "memory growth:" not in grown.ended.stderr
    assert np.array_equal(plain.losses, grown.losses)
