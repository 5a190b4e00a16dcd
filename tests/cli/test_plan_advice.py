"""What `plan` advises: each remedy, typed as printed, gives the bytes that it promised; the command at the end fits; the text, the
JSON and the tables show the same numbers."""

import json
import re
import shlex

import numpy as np
import pytest

import program
from bad_files import GOLDEN

RESNET_50 = json.loads((GOLDEN / "model" / "resnet50.json").read_text())[0]["config"]
COMPILED = ["--optimizer", "adam", "--loss", "sparse_categorical_crossentropy"]
# Models and budgets: plans that fit without a lever, with levers, and not at all; on the CPU and on cards that are not here.
CASES = (
    ["seed-1", "--batch-size", 32, "--budget", "1GiB"],
    ["seed-2", "--batch-size", 128, "--budget", "160MiB"],
    ["seed-2", "--batch-size", 128, "--budget", "30MiB"],
    ["seed-3", "--batch-size", 16, "--budget", "50MiB", "--forbid", "micro-batch"],
    ["fashion-cnn", "--batch-size", "auto", "--budget", "96MiB"],
    ["fashion-cnn", "--batch-size", 128, "--budget", "25MiB"],
    [GOLDEN / "cnn.keras", "--batch-size", 64, "--budget", "40MiB"],
    [GOLDEN / "resnet.keras", "--batch-size", 64, "--budget", "45MiB"],
    [GOLDEN / "mlp.keras", "--batch-size", 16, "--budget", "100MiB", "--validation-split", 0.5],
    ["seed-2", "--batch-size", 128, "--device", "t4-16g"],
    ["seed-2", "--batch-size", 512, "--device", "1g"],
    ["seed-2", "--batch-size", 4096, "--device", "rtx-3060-12g", "--budget", "700MiB"],
    [GOLDEN / "resnet.keras", "--batch-size", 4096, "--device", "2g"],
    ["seed-2", "--batch-size", 128, "--device", "1g", "--budget", "426MiB"],  # only a smaller model fits
    ["seed-3", "--batch-size", 32, "--budget", "19MiB", "--micro-batch", 4],
)


def ids(case):
    return " ".join(str(word).rsplit("/", 1)[-1] for word in case)


def advised(*flags):
    return program.run("plan", *flags, "--threads", 2, "--json", expect=None).json()


def typed(*flags):
    return program.run("plan", *flags, "--threads", 2, "--json", "--brief", expect=None).json()


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_each_remedy_gives_the_bytes_that_it_promised(case):
    plan = advised(*case)
    kinds = {remedy["remedy"].split(":")[0] for remedy in plan["remedies"]}
    assert {"smaller batch", "half the filters and units"} <= kinds or {"--forbid", "--micro-batch"} & set(map(str, case)), kinds
    for remedy in plan["remedies"]:
        assert remedy["saves_bytes"] == plan["peak_bytes"] - remedy["peak_bytes"]
        if not remedy["flags"]:
            continue
        then = typed(*case, *shlex.split(remedy["flags"]))
        assert (then["peak_bytes"], then["fits"]) == (remedy["peak_bytes"], remedy["fits"]), remedy
        ratio = then["step_seconds"] / then["batch"]["effective"] * plan["batch"]["effective"] / plan["step_seconds"]
        assert ratio == pytest.approx(remedy["step_ratio"], rel=1e-9), remedy


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_batches_precisions_and_frontier_are_what_their_flags_give(case):
    plan = advised(*case)
    for row in plan["batches"]:
        then = typed(*case, "--batch-size", row["batch"])
        assert (then["peak_bytes"], then["fits"]) == (row["peak_bytes"], row["fits"]), row
    for row in plan["precisions"]:
        then = typed(*case, "--precision", row["precision"])
        assert (then["peak_bytes"], then["fits"]) == (row["peak_bytes"], row["fits"]), row
    points = plan.get("frontier", [])
    for before, after in zip(points, points[1:]):
        assert before["peak_bytes"] < after["peak_bytes"] and before["step_ratio"] >= after["step_ratio"] - 1e-12


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_the_command_at_the_end_fits(case):
    plan = advised(*case)
    words = shlex.split(plan["next"]["command"])
    assert words[:2] in (["plimsoll", "fit"], ["plimsoll", "plan"])
    kept = re.sub(r" --data x.npy,y.npy| --save trained.keras", "", plan["next"]["command"].split(" ", 2)[2])
    if "--device" in case:  # the command names the card that is there
        kept = kept.replace("--device gpu", f"--device {case[case.index('--device') + 1]}")
    then = typed(*shlex.split(kept))
    assert then["fits"] and then["peak_bytes"] == plan["next"]["peak_bytes"], plan["next"]


