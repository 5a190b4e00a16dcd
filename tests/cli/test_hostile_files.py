"""Hostile names, sizes and pipes: the program never exits with 1, passes no control characters on, and respects its memory limits."""

import json
import os
import pty
import resource
import subprocess
import sys
import time
import warnings
import zipfile

import pytest

import program
from bad_files import GOLDEN, data, entries, with_config

MODEL = GOLDEN / "cnn.keras"
ESCAPES = "evil\x1b[31m\x9b2J\x7f\u202e"


def run(*arguments, **options):
    """Exit code, stdout and stderr as bytes."""
    names = [os.fsdecode(a) if isinstance(a, bytes) else a for a in arguments]
    p = subprocess.Popen(program.command(*names), stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    out, err = p.communicate(timeout=program.TIMEOUT)
    return p.returncode, out, err


def held_by(*arguments):
    """Exit code, stderr and peak memory (MiB) of the program."""
    script = "import resource, subprocess, sys; p = subprocess.run(sys.argv[1:]); " \
             "print(p.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)"
    p = subprocess.run([sys.executable, "-c", script, *map(str, program.command(*arguments))], capture_output=True, text=True,
                       timeout=program.TIMEOUT)
    code, mib = p.stdout.split()[-2:]
    return int(code), p.stderr, int(mib)


def deflated(path, parts):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, value in parts.items():
            archive.writestr(name, value)
    return path


@pytest.mark.parametrize("command", ("plan", "evaluate"))
def test_json_of_a_path_that_is_not_utf8(command, tmp_path):
    path = os.fsencode(tmp_path) + b"/no\xff.keras"
    extra = [] if command == "plan" else ["--data", data()]
    code, out, _ = run(command, path, *extra, "--json")
    assert code == 2
    assert json.loads(out)["error"]["code"] == "P202"


def test_json_of_a_model_and_of_data_that_are_not_utf8(tmp_path):
    model, x, y = (os.fsencode(tmp_path / name) + b"\xff" + ending for name, ending in (("m", b".keras"), ("x", b".npy"), ("y", b".npy")))
    for target, source in ((model, MODEL), (x, GOLDEN / "cnn_x.npy"), (y, GOLDEN / "cnn_y.npy")):
        with open(target, "wb") as file:
            file.write(source.read_bytes())
    code, out, err = run("plan", model, "--budget", "256MiB", "--device", "cpu", "--json")
    assert code == 0, err
    assert json.loads(out)["schema"] == "plimsoll.plan/1"
    code, out, err = run("evaluate", model, "--data", x + b"," + y, "--budget", "256MiB", "--device", "cpu", "--json")
    assert code == 0 and "loss" in json.loads(out), err


def test_json_of_an_archive_with_names_that_are_not_utf8():
    archives = sorted((program.ROOT / "tests" / "corpus" / "zip").glob("zip_*.keras"))
    assert archives
    for path in archives:
        code, out, _ = run("plan", path, "--budget", "256MiB", "--device", "cpu", "--json")
        assert code in (0, 2, 3), path
        json.loads(out)


def renamed(config):
    text = json.dumps(config).replace('"dense"', json.dumps(ESCAPES))
    config.clear()
    config.update(json.loads(text))
    config["config"]["name"] = ESCAPES


def no_controls(raw):
    text = raw.decode()
    assert not [c for c in text if c != "\n" and (ord(c) < 32 or 127 <= ord(c) < 160 or c == "\u202e")], repr(text)
    return text


@pytest.mark.parametrize("flags", ((), ("--json",)))
def test_names_cannot_control_the_terminal(flags, tmp_path):
    path = with_config(tmp_path, renamed)
    code, out, err = run("plan", path, "--budget", "256MiB", "--device", "cpu", *flags)
    assert code == 0, err
    assert "evil" in no_controls(out)
    no_controls(err)


def test_an_error_cannot_control_the_terminal(tmp_path):
    def unknown(config):
        config["config"]["layers"][1]["class_name"] = ESCAPES + "\nerror P000: forged"

    code, out, err = run("plan", with_config(tmp_path, unknown), "--budget", "256MiB", "--device", "cpu")
    assert code == 2
    text = no_controls(err)
    assert "evil\\x1b[31m\\u009b2J\\x7f" in text and "\nerror P000" not in text


def on_terminal(environment, *arguments):
    outer, inner = pty.openpty()
    p = subprocess.Popen(program.command(*arguments), stdout=subprocess.DEVNULL, stderr=inner, env={**os.environ, **environment})
    os.close(inner)
    seen = b""
    try:
        while part := os.read(outer, 65536):
            seen += part
    except OSError:
        pass
    os.close(outer)
    assert p.wait(program.TIMEOUT) == 0, seen
    return seen


@pytest.mark.parametrize("command", ("fit", "evaluate"))
@pytest.mark.parametrize("environment", ({"TERM": "dumb"}, {"NO_COLOR": "1"}), ids=("TERM=dumb", "NO_COLOR"))
def test_a_plain_terminal_gets_no_escapes(command, environment):
    steps = ("--epochs", 2) if command == "fit" else ()
    seen = on_terminal(environment, command, MODEL, "--data", data(), "--batch-size", 2, *steps, "--budget", "256MiB", "--device", "cpu")
    assert b"\x1b" not in seen
    if "TERM" in environment:
        assert b"\r" not in seen.replace(b"\r\n", b"\n")
    else:
        assert b"\r" in seen.replace(b"\r\n", b"\n")  # the line is still redrawn


@pytest.mark.parametrize("name", ("config.json", "model.weights.h5", "assets/words.txt"))
def test_an_entry_that_stands_twice_is_refused(name, tmp_path):
    """Keras reads the last of two entries with one name; other programs read the first."""
    path = tmp_path / "twice.keras"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with zipfile.ZipFile(path, "w") as archive:
            for key, value in {**entries(MODEL), "assets/words.txt": b"a"}.items():
                archive.writestr(key, value)
            archive.writestr(name, b"{}")
    code, _, err = run("plan", path, "--budget", "256MiB", "--device", "cpu")
    assert code == 2 and b"P203" in err and name.encode() in err


def test_a_small_archive_cannot_take_memory(tmp_path):
    parts = entries(MODEL)
    for name, config in {"long": b"[" + b"[]," * (80 << 20) + b"0]", "many": b'{"a":[' + b"[]," * (5 << 20) + b"0]}"}.items():
        path = deflated(tmp_path / f"{name}.keras", {**parts, "config.json": config})
        assert path.stat().st_size < 1 << 20
        code, err, mib = held_by("plan", path, "--budget", "64MiB", "--device", "cpu")
        assert code == 2 and "config.json" in err, err
        assert mib < 48, (name, mib)
    path = tmp_path / "many.json"
    path.write_bytes(b'{"a":[' + b"[]," * (5 << 20) + b"0]}")
    code, err, mib = held_by("plan", path, "--budget", "64MiB", "--device", "cpu")
    assert code == 2 and "P204" in err and mib < 48, (err, mib)


def test_deflated_weights_are_unpacked_only_where_there_is_room(tmp_path):
    parts = entries(MODEL)
    parts["model.weights.h5"] += bytes(32 << 20)
    path = deflated(tmp_path / "large.keras", parts)
    few = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    code, _, err = run("evaluate", path, "--data", data(), "--device", "cpu", preexec_fn=few)
    assert code == 6 and b"P601" in err and b"TMPDIR" in err


def test_a_log_into_a_pipe_that_nobody_reads_is_refused(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    fit = ("fit", MODEL, "--data", data(), "--budget", "256MiB", "--device", "cpu", "--epochs", 1, "--quiet")
    code, _, err = run(*fit, "--log", pipe)
    assert code == 6 and b"P602" in err and b"no program reads" in err
    for place in ("/dev/null", "/dev/stderr"):
        code, _, err = run(*fit, "--log", place)
        assert code == 0, err
        assert place == "/dev/null" or b'"event":"done"' in err
    reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE)
    time.sleep(0.2)
    code, _, err = run(*fit, "--log", pipe)
    assert code == 0, err
    assert b'"event":"done"' in reader.communicate(timeout=60)[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_cache_of_somebody_else_is_not_used(tmp_path):
    cache = tmp_path / "cache"
    environment = {**os.environ, "PLIMSOLL_CACHE": str(cache)}
    _, out, _ = run("doctor", env=environment)
    assert str(cache).encode() in out and cache.stat().st_mode & 0o777 == 0o700
    cache.chmod(0o777)
    _, out, _ = run("doctor", env=environment)
    assert b"others may write" in out
    os.chown(cache, 12345, 12345)
    _, out, _ = run("doctor", env=environment)
    assert b"belongs to another user" in out
    data = GOLDEN / "formats" / "compressed.npz"
    code, _, err = run("evaluate", MODEL, "--data", data, "--device", "cpu", env=environment)
    assert code == 6 and b"P602" in err and b"PLIMSOLL_CACHE" in err


def test_json_of_a_checkpoint_folder_that_is_no_utf8(tmp_path):
    """The message for a second signal is prepared at every checkpoint, and names the folder."""
    folder = os.fsencode(tmp_path) + b"/run\xff"
    fit = ("fit", MODEL, "--data", data(), "--budget", "256MiB", "--device", "cpu", "--json", "--checkpoint", folder)
    for flags in (("--epochs", 1), ("--epochs", 2, "--resume")):
        code, out, err = run(*fit, *flags)
        assert code == 0, err
        assert json.loads(out)["steps"] > 0
