"""Output on a terminal: a bar that is redrawn in its row, and messages on separate rows. Also the process name in ps."""

import contextlib
import fcntl
import os
import pathlib
import pty
import re
import struct
import subprocess
import termios
import time

import numpy as np
import pytest

import program
from bad_files import GOLDEN, data, saved_array

MODEL = GOLDEN / "cnn.keras"


def on_terminal(columns, *arguments):
    """Returns what the program writes to a terminal of that width."""
    outer, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    p = subprocess.Popen(program.command(*arguments), stdout=subprocess.DEVNULL, stderr=inner)
    os.close(inner)
    seen = b""
    try:
        while part := os.read(outer, 65536):
            seen += part
    except OSError:  # how Linux reports the end of a terminal whose other side is closed
        pass
    os.close(outer)
    p.wait(program.TIMEOUT)
    return re.sub(r"\x1b\[\d*[a-zA-Z]", "", seen.decode()).replace("\r\n", "\n")


def fit(*flags):
    return "fit", MODEL, "--batch-size", 1, "--epochs", 2, "--shuffle", "false", *flags


@pytest.mark.parametrize("columns", (40, 80, 200))
def test_bar_is_redrawn_in_its_row(columns):
    seen = on_terminal(columns, *fit("--data", data(), "--validation-data", data(), "--budget", "64MiB"))
    lines = seen[seen.index("Epoch 1/2") :].split("\n")
    drawn = [bar for line in lines if "/20 " in line for bar in line.split("\r")[1:]]
    assert len(drawn) >= 6, seen  # first and last step of each epoch, and its final line
    redrawn = [bar for bar in drawn if "val_loss" not in bar]
    assert len(redrawn) >= 4 and all(len(bar) < columns for bar in redrawn), redrawn
    assert columns < 80 or all("loss" in bar and "MiB of 64.0 MiB" in bar for bar in redrawn), redrawn


def test_an_error_stands_on_a_row_of_its_own(tmp_path):
    x = np.load(GOLDEN / "cnn_x.npy")
    x[-1] = np.nan
    y = saved_array(tmp_path, "y.npy", np.load(GOLDEN / "cnn_y.npy"))
    seen = on_terminal(80, *fit("--data", f"{saved_array(tmp_path, 'x.npy', x)},{y}"))
    assert "1/20 " in seen and "\nerror P403: " in seen, seen


def test_ps_shows_the_program_by_its_name():
    """The program starts itself again to set how threads wait. A full pipe keeps it from ending, so that ps can see it."""
    out, into = os.pipe()
    os.set_blocking(into, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(into, bytes(4096))
    os.set_blocking(into, True)
    p = subprocess.Popen(program.command("doctor"), stdout=into)
    proc = pathlib.Path(f"/proc/{p.pid}")
    try:
        for _ in range(250):
            started_anew, name = b"GOMP_SPINCOUNT=" in (proc / "environ").read_bytes(), (proc / "comm").read_text()
            if started_anew and name == "plimsoll\n":
                break
            time.sleep(0.02)
        assert started_anew and name == "plimsoll\n", name
    finally:
        p.kill()
        p.wait()
        os.close(out)
        os.close(into)
