"""--resume continues as if the run was never interrupted, or says what differs; a forgotten flag never destroys saved files."""

import os
import re
import shutil
import signal

import numpy as np
import pytest

import program
from bad_files import GOLDEN, data, refused
from checkpoints import (
    MODEL,
    edit,
    finish,
    fit,
    flip_a_byte,
    interrupted_run,
    learning_rate,
    many_samples,
    read,
    start,
    steps_in,
    wait_until,
    write,
)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """The folder of a run that was interrupted, to be copied."""
    return interrupted_run(tmp_path_factory.mktemp("stopped"))


def copy_of(stopped, tmp_path):
    return shutil.copytree(stopped, tmp_path / "run")


@pytest.mark.parametrize(
    "key, value",
    [("window", v) for v in (-1, -(2**40), 1e300, 2**62, 6, 10**9)]
    + [("done", v) for v in (-8, -(2**40), 2**62, 3)]
    + [("epoch", -1), ("steps", -1), ("iteration", -1), ("iteration", 2**63 - 1), ("learning_rate", "x")]
    + [("format", 3), ("identity", []), ("weight_sums", []), ("epoch_sums", {}), ("callbacks", [])],
)
def test_an_edited_header_is_refused(stopped, tmp_path, key, value):
    run = copy_of(stopped, tmp_path)
    edit(run / "checkpoint.plimsoll", lambda header: header.__setitem__(key, value))
    for older in run.glob("checkpoint-*"):
        older.unlink()
    refused(212, *fit("--epochs", 100000, "--checkpoint", run, "--resume"), timeout=30)


def test_a_header_that_is_no_object_is_refused(stopped, tmp_path):
    run = copy_of(stopped, tmp_path)
    for older in run.glob("checkpoint-*"):
        older.unlink()
    document, blob = read(run / "checkpoint.plimsoll")
    write(run / "checkpoint.plimsoll", {**document, "header": [1]}, blob)
    refused(212, *fit("--epochs", 100000, "--checkpoint", run, "--resume"))


def test_the_format_of_another_version_is_refused_with_that_reason(stopped, tmp_path):
    run = copy_of(stopped, tmp_path)
    for older in run.glob("checkpoint-*"):
        older.unlink()
    edit(run / "checkpoint.plimsoll", lambda header: header.__setitem__("format", "plimsoll.checkpoint/1"))
    refused(
        212, *fit("--checkpoint", run, "--resume"), mentions=["another version", "plimsoll.checkpoint/1", "--checkpoint"]
    )


@pytest.mark.parametrize(
    "flags, told",
    (
        (["--seed", 4], "--seed: 0 in the checkpoint, 4 now"),
        (["--shuffle", "false"], "--shuffle: true in the checkpoint, false now"),
        (["--steps-per-epoch", 2], "--steps-per-epoch: none in the checkpoint, 2 now"),
        (["--class-weight", "0:1,1:2"], "--class-weight: none in the checkpoint, 0:1,1:2 now"),
        (["--validation-split", 0.5], "samples to train on: 20 in the checkpoint, 10 now"),
        (["--optimizer", "sgd"], "optimizer"),
    ),
    ids=lambda value: str(value[0]) if isinstance(value, list) else "",
)
def test_other_flags_are_refused_by_name(stopped, tmp_path, flags, told):
    run = copy_of(stopped, tmp_path)
    refused(212, *fit("--epochs", 100000, "--checkpoint", run, "--resume", *flags), mentions=[told])


def test_another_batch_size_is_refused_by_name(stopped, tmp_path):
    run = copy_of(stopped, tmp_path)
    flags = ["fit", MODEL, "--data", data(), "--batch-size", 8, "--threads", 2, "--budget", "96MiB"]
    refused(212, *flags, "--checkpoint", run, "--resume", mentions=["--batch-size: 4 in the checkpoint, 8 now"])


@pytest.mark.parametrize("split", ((0.25, 0.75), (0.5, 0.1), (0.25, 0.0)))
def test_another_split_is_refused(tmp_path, split):
    """It changes the training data; this once caused a segmentation fault."""
    files = many_samples(tmp_path)
    run = interrupted_run(tmp_path, "--validation-split", split[0], data_=files, steps=20)
    flags = ("--validation-split", split[1]) if split[1] else ()
    refused(
        212, *fit("--epochs", 100000, "--checkpoint", run, "--resume", *flags, data_=files), mentions=["samples to train on"]
    )


