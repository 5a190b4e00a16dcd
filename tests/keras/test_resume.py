"""A run that is killed at any moment and resumed ends with bitwise the weights, state and losses of an uninterrupted run."""

import io
import os
import random
import signal
import subprocess
import time
import zipfile

import h5py
import keras
import numpy as np
import pytest

import models
import program

BATCH, SAMPLES, EPOCHS, EVERY, KILLS = 16, 808, 6, 5, 4  # 51 steps per epoch, the last with 8 samples
STEPS = EPOCHS * -(-SAMPLES // BATCH)


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """A model with everything that a checkpoint must store: moments, statistics, dropout, a schedule, shuffling over epochs."""
    folder = tmp_path_factory.mktemp("resume")
    keras.utils.set_random_seed(4)
    L = keras.layers
    x = i = keras.Input((16, 16, 3))
    x = L.ReLU()(L.BatchNormalization()(L.Conv2D(16, 3, use_bias=False)(x)))
    x = L.Dropout(0.3)(L.Flatten()(L.MaxPooling2D()(L.Conv2D(24, 3, activation="relu")(x))))
    model = keras.Model(i, L.Dense(10, activation="softmax")(x))
    rate = keras.optimizers.schedules.CosineDecay(0.003, STEPS)
    model.compile(keras.optimizers.Adam(rate), "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.save(folder / "model.keras")
    x, y = models.labelled(np.random.default_rng(6), SAMPLES, (16, 16, 3))
    flags = [
        "fit",
        folder / "model.keras",
        "--data",
        program.arrays(folder, x=x, y=y),
        "--batch-size",
        BATCH,
        "--epochs",
        EPOCHS,
        "--seed",
        11,
        "--shuffle",
        "true",
        "--threads",
        2,
        "--budget",
        "300MiB",
    ]
    log = folder / "whole.jsonl"
    started = time.time()
    program.run(*flags, "--save", folder / "whole.keras", "--log", log)
    program.check_log(program.read_log(log), STEPS)
    return folder, flags, time.time() - started


def contents(path):
    """Every dataset of the weights file, including optimizer state."""
    out = {}
    with zipfile.ZipFile(path) as archive, h5py.File(io.BytesIO(archive.read("model.weights.h5"))) as f:
        f.visititems(lambda name, item: out.__setitem__(name, item[()]) if isinstance(item, h5py.Dataset) else None)
    return out


def assert_same_file(got, want):
    a, b = contents(got), contents(want)
    assert a.keys() == b.keys() and len(b) > 10
    for name in b:
        assert a[name].dtype == b[name].dtype and np.array_equal(
            a[name], b[name]
        ), f"{name} differs by {np.max(np.abs(a[name] - b[name]))}"


def start(job, name, *flags):
    folder, common, _ = job
    arguments = [
        *common,
        "--checkpoint",
        folder / name,
        "--checkpoint-every",
        EVERY,
        "--save",
        folder / f"{name}.keras",
        "--log",
        folder / f"{name}.jsonl",
        *flags,
    ]
    return subprocess.Popen(
        program.command(*arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "NO_COLOR": "1"},
    )


def finish(process):
    out, err = process.communicate(timeout=program.TIMEOUT)
    return process.returncode, out + err


def wait_for_steps(job, name, steps, process):
    """Waits until the log shows that many steps, or the process has ended."""
    log = job[0] / f"{name}.jsonl"
    end = time.time() + program.TIMEOUT
    while process.poll() is None and time.time() < end:
        if log.exists() and log.read_text().count('"step"') >= 2 * steps:  # each line has the event's name and the key
            return
        time.sleep(0.002)


def test_run_is_repeatable(job):
    folder, flags, _ = job
    program.run(*flags, "--save", folder / "again.keras", "--log", folder / "again.jsonl")
    assert_same_file(folder / "again.keras", folder / "whole.keras")
    losses = [
        [e["loss"] for e in program.read_log(folder / f"{n}.jsonl") if e["event"] == "step"] for n in ("again", "whole")
    ]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("seed", range(2))
def test_killed_and_resumed(job, seed):
    folder, _, seconds = job
    name, draw = f"killed{seed}", random.Random(seed)
    for attempt in range(KILLS):
        process = start(job, name, *(["--resume"] if attempt else []))
        time.sleep(draw.uniform(0.05, 0.4 * seconds))
        process.send_signal(signal.SIGKILL)
        code, text = finish(process)
        assert code in (-signal.SIGKILL, 0), text
        assert not (folder / f"{name}.keras").exists() or code == 0, "a half-finished run left a saved model"
    code, text = finish(start(job, name, "--resume"))
    assert code == 0, text
    assert_same_file(folder / f"{name}.keras", folder / "whole.keras")
    check_resumed_log(folder, name)


def check_resumed_log(folder, name):
    """The log says where the run resumed; the last logged loss of each step is that of the uninterrupted run."""
    events = program.read_log(folder / f"{name}.jsonl")
    assert events[-1]["event"] == "done"
    got = {e["step"]: e["loss"] for e in events if e["event"] == "step"}
    want = {e["step"]: e["loss"] for e in program.read_log(folder / "whole.jsonl") if e["event"] == "step"}
    assert got == want


@pytest.mark.parametrize("sign", (signal.SIGINT, signal.SIGTERM))
def test_interrupted_and_resumed(job, sign):
    folder, name = job[0], f"interrupted{int(sign)}"
    process = start(job, name)
    wait_for_steps(job, name, 23, process)
    process.send_signal(sign)
    code, text = finish(process)
    assert code == 5, text
    stopped = [e["step"] for e in program.read_log(folder / f"{name}.jsonl") if e["event"] == "step"][-1]
    assert stopped < STEPS
    code, text = finish(start(job, name, "--resume"))
    assert code == 0, text
    assert_same_file(folder / f"{name}.keras", folder / "whole.keras")
    events = program.read_log(folder / f"{name}.jsonl")
    assert [e["step"] for e in events if e["event"] == "resume"] == [stopped], "nothing that was done is done again"
    check_resumed_log(folder, name)


def test_interrupted_without_checkpoint_saves_beside(job):
    folder, flags, _ = job
    target, log = folder / "beside" / "model.keras", folder / "beside.jsonl"
    target.parent.mkdir()
    process = subprocess.Popen(
        program.command(*flags, "--save", target, "--log", log),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for_steps(job, "beside", 10, process)
    process.send_signal(signal.SIGINT)
    code, text = finish(process)
    assert code == 5, text
    written = [p for p in target.parent.iterdir()]
    assert not target.exists() and len(written) == 1 and written[0].suffix == ".keras", written
    assert written[0].name in text
    loaded = keras.saving.load_model(written[0])
    stopped = [e["step"] for e in program.read_log(log) if e["event"] == "step"][-1]
    assert int(loaded.optimizer.iterations.numpy()) == stopped


def test_resume_before_the_first_checkpoint_starts_over(job):
    """If a run is killed before anything was saved, the same command must still work, and say that it starts from the beginning."""
    folder, _, _ = job
    process = start(job, "early", "--resume")
    code, text = finish(process)
    assert code == 0 and "beginning" in text, text
    assert_same_file(folder / "early.keras", folder / "whole.keras")


def test_resume_of_a_finished_run_says_that_nothing_is_left(job):
    folder, _, _ = job
    assert finish(start(job, "finished"))[0] == 0
    code, text = finish(start(job, "finished", "--resume"))
    assert code == 0 and "nothing left to train" in text and "measured" not in text, text
    assert_same_file(folder / "finished.keras", folder / "whole.keras")