@pytest.mark.parametrize("case", CASES[:3], ids=ids)
def test_the_text_has_the_numbers_of_the_json_in_80_columns(case):
    plan = advised(*case)
    text = program.run("plan", *case, "--threads", 2, "--details", expect=None).stdout
    assert max(map(len, text.splitlines())) <= 80
    assert text.startswith("Fits: " if plan["fits"] else "Does not fit: ")
    sums = {name: int(number.replace(",", "")) for name, number in re.findall(r"^  (\S.*?) {2,}([\d,]+) +\d", text, re.MULTILINE)}
    assert sums["the whole process"] == plan["peak_bytes"]
    assert sums["all tensors, in one block (the arena)"] == plan["arena_bytes"] == sum(c["bytes"] for c in plan["categories"])
    for category in plan["categories"]:
        if category["name"] in sums:
            assert sums[category["name"]] == category["bytes"]
    for remedy in plan["remedies"]:
        assert remedy["flags"] in text


def test_a_resolution_can_be_priced_without_changing_the_file():
    small, large = (typed(GOLDEN / "cnn.keras", "--batch-size", 64, "--input-shape", f"{px},{px},3") for px in (8, 64))
    assert small["peak_bytes"] < large["peak_bytes"]
    assert large["layers"][0]["output_shape"][:2] > small["layers"][0]["output_shape"][:2]
    refused = program.run("fit", GOLDEN / "cnn.keras", "--data", "x.npy,y.npy", "--input-shape", "64,64,3", expect=None)
    assert refused.code == 2  # training takes the file's own shape


def test_a_changed_model_has_remedies_and_a_command_that_says_what_to_change():
    case = ["seed-2", "--batch-size", 64, "--budget", "160MiB", "--without-layer", "conv2d"]
    test_each_remedy_gives_the_bytes_that_it_promised(case)
    told = advised(*case)["next"]
    assert told["command"].startswith("plimsoll fit changed.keras ") and "--without-layer" not in told["command"]
    assert "make this change in Keras" in told["note"]
    same = advised("seed-2", "--batch-size", 64, "--budget", "160MiB", "--input-shape", "128,128,3")["next"]  # its own shape
    assert same["command"].startswith("plimsoll fit seed-2 ") and not same["note"]


def test_fit_names_the_remedies_that_it_takes(tmp_path):
    flags = ["seed-1", "--batch-size", 64, "--budget", "35MiB", "--threads", 2]
    x, y = tmp_path / "x.npy", tmp_path / "y.npy"
    np.save(x, np.zeros((64, 64, 64, 3), np.float32))
    np.save(y, np.zeros(64, np.int32))
    ended = program.run("fit", *flags, "--data", f"{x},{y}", "--json", expect=3).json()
    remedies = {line.split("   ")[0]: line for line in ended["error"]["try"]}
    assert {"--optimizer sgd", "--batch-size 1", "plimsoll plan seed-1"} <= remedies.keys(), remedies
    for typed_as, line in remedies.items():
        if not typed_as.startswith("--"):
            continue
        then = typed(*flags, "--data", f"{x},{y}", *shlex.split(typed_as))
        assert f"needs {shown(then['peak_bytes'])}" in line and (", fits" in line) == then["fits"], line


def shown(count):
    number = count / 2**20
    return f"{number:.{2 if number < 10 else 1 if number < 100 else 0}f} MiB"


def test_several_batches_plan_the_largest_that_fits():
    plan = program.run("plan", "seed-2", "--batch-size", "16,256,64", "--budget", "100MiB", "--forbid", "micro-batch,recompute,split", "--json").json()  # fmt: skip
    assert [row["batch"] for row in plan["batches"]] == [16, 64, 256]
    assert plan["batch"]["effective"] == max(row["batch"] for row in plan["batches"] if row["fits"])