def test_a_batch_that_was_not_asked_for_is_no_difference(tmp_path):
    """The default batch of 32 is reduced to the number of samples. With fewer samples, the error names the samples, not the batch."""
    run = tmp_path / "run"
    flags = ("fit", MODEL, "--data", data(), "--threads", 2, "--checkpoint", run)
    program.run(*flags)
    said = refused(212, *flags, "--resume", "--epochs", 2, "--validation-split", 0.5, mentions=["samples to train on"])
    assert "--batch-size" not in said


@pytest.mark.parametrize("shuffle", ("true", "false"))
@pytest.mark.parametrize("samples", (80, 40, 16, 161))
def test_another_number_of_samples_is_refused(tmp_path, samples, shuffle):
    files = many_samples(tmp_path)
    run = interrupted_run(tmp_path, "--shuffle", shuffle, data_=files, steps=25)
    x, y = (np.load(f) for f in files.split(","))
    files = program.arrays(tmp_path, x=np.resize(x, (samples, *x.shape[1:])), y=np.resize(y, (samples, *y.shape[1:])))
    refused(
        212,
        *fit("--epochs", 100000, "--shuffle", shuffle, "--checkpoint", run, "--resume", data_=files),
        mentions=["input 1: 160 samples of [10, 10, 2] float32", f"{samples} samples"],
    )


@pytest.mark.parametrize("where", ("x", "y"))
def test_other_contents_of_the_same_size_are_refused(tmp_path, where):
    files = many_samples(tmp_path)
    run = interrupted_run(tmp_path, data_=files)
    path = tmp_path / f"{where}.npy"
    values = np.load(path)
    values[77] = values[78] if where == "x" else (values[77] + 1) % 3
    np.save(path, values)
    role = "input" if where == "x" else "target"
    refused(
        212,
        *fit("--epochs", 100000, "--checkpoint", run, "--resume", data_=files),
        mentions=[f"contents of {role} 1"],
    )


def test_sample_weights_that_were_not_there_are_refused(tmp_path):
    run = interrupted_run(tmp_path)
    weights = tmp_path / "w.npy"
    np.save(weights, np.ones(20, np.float32))
    refused(212, *fit("--epochs", 9, "--checkpoint", run, "--resume", data_=f"{data()},{weights}"), mentions=["weights"])


def test_moved_data_go_on_to_the_same_bits(tmp_path):
    files = many_samples(tmp_path)
    program.run(*fit("--epochs", 3, "--save", tmp_path / "whole.keras", data_=files))
    program.run(*fit("--epochs", 2, "--checkpoint", tmp_path / "run", data_=files))
    (tmp_path / "moved").mkdir()
    for name in ("x.npy", "y.npy"):
        (tmp_path / name).rename(tmp_path / "moved" / name)
    moved = ",".join(str(tmp_path / "moved" / name) for name in ("x.npy", "y.npy"))
    program.run(
        *fit("--epochs", 3, "--checkpoint", tmp_path / "run", "--resume", "--save", tmp_path / "s.keras", data_=moved)
    )
    assert (tmp_path / "s.keras").read_bytes() == (tmp_path / "whole.keras").read_bytes()


def test_other_validation_data_are_taken_and_told(tmp_path):
    run = ("--checkpoint", tmp_path / "run", "--validation-data")
    program.run(*fit("--epochs", 1, *run, data()))
    x, y = np.load(GOLDEN / "cnn_x.npy"), np.load(GOLDEN / "cnn_y.npy")
    other = program.arrays(tmp_path, prefix="v", x=x[::-1].copy(), y=y[::-1].copy())
    assert "validation data differ from those" in program.run(*fit("--epochs", 2, "--resume", *run, other)).stderr


