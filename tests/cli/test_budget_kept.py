"""The budget also limits reading and planning. If a run exceeds it, the program says so after everything was saved."""

import json
import os
import subprocess
import sys
import zipfile

import pytest

import program
from bad_files import GOLDEN, data

MODEL = GOLDEN / "cnn.keras"
HOLD_MEMORY = program.ROOT / "build" / "libhold_memory.so"


# Runs the program through a small process, because a child's peak memory starts at its parent's, and this process may have loaded
# Keras. The limit of 4 GiB stops a program whose memory grows without end.
WATCH = """
import resource, subprocess, sys
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
code = subprocess.run(sys.argv[2:]).returncode
open(sys.argv[1], "w").write(f"{code} {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss}")
"""


def peak_of(folder, *arguments):
    """Returns the exit code, the largest resident memory in MiB, and the output."""
    command = [sys.executable, "-c", WATCH, folder / "watched", *program.PROGRAM, *arguments]
    ended = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=program.TIMEOUT, check=True)
    code, kib = map(int, (folder / "watched").read_text().split())
    return code, kib / 1024, ended.stdout + ended.stderr


def blocks(count):
    """A model of many tiny layers: little to train, much to plan."""
    layers = [{"class_name": "InputLayer", "config": {"batch_shape": [None, 8], "name": "in"}, "name": "in", "inbound_nodes": []}]
    for i in range(count):
        layers.append({"class_name": "Dense", "config": {"name": f"dense_of_block_number_{i}", "units": 8, "activation": "gelu"}})
    return {"class_name": "Sequential", "config": {"name": "blocks", "layers": [
        {"class_name": entry["class_name"], "config": entry["config"]} for entry in layers]}}


def test_planning_many_layers_stays_inside_what_the_plan_says(tmp_path):
    model = tmp_path / "blocks.json"
    model.write_text(json.dumps(blocks(800)))
    flags = ("--optimizer", "adam", "--loss", "mse", "--batch-size", 8, "--threads", 2)
    code, peak, out = peak_of(tmp_path, "plan", model, *flags, "--json")
    assert code == 0, out
    plan = json.loads(out)
    assert peak <= plan["peak_bytes"] / 2**20
    assert plan["arena_bytes"] + plan["overhead_bytes"] + plan["data_bytes"] == plan["peak_bytes"]
    assert plan["least_bytes"] <= plan["peak_bytes"]
    code, _, out = peak_of(tmp_path, "plan", model, *flags, "--budget", plan["least_bytes"] - 1)
    assert code == 3 and "P301" in out and "planning" in out


def test_a_config_of_many_values_is_refused_inside_the_budget(tmp_path):
    model = tmp_path / "many.json"
    model.write_text('{"class_name": "Sequential", "config": {"layers": [' + ",".join(["[]"] * 1_900_000) + "]}}")
    code, peak, out = peak_of(tmp_path, "plan", model, "--budget", "64MiB")
    assert code in (2, 3), out
    assert "error P" in out
    assert peak < 140  # the budget, the text itself, and the memory that reading may always take


def test_metadata_of_many_values_costs_little(tmp_path):
    """Only the Keras version is read from it, but it is untrusted JSON as well."""
    model = tmp_path / "many.keras"
    with zipfile.ZipFile(MODEL) as good, zipfile.ZipFile(model, "w", zipfile.ZIP_DEFLATED) as bad:
        for name in good.namelist():
            bad.writestr(name, good.read(name) if name != "metadata.json" else "[" + ",".join(["[]"] * 4_000_000) + "]")
    code, peak, out = peak_of(tmp_path, "plan", model, "--batch-size", 4)
    assert code == 0 and "unknown version of Keras" in out
    assert peak < 100


@pytest.mark.skipif(not HOLD_MEMORY.exists(), reason="built with the unit tests")
@pytest.mark.parametrize("as_json", (False, True))
def test_a_peak_above_the_budget_is_an_error_after_saving(tmp_path, as_json):
    saved = tmp_path / "out.keras"
    command = [*program.PROGRAM, "fit", str(MODEL), "--data", data(), "--batch-size", "4", "--budget", "64MiB", "--save", str(saved)]
    environment = {**os.environ, "LD_PRELOAD": str(HOLD_MEMORY), "PLIMSOLL_HOLD_MIB": "80"}
    ended = subprocess.run(command + ["--json"] * as_json, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 3, ended.stderr
    if as_json:
        found = json.loads(ended.stdout)
        assert found["error"]["code"] == "P304" and found["process_peak_bytes"] > found["budget_bytes"]
    else:
        assert "error P304: the process held" in ended.stderr and str(saved) in ended.stderr
    assert json.loads(program.run("evaluate", saved, "--data", data(), "--json").stdout)["loss"] > 0