def test_the_largest_batch_is_found():
    plan = program.run("plan", "seed-1", "--batch-size", 8, "--budget", "100MiB", "--max-batch", 65536, "--json").json()
    largest = max(row["batch"] for row in plan["batches"] if row["fits"])
    assert not typed("seed-1", "--budget", "100MiB", "--batch-size", 2 * largest)["fits"] or 2 * largest > 65536


def test_every_card_in_one_table():
    found = program.run("plan", "seed-2", "--batch-size", 128, "--device", "all", "--json").json()
    cards = {card["device"]: card for card in found["cards"]}
    assert {"rtx-2060-6g", "rtx-3070-8g", "v100-16g", "a10-24g", "l40s-48g", "b200-180g"} <= cards.keys()
    assert [name for name, card in cards.items() if card["measured"]] == ["h200-141g"]
    for name in ("rtx-2060-6g", "t4-16g", "h100-80g"):
        assert typed("seed-2", "--batch-size", 128, "--device", name)["peak_bytes"] == cards[name]["peak_bytes"]
        assert typed("seed-2", "--batch-size", cards[name]["largest_batch"], "--device", name)["fits"]
    text = program.run("plan", "seed-2", "--batch-size", 128, "--device", "all").stdout
    assert max(map(len, text.splitlines())) <= 80 and "h200-141g (measured)" in text


@pytest.mark.parametrize(
    "spelled, name",
    (
        ("RTX 3060", "NVIDIA GeForce RTX 3060"),
        ("rtx3060", "NVIDIA GeForce RTX 3060"),
        ("NVIDIA GeForce RTX 3060", "NVIDIA GeForce RTX 3060"),
        ("t4", "Tesla T4"),
        ("Tesla T4", "Tesla T4"),
        ("v100-16g", "Tesla V100-SXM2-16GB"),
        ("8g", "a card with 8 GiB"),
        ("24GB", "a card with 24 GiB"),
        ("CPU:0", None),
        ("/CPU:0", None),
        ("/job:localhost/replica:0/task:0/device:CPU:0", None),
    ),
)
def test_devices_are_named_as_users_of_other_programs_name_them(spelled, name):
    device = typed("seed-1", "--device", spelled)["device"]
    assert device["name"] == name if name else device["kind"] == "cpu"


def test_a_name_of_several_cards_is_answered_with_their_profiles():
    told = program.run("plan", "seed-1", "--device", "a100", expect=2).stderr
    assert "--device a100-80g" in told and "--device a100-40g" in told


@pytest.mark.parametrize(
    "flags, code, told",
    (
        (["--without-layer", "nope"], 2, "no such layer"),
        (["--without-layer", "input_layer"], 2, "input"),
        (["--max-kernel", "9"], 2, "no convolution has a larger kernel"),
        (["--max-kernel", "0"], 2, "above 0"),
        (["--scale-filters", "0"], 2, "above 0"),
        (["--scale-filters", "nan"], 2, "above 0"),
        (["--scale-filters", "1e300"], 2, "error P"),
        (["--input-shape", "64,64"], 2, "sizes"),
        (["--input-shape", "0,64,3"], 2, "above 0"),
        (["--input-shape", "1,1,3"], 2, "error P210"),
    ),
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_an_impossible_change_of_the_model_is_one_error(flags, code, told):
    ended = program.run("plan", GOLDEN / "cnn.keras", *flags, expect=code)
    assert told in ended.stderr and ended.stderr.count("error P") == 1, ended.stderr


@pytest.mark.skipif(not program.os.environ.get("PLIMSOLL_SLOW_TESTS"), reason="a minute")
@pytest.mark.parametrize("budget", ("700MiB", "16GiB"))
def test_the_remedies_of_resnet_50(budget, tmp_path):
    model = tmp_path / "m.json"
    model.write_text(json.dumps(RESNET_50))
    test_each_remedy_gives_the_bytes_that_it_promised(
        [model, *COMPILED, "--batch-size", 64, "--device", "a100-80g", "--budget", budget]
    )