def test_a_learning_rate_given_on_resuming_applies(tmp_path):
    flags = ("--checkpoint", tmp_path / "run", "--save", tmp_path / "s.keras")
    program.run(*fit("--epochs", 1, *flags))
    assert learning_rate(tmp_path / "s.keras") == np.float32(0.01)
    ended = program.run(*fit("--epochs", 2, "--resume", "--learning-rate", 1e-5, *flags))
    assert learning_rate(tmp_path / "s.keras") == np.float32(1e-5)
    assert "learning rate 1e-05, was 0.01" in ended.stderr
    program.run(*fit("--epochs", 3, "--resume", *flags))
    assert learning_rate(tmp_path / "s.keras") == np.float32(1e-5), "without the flag the rate reached goes on"


def test_a_learning_rate_that_was_given_before_keeps_what_came_of_it(tmp_path):
    """The same command with --resume gives bitwise the result of an uninterrupted run, also if the rate was reduced meanwhile."""
    flags = ("--learning-rate", 0.05, "--reduce-lr-on-plateau", "loss:0:0.5", "--steps-per-epoch", 1)
    program.run(*fit("--epochs", 6, *flags, "--save", tmp_path / "whole.keras"))
    run = ("--checkpoint", tmp_path / "run", "--save", tmp_path / "s.keras")
    program.run(*fit("--epochs", 3, *flags, *run))
    assert "was" not in program.run(*fit("--epochs", 6, *flags, *run, "--resume")).stderr.split("resuming")[0]
    assert learning_rate(tmp_path / "s.keras") < np.float32(0.05)
    assert (tmp_path / "s.keras").read_bytes() == (tmp_path / "whole.keras").read_bytes()


def test_forgetting_resume_destroys_nothing(stopped, tmp_path):
    run = copy_of(stopped, tmp_path)
    before = {p.name: p.read_bytes() for p in run.iterdir()}
    text = refused(214, *fit("--epochs", 1, "--checkpoint", run))
    assert "--resume   continues that run" in text and "--checkpoint OTHER_DIR" in text
    assert {p.name: p.read_bytes() for p in run.iterdir()} == before


def test_a_folder_has_one_run_at_a_time(tmp_path):
    log = tmp_path / "log.jsonl"
    process = start(*fit("--epochs", 100000, "--checkpoint", tmp_path / "run", "--log", log))
    try:
        wait_until(lambda: steps_in(log) > 3, process)
        for flags in ((), ("--resume",)):
            refused(
                214,
                *fit("--epochs", 1, "--checkpoint", tmp_path / "run", *flags),
                mentions=["in use", f"process {process.pid}", "--checkpoint OTHER_DIR"],
            )
        refused(214, *fit("--epochs", 1, "--log", log), mentions=["--log", "in use", f"process {process.pid}"])
    finally:
        process.send_signal(signal.SIGINT)
        assert finish(process)[0] == 5
    assert not (tmp_path / "run" / "checkpoint.lock").exists()
    lines = program.read_log(log)  # every line is one object
    assert lines[0]["event"] == "plan"
    program.run(*fit("--epochs", 1, "--checkpoint", tmp_path / "run", "--resume"))


def test_a_lock_of_a_killed_run_is_no_lock(tmp_path):
    log = tmp_path / "log.jsonl"
    process = start(*fit("--epochs", 100000, "--checkpoint", tmp_path / "run", "--checkpoint-every", 1, "--log", log))
    wait_until(lambda: steps_in(log) > 3, process)
    process.kill()
    finish(process)
    assert (tmp_path / "run" / "checkpoint.lock").exists()
    program.run(*fit("--epochs", 1, "--checkpoint", tmp_path / "run", "--resume"))


def test_a_run_that_cannot_start_leaves_no_folder(tmp_path):
    refused(301, "fit", MODEL, "--data", data(), "--checkpoint", tmp_path / "run", "--budget", "1MiB")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("keep", (1, 2, 4))
def test_the_last_few_checkpoints_are_kept(tmp_path, keep):
    program.run(
        *fit("--epochs", 3, "--checkpoint", tmp_path / "run", "--checkpoint-every", 2, "--keep-checkpoints", keep)
    )
    steps = [2, 4, 5, 7, 9, 10, 12, 14, 15]  # every second step, and at the end of each epoch of 5
    names = {f"checkpoint-{step}.plimsoll" for step in steps[-keep:-1]} | {"checkpoint.plimsoll"}
    assert {p.name for p in (tmp_path / "run").iterdir()} == names


