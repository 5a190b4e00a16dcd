"""After a signal, exit code 5 means that everything is saved; exit code 7 comes with a message that says what is lost."""

import json
import os
import pathlib
import pty
import signal
import subprocess
import time

import numpy as np
import pytest

import program
from bad_files import GOLDEN
from checkpoints import MODEL, finish, fit, start, steps_in, wait_until

SAMPLES = 1 << 14
SLOW = ("--batch-size", 8192, "--micro-batch", 8192, "--threads", 1)  # a batch of fashion-cnn takes most of a second or more


@pytest.fixture(scope="module")
def slow_data(tmp_path_factory):
    rng = np.random.default_rng(2)
    x, y = rng.integers(0, 255, (8192, 28, 28, 1)).astype(np.uint8), rng.integers(0, 10, 8192).astype(np.int32)
    return program.arrays(tmp_path_factory.mktemp("slow"), x=x, y=y)


@pytest.fixture(scope="module")
def much_data(tmp_path_factory):
    x, y = np.load(GOLDEN / "cnn_x.npy"), np.load(GOLDEN / "cnn_y.npy")
    copies = -(-SAMPLES // len(x))
    return program.arrays(tmp_path_factory.mktemp("much"), x=np.concatenate([x] * copies), y=np.concatenate([y] * copies))


def running(folder, *flags, **named):
    """Starts a run and waits for some steps."""
    log = pathlib.Path(folder) / "log.jsonl"
    process = start(*fit("--epochs", 100000, "--log", log, *flags), cwd=folder, **named)
    wait_until(lambda: steps_in(log) > 3, process)
    return process


def signal_on(terminal, process, when):
    """Returns what the process writes to a terminal; sends SIGINT as soon as `when` is true for that text."""
    seen, sent = b"", False
    try:
        while part := os.read(terminal, 65536):
            seen += part
            if not sent and when(seen):
                process.send_signal(signal.SIGINT)
                sent = True
    except OSError:  # how Linux reports the end of a terminal whose other side is closed
        pass
    os.close(terminal)
    process.wait(program.TIMEOUT)
    return seen.decode()


def half_files(folder):
    return [p for p in pathlib.Path(folder).rglob("*") if ".part" in p.name]


@pytest.mark.parametrize("sign", (signal.SIGINT, signal.SIGTERM, signal.SIGHUP), ids=lambda s: s.name)
@pytest.mark.parametrize("flags", (["--checkpoint", "run"], ["--save", "s.keras"], []), ids=lambda f: "".join(f[:1]))
def test_a_signal_saves(tmp_path, sign, flags):
    process = running(tmp_path, *flags)
    process.send_signal(sign)
    code, text = finish(process)
    assert code == 5 and "interrupted" in text, text
    saved = {"--checkpoint": "run/checkpoint.plimsoll", "--save": "s.interrupted.keras"}.get(
        flags[0] if flags else "", "plimsoll.interrupted.keras"
    )
    assert (tmp_path / saved).exists() and saved in text, text
    assert not half_files(tmp_path)


def test_a_hangup_that_was_ignored_stays_ignored(tmp_path):
    """nohup starts programs this way."""
    process = running(tmp_path, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    process.send_signal(signal.SIGHUP)
    before = steps_in(tmp_path / "log.jsonl")
    wait_until(lambda: steps_in(tmp_path / "log.jsonl") > before + 10, process)
    process.send_signal(signal.SIGTERM)
    assert finish(process)[0] == 5


@pytest.mark.parametrize("pause", (0, 3, 10, 20, 40, 75))
@pytest.mark.parametrize("flags", (["--checkpoint", "run"], ["--save", "s.keras"]), ids=lambda f: f[0])
def test_two_signals_of_one_request_save(tmp_path, flags, pause):
    """A scheduler that signals a process and its group, or a closing terminal, sends two signals at almost the same time."""
    process = running(tmp_path, *flags)
    process.send_signal(signal.SIGINT)
    time.sleep(pause / 1000)
    process.send_signal(signal.SIGTERM)
    code, text = finish(process)
    assert code == 5, text
    assert (tmp_path / ("run/checkpoint.plimsoll" if flags[0] == "--checkpoint" else "s.interrupted.keras")).exists()
    assert not half_files(tmp_path)


def busy_with_a_batch(folder, slow_data, steps, *flags):
    process = start(
        "fit", "fashion-cnn", "--data", slow_data, *SLOW, "--epochs", 100, "--log", folder / "log.jsonl", *flags, cwd=folder
    )
    wait_until(lambda: steps_in(folder / "log.jsonl") >= steps, process)
    time.sleep(0.2)  # the epoch has ended, and the next batch has started
    return process


def pending_signals(process):
    """The signals that were sent to the process and have not reached it: a set bit N - 1 for signal N."""
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    masks = [line.split()[1] for line in status.splitlines() if line.startswith(("SigPnd", "ShdPnd"))]
    return int(masks[0], 16) | int(masks[1], 16)


def interrupt_twice(process, second):
    """Two requests, 0.15 s apart. The process stands still between them, so that it cannot save meanwhile, however fast it is."""
    process.send_signal(signal.SIGINT)
    wait_until(lambda: not pending_signals(process) >> (signal.SIGINT - 1) & 1, process)  # a busy machine takes its time
    time.sleep(0.01)  # the handler has run
    process.send_signal(signal.SIGSTOP)
    time.sleep(0.15)
    process.send_signal(second)
    process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("flags", ([], ["--save", "s.keras"], ["--checkpoint", "run", "--checkpoint-every", 1]), ids=str)
def test_a_second_signal_says_what_is_lost(tmp_path, slow_data, flags):
    process = busy_with_a_batch(tmp_path, slow_data, 1, *flags)
    interrupt_twice(process, signal.SIGTERM)
    code, text = finish(process)
    assert code == 7 and "error P701: interrupted twice: ended without saving" in text, text
    assert not half_files(tmp_path)
    if "--checkpoint" in flags:
        assert "lost: the training after step 1, the last checkpoint" in text, text
        assert "--resume   continues from run/checkpoint.plimsoll" in text, text
        resumed = program.run(
            "fit", "fashion-cnn", "--data", slow_data, *SLOW, *flags[:2], "--resume", "--epochs", 1, cwd=tmp_path
        )
        assert "resuming after step 1" in resumed.stderr
    else:
        assert "lost: all training of this run" in text, text
        assert not list(tmp_path.rglob("*.keras"))


def test_what_is_lost_is_told_as_json_too(tmp_path, slow_data):
    process = busy_with_a_batch(tmp_path, slow_data, 1, "--json")
    interrupt_twice(process, signal.SIGINT)
    out, _ = process.communicate(timeout=program.TIMEOUT)
    assert process.returncode == 7 and json.loads(out)["error"]["code"] == "P701", out


@pytest.mark.parametrize("command", ("evaluate", "predict"))
def test_signals_in_inference(tmp_path, much_data, command):
    flags = ["--data", much_data] if command == "evaluate" else [
        "--data", much_data.split(",")[0], "--output", tmp_path / "p.npy"
    ]  # fmt: skip

    outer, inner = pty.openpty()
    process = subprocess.Popen(
        program.command(command, MODEL, *flags, "--batch-size", 1, "--threads", 1), stdout=subprocess.DEVNULL, stderr=inner
    )
    os.close(inner)
    seen = signal_on(outer, process, lambda seen: b"samples" in seen)
    assert process.returncode == 5 and "error P501: interrupted after" in seen, seen
    assert "a second Ctrl-C ends at once" in seen
    assert not (tmp_path / "p.npy").exists() and not half_files(tmp_path)


def test_a_plan_ends_at_once():
    """A plan has nothing to save."""
    process = start("plan", "seed-2", "--batch-size", "auto", "--budget", "4GiB")
    time.sleep(0.15)
    process.send_signal(signal.SIGINT)
    assert finish(process)[0] in (-signal.SIGINT, 0)


def test_the_first_ctrl_c_is_answered_on_a_terminal(tmp_path):
    outer, inner = pty.openpty()
    log = tmp_path / "log.jsonl"
    process = subprocess.Popen(
        program.command(*fit("--epochs", 100000, "--checkpoint", tmp_path / "run", "--log", log)),
        stdout=subprocess.DEVNULL,
        stderr=inner,
    )
    os.close(inner)
    text = signal_on(outer, process, lambda _: steps_in(log) > 3)
    assert process.returncode == 5 and "a second Ctrl-C ends at once without saving" in text, text
