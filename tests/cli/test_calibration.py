"""doctor --calibrate writes a file, plan and fit predict from it, and a file that is not right does nothing."""

import json
import os

import numpy as np
import pytest

import program
from bad_files import GOLDEN

MODEL = GOLDEN / "cnn.keras"
FLAGS = ("--batch-size", 8, "--device", "cpu", "--threads", 2, "--budget", "256MiB")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A cache with a calibration of the golden CNN, and what the doctor said."""
    folder = tmp_path_factory.mktemp("calibrated")
    env = {"PLIMSOLL_CACHE": str(folder / "cache"), "PLIMSOLL_CALIBRATION": "auto"}
    told = program.run("doctor", "--calibrate", MODEL, *FLAGS, "--json", "--quiet", env=env).json()
    return env, told


def plan(*more, env=None, expect=0):
    return program.run("plan", MODEL, *FLAGS, "--json", *more, env=env, expect=expect)


def without_time(text):
    """The plan without the solver's seconds and the memory that is free at the moment."""
    found = json.loads(text)
    del found["solver"], found["device"]
    return found


def test_what_was_measured_is_predicted(cache):
    env, told = cache
    assert told["added"] == told["kernels"] > 10
    assert told["flops_per_second"] > 1e9 and told["bytes_per_second"] > 1e8
    (step,) = told["steps"]
    found = plan(env=env).json()
    assert found["calibration"] == told["calibration"] and len(found["calibration"]) == 32
    assert found["step_seconds"] == step["predicted_seconds"]
    bare = plan("--calibration", "none", env=env).json()
    assert bare["calibration"] is None and bare["step_seconds"] == step["predicted_seconds_before"]
    assert bare["step_seconds"] != found["step_seconds"]
    for key in ("peak_bytes", "arena_bytes", "overhead_bytes", "live_set_bytes"):
        assert bare[key] == found[key]
    assert plan("--calibration", told["file"].replace("calibration-", "nothing-"), env=env, expect=2)


def test_the_same_file_gives_the_same_plan(cache, tmp_path):
    env, told = cache
    assert without_time(plan(env=env).stdout) == without_time(plan(env=env).stdout)
    text = program.run("plan", MODEL, *FLAGS, "--save", tmp_path / "a.plan", env=env).stdout
    assert f"calibration {told['calibration']}" in text
    assert json.loads((tmp_path / "a.plan").read_text())["calibration"] == told["calibration"]


def test_measurements_add_up(cache, tmp_path):
    env, _ = cache
    file = tmp_path / "mine.txt"
    first = program.run("doctor", "--calibrate", MODEL, *FLAGS, "--calibration", file, "--json", "--quiet", env=env).json()
    flags = ("--batch-size", 4, "--device", "cpu", "--threads", 2)
    both = program.run("doctor", "--calibrate", MODEL, *flags, "--calibration", file, "--json", "--quiet", env=env).json()
    assert both["kernels"] > first["kernels"] and both["added"] <= first["kernels"]
    assert plan("--calibration", file).json()["calibration"] == both["calibration"]
    with pytest.raises(program.Failed):  # made for two threads
        program.run("plan", MODEL, "--device", "cpu", "--threads", 1, "--calibration", file)


def test_a_saved_plan_runs_under_another_calibration(cache, tmp_path):
    env, _ = cache
    x, y = np.load(GOLDEN / "cnn_x.npy")[:8], np.load(GOLDEN / "cnn_y.npy")[:8]
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    data = ("--data", f"{tmp_path}/x.npy,{tmp_path}/y.npy")
    program.run("plan", MODEL, *FLAGS, *data, "--save", tmp_path / "a.plan", env=env)
    for calibration in ("auto", "none"):
        fit = ("fit", MODEL, *FLAGS, *data, "--epochs", 1, "--plan", tmp_path / "a.plan", "--calibration", calibration)
        assert "note" not in program.run(*fit, "--quiet", env=env).stderr


def hostile(text):
    """Changes of a calibration: a digit, a cut, and what is no calibration at all."""
    yield text.replace("\nkind cpu", "\nkind gpu")
    yield text[:-20]
    yield text[:0]
    yield "1e-3 1e-3 everything\n" * 1000
    yield text.replace(" ", " nan ", 1)
    yield "x" * (5 << 20)


def test_a_hostile_file_does_nothing(cache, tmp_path):
    env, told = cache
    bare = without_time(plan("--calibration", "none").stdout)
    file = tmp_path / "calibration.txt"
    for text in hostile(open(told["file"], encoding="utf-8").read().split("\n", 1)[1]):
        file.write_text(text)
        ended = plan("--calibration", file, expect=2)
        assert json.loads(ended.stdout)["error"]["code"] == "P204", ended.stdout
        assert program.run("doctor", "--calibrate", MODEL, *FLAGS, "--calibration", file, expect=None).code == 2
        assert file.read_text() == text, "a file that is no calibration is not overwritten"
    # In the cache it is ignored, with a note.
    other = tmp_path / "cache"
    other.mkdir(mode=0o700)
    entry = other / os.path.basename(told["file"])
    whole = open(told["file"], "rb").read()
    env = {**env, "PLIMSOLL_CACHE": str(other)}
    for content in (whole[:-1] + b"?", whole[:100], b"", whole.split(b"\n", 1)[1]):
        entry.write_bytes(content)
        entry.chmod(0o600)
        ended = plan(env=env)
        assert without_time(ended.stdout) == bare
        assert "calibration" in ended.stderr and "not used" in ended.stderr
    entry.write_bytes(whole)
    assert plan(env=env).json()["calibration"] == told["calibration"]
    entry.chmod(0o666)  # others may write
    ended = plan(env=env)
    assert without_time(ended.stdout) == bare and "not used" in ended.stderr
    entry.unlink()
    entry.symlink_to(told["file"])
    assert without_time(plan(env=env).stdout) == bare


def test_planning_makes_no_cache_folder(tmp_path):
    env = {"PLIMSOLL_CACHE": str(tmp_path / "none"), "PLIMSOLL_CALIBRATION": "auto"}
    assert plan(env=env).json()["calibration"] is None
    assert not (tmp_path / "none").exists()


def test_usage():
    ended = program.run("doctor", MODEL, expect=2)
    assert "--calibrate" in ended.stderr
    ended = program.run("doctor", "--calibrate", MODEL, "--calibration", "none", expect=2)
    assert "--calibration" in ended.stderr
    elsewhere = ("--device", "rtx-4090-24g", "--calibration", "auto")
    ended = program.run("doctor", "--calibrate", MODEL, *elsewhere, expect=None)
    assert ended.code != 0 and "not in this machine" in ended.stderr