def test_two_are_kept_by_default(tmp_path):
    program.run(*fit("--epochs", 3, "--checkpoint", tmp_path / "run"))
    assert {p.name for p in (tmp_path / "run").iterdir()} == {"checkpoint.plimsoll", "checkpoint-10.plimsoll"}


@pytest.mark.parametrize("harm", ("flip", "cut", "remove"))
def test_a_damaged_checkpoint_goes_on_from_the_one_before(tmp_path, harm):
    program.run(*fit("--epochs", 4, "--save", tmp_path / "whole.keras"))
    run = tmp_path / "run"
    program.run(*fit("--epochs", 3, "--checkpoint", run))
    newest = run / "checkpoint.plimsoll"
    if harm == "flip":
        flip_a_byte(newest)
    elif harm == "cut":
        newest.write_bytes(newest.read_bytes()[:1000])
    else:
        newest.unlink()
    ended = program.run(*fit("--epochs", 4, "--checkpoint", run, "--resume", "--save", tmp_path / "s.keras"))
    assert "continuing from the previous checkpoint, of step 10" in ended.stderr and "resuming after step 10" in ended.stderr
    assert (run / "damaged.plimsoll").exists() == (harm != "remove")
    assert (tmp_path / "s.keras").read_bytes() == (tmp_path / "whole.keras").read_bytes()


def test_where_no_checkpoint_is_whole_nothing_is_changed(tmp_path):
    run = tmp_path / "run"
    program.run(*fit("--epochs", 3, "--checkpoint", run))
    for path in run.iterdir():
        flip_a_byte(path)
    before = {p.name: p.read_bytes() for p in run.iterdir()}
    refused(212, *fit("--epochs", 4, "--checkpoint", run, "--resume"), mentions=["checkpoint-10.plimsoll", "damaged"])
    assert {p.name: p.read_bytes() for p in run.iterdir()} == before


@pytest.mark.parametrize(
    "flags",
    (["--save", "s.keras"], ["--save-best", "s.keras"], ["--checkpoint", "run"], ["--early-stopping", "loss:3:restore-best"]),
    ids=lambda flags: flags[0],
)
def test_space_is_tried_before_the_first_step(tmp_path, flags):
    """A limit on the file size simulates a full disk."""
    ended = program.run(
        *fit("--epochs", 3, *flags),
        prefix=["bash", "-c", 'ulimit -f 1; exec "$@"', "bash"],
        cwd=tmp_path,
        env={"TMPDIR": str(tmp_path)},
        expect=6,
    )
    assert "error P601" in ended.stderr and "before the first step" in ended.stderr and "Epoch" not in ended.stderr
    assert not list(tmp_path.rglob("*")), list(tmp_path.rglob("*"))


def test_the_pace_of_a_resumed_epoch_is_that_of_its_own_steps(tmp_path):
    """An epoch has 10,000 steps, so that the signal comes in the middle of it; the resumed process runs the rest."""
    files = many_samples(tmp_path, 2000)
    run = interrupted_run(tmp_path, data_=files, steps=150)
    stopped = steps_in(tmp_path / "interrupted.jsonl")
    epoch = stopped // 10_000 + 1
    log = tmp_path / "resumed.jsonl"
    ended = program.run(*fit("--epochs", epoch, "--checkpoint", run, "--resume", "--log", log, data_=files))
    told = float(re.search(rf"Epoch {epoch}/{epoch} - .*? - ([\d.]+)ms/step", ended.stderr).group(1))
    seconds = [e["seconds"] for e in program.read_log(log) if e["event"] == "step"]
    assert 0 < len(seconds) < 10_000
    assert told == pytest.approx(1e3 * sum(seconds) / len(seconds), rel=0.1, abs=0.6)


def test_a_log_of_a_pipe_nobody_reads_is_an_error(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    refused(602, *fit("--log", tmp_path / "pipe"), mentions=["no program reads"], timeout=60)


def test_two_runs_may_share_the_null_device():
    for _ in range(2):
        program.run(*fit("--epochs", 1, "--log", os.devnull))
