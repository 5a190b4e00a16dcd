"""With the same flags, `plan` and `fit` make the same plan, also with --batch-size auto."""

import time

import pytest

import program
from bad_files import GOLDEN, data, refused

MODEL = GOLDEN / "cnn.keras"
MIB = 2**20


def fit_plan(folder, *flags):
    """The plan that `fit` logs."""
    log = folder / "log.jsonl"
    program.run("fit", MODEL, "--data", data(), "--epochs", 1, "--threads", 2, "--log", log, *flags)
    return program.read_log(log)[0]


@pytest.mark.parametrize(
    "flags",
    (
        ["--batch-size", 8],
        ["--batch-size", 64],
        ["--batch-size", 8, "--micro-batch", 3],
        ["--batch-size", 4, "--gradient-accumulation-steps", 2],
        ["--batch-size", 8, "--validation-data", data()],
        ["--batch-size", 8, "--validation-split", 0.3],
        ["--batch-size", 4, "--validation-split", 0.3, "--validation-batch-size", 16],
        ["--batch-size", 8, "--class-weight", "0:1,1:2"],
        ["--batch-size", 8, "--optimizer", "sgd", "--forbid", "prefetch"],
        ["--batch-size", "auto"],
    ),
    ids=lambda flags: " ".join(str(f).rsplit("/", 1)[-1] for f in flags),
)
def test_plan_and_fit_agree_to_the_byte(flags, tmp_path):
    planned = program.plan(MODEL, *flags, data=data(), threads=2)
    trained = fit_plan(tmp_path, *flags)
    for key in ("arena_bytes", "overhead_bytes", "data_bytes", "peak_bytes", "batch", "precision"):
        assert planned[key] == trained[key], key


def test_the_least_that_plan_names_is_what_fit_needs(tmp_path):
    least = program.plan(MODEL, data=data(), batch_size=8, threads=2)["least_bytes"]
    assert fit_plan(tmp_path, "--batch-size", 8, "--budget", least)["peak_bytes"] <= least
    refused(301, "fit", MODEL, "--data", data(), "--batch-size", 8, "--threads", 2, "--budget", least - 1)


def names(planned):
    return [phase["name"] for phase in planned["phases"]]


def test_a_plan_counts_an_evaluation_where_there_is_one():
    flags = dict(batch_size=8, threads=2)
    assert "evaluate" not in names(program.plan(MODEL, **flags))
    assert "evaluate" not in names(program.plan(MODEL, data=data(), **flags))
    assert "evaluate" in names(program.plan(MODEL, validation_split=0.2, **flags))
    assert "evaluate" in names(program.plan(MODEL, validation_data=data(), **flags))


def automatic(budget, *flags, model="seed-2", **named):
    return program.plan(model, *flags, batch_size="auto", threads=2, budget=budget, **named)


def whole(batch):
    """Bytes of the plan for a whole batch without levers, except prefetch."""
    return program.plan("seed-2", batch_size=batch, threads=2, forbid="micro-batch,recompute")["peak_bytes"]


@pytest.mark.parametrize("budget", (80 * MIB, 200 * MIB, 1024 * MIB))
def test_auto_is_the_largest_power_of_two_that_runs_in_one_piece(budget):
    planned = automatic(budget)
    batch = planned["batch"]["effective"]
    assert batch & (batch - 1) == 0 and planned["batch"]["micro"] == batch
    assert planned["fits"] and planned["peak_bytes"] <= budget
    assert whole(batch) <= budget < whole(2 * batch)


def test_auto_says_what_it_chose():
    ended = program.run("plan", "seed-2", "--batch-size", "auto", "--budget", "200MiB", "--threads", 2)
    chosen = automatic("200MiB")["batch"]["effective"]
    assert f"--batch-size auto: {chosen}" in ended.stderr
    assert f"Batch {chosen} runs in one piece" in ended.stdout


def test_auto_is_bounded_by_the_samples(tmp_path):
    """With 20 samples, a window has at most 16; with three accumulation steps, 3 x 4."""
    assert fit_plan(tmp_path, "--batch-size", "auto")["batch"]["effective"] == 16
    steps = fit_plan(tmp_path, "--batch-size", "auto", "--gradient-accumulation-steps", 3)["batch"]
    assert steps == {"effective": 12, "micro": 4, "accumulation_steps": 3}


def test_auto_where_nothing_fits_is_refused_for_one_sample():
    refused(301, "plan", "seed-2", "--batch-size", "auto", "--budget", "10MiB", mentions=["batch 1\n"])


def test_auto_leaves_a_micro_batch_nothing_to_choose_by():
    refused(201, "plan", "seed-2", "--batch-size", "auto", "--micro-batch", 4, mentions=["--micro-batch"])


def test_auto_goes_on_with_the_batch_of_its_checkpoint(tmp_path):
    """Free memory may change, but a resumed run must keep its batch size."""
    flags = ["fit", MODEL, "--data", data(), "--batch-size", "auto", "--threads", 2, "--checkpoint", tmp_path / "c"]
    little = program.plan(MODEL, batch_size=8, threads=2, forbid="micro-batch,recompute")["peak_bytes"]
    program.run(*flags, "--epochs", 1, "--budget", little, "--log", tmp_path / "first")
    program.run(*flags, "--epochs", 2, "--budget", "1GiB", "--resume", "--log", tmp_path / "second")
    first, second = (program.read_log(tmp_path / log)[0]["batch"]["effective"] for log in ("first", "second"))
    assert first == second < 16, "a fresh start with that budget would have chosen 16"


@pytest.mark.parametrize("command", ("evaluate", "predict"))
def test_auto_in_inference(command, tmp_path):
    flags = ["--data", data()] if command == "evaluate" else ["--data", GOLDEN / "cnn_x.npy", "--output", tmp_path / "p.npy"]
    program.run(command, MODEL, "--batch-size", "auto", *flags)


def test_the_same_run_writes_the_same_file(tmp_path):
    """HDF5 can store the time at which a dataset was created; then no two files would be the same."""
    one = program.fit(tmp_path, MODEL, data(), name="one", batch_size=8, epochs=1).saved
    time.sleep(1.1)
    other = program.fit(tmp_path, MODEL, data(), name="other", batch_size=8, epochs=1).saved
    assert one.read_bytes() == other.read_bytes()
