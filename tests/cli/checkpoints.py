"""Training runs that can be stopped, killed and resumed; functions that read and rewrite their checkpoint files."""

import io
import json
import pathlib
import signal
import struct
import subprocess
import time
import zipfile
import zlib

import h5py
import numpy as np

import program
from bad_files import GOLDEN, data

MODEL = GOLDEN / "cnn.keras"
COMMON = ("--batch-size", 4, "--threads", 2, "--budget", "96MiB")


def fit(*flags, data_=None, model=MODEL):
    return ("fit", model, "--data", data_ or data(), *COMMON, *flags)


def start(*arguments, **named):
    return subprocess.Popen(
        program.command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **named
    )


def finish(process):
    out, err = process.communicate(timeout=program.TIMEOUT)
    return process.returncode, out + err


def wait_until(condition, process, seconds=60):
    end = time.time() + seconds
    while process.poll() is None and time.time() < end:
        if condition():
            return
        time.sleep(0.002)
    assert condition(), "it ended, or nothing came of it"


def steps_in(log):
    return pathlib.Path(log).read_text().count('"event":"step"') if pathlib.Path(log).exists() else 0


def interrupted_run(folder, *flags, steps=7, sign=signal.SIGINT, **named):
    """Starts a long run with a checkpoint folder and stops it by a signal after some steps."""
    log = pathlib.Path(folder) / "interrupted.jsonl"
    process = start(*fit("--epochs", 100000, "--checkpoint", pathlib.Path(folder) / "run", "--log", log, *flags, **named))
    wait_until(lambda: steps_in(log) >= steps, process)
    process.send_signal(sign)
    code, text = finish(process)
    assert code == 5, text
    return pathlib.Path(folder) / "run"


def read(path):
    """The JSON of a checkpoint file, and the bytes after it with their position."""
    blob = pathlib.Path(path).read_bytes()
    magic, size, _, _ = struct.unpack_from("<8sQII", blob)
    assert magic == b"PLMCKPT1"
    return json.loads(blob[24 : 24 + size]), blob


def write(path, document, blob):
    """Writes a checkpoint with another header and its CRC; the tensors move to the end of the longer text."""
    first = min((t["offset"] for t in document["tensors"]), default=24)
    for _ in range(3):  # the offsets are part of the text, and depend on its length
        text = json.dumps(document).encode()
        shift = (24 + len(text) + 127) // 64 * 64 - min(t["offset"] for t in document["tensors"])
        for tensor in document["tensors"]:
            tensor["offset"] += shift
    text = json.dumps(document).encode()
    at = min(t["offset"] for t in document["tensors"])
    head = struct.pack("<8sQ", b"PLMCKPT1", len(text))
    crc = zlib.crc32(text, zlib.crc32(head))
    whole = head + struct.pack("<II", crc, 0) + text
    assert len(whole) <= at
    pathlib.Path(path).write_bytes(whole.ljust(at, b"\0") + blob[first:])


def edit(path, change):
    document, blob = read(path)
    change(document["header"])
    write(path, document, blob)


def flip_a_byte(path):
    """Changes a byte of the last tensor, so that its CRC is wrong."""
    blob = bytearray(path.read_bytes())
    blob[-3] ^= 0x40
    path.write_bytes(bytes(blob))


def learning_rate(path):
    with zipfile.ZipFile(path) as archive, h5py.File(io.BytesIO(archive.read("model.weights.h5"))) as file:
        return float(file["optimizer/vars/1"][()])


def many_samples(folder, copies=8):
    """Writes new data files that contain the golden samples several times."""
    x, y = np.load(GOLDEN / "cnn_x.npy"), np.load(GOLDEN / "cnn_y.npy")
    return program.arrays(folder, x=np.concatenate([x] * copies), y=np.concatenate([y] * copies))
