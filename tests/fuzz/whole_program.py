"""Runs the whole program on mutated files and checks how it exits. The fuzz targets test one parser each.

    python3 tests/fuzz/whole_program.py KIND [CASES [SEED]]     KIND: plan, checkpoint, zip, hdf5, config, h5 or saved_model

Checksums of zip entries and of checkpoint headers are made right, so mutations reach what lies behind them. A case is bad if the
program is killed by a signal, exits with a code that no bad file has (docs/errors/README.md), says no error, takes more than 10 s, or
holds more than the budget. Bad files are kept in build-fuzz/found/program/. Needs nothing but Python; the program is build/plimsoll.
"""

import collections
import io
import json
import os
import pathlib
import random
import re
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build" / "plimsoll"
GOLDEN = ROOT / "tests" / "golden"
FOUND = ROOT / "build-fuzz" / "found" / "program"
DATA = f"{GOLDEN / 'cnn_x.npy'},{GOLDEN / 'cnn_y.npy'}"
BUDGET_MIB = 64
FLAGS = ["--data", DATA, "--batch-size", "4", "--budget", f"{BUDGET_MIB}MiB", "--device", "cpu", "--threads", "1", "--quiet"]
SECONDS = 10
NUMBERS = [0, 1, -1, 255, 256, 257, 2**31 - 1, 2**31, -(2**31), 2**40, -(2**40), 2**56, 2**62, 2**63 - 1, -(2**63), 2**64 - 1, 0.5, 1e300]
VALUES = NUMBERS + ["", "x", None, True, [], {}]


def places(value, path=()):
    """Returns the paths of the values inside a JSON value."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield path + (key,)
        yield from places(child, path + (key,))


def edited_text(text, rand):
    """Returns graph text in which a number, a line or a type is changed."""
    lines = text.split("\n")
    at = rand.randrange(len(lines))
    way = rand.randrange(4)
    if way == 0 and (numbers := list(re.finditer(r"\d+", lines[at]))):
        number = rand.choice(numbers)
        lines[at] = lines[at][: number.start()] + str(abs(int(rand.choice(NUMBERS[:-2])))) + lines[at][number.end() :]
    elif way == 1:
        del lines[at]
    elif way == 2:
        lines.insert(rand.randrange(len(lines)), lines[at])
    else:
        lines[at] = lines[at].replace("f32", rand.choice(("f64", "u8", "i64")), 1)
    return "\n".join(lines)


def edited_json(value, rand):
    value = json.loads(json.dumps(value))
    for _ in range(rand.choice((1, 1, 1, 2, 4))):
        *path, last = rand.choice(list(places(value)))
        inside = value
        for key in path:
            inside = inside[key]
        old, way = inside[last], rand.random()
        if isinstance(old, str) and "\n" in old:
            inside[last] = edited_text(old, rand)
        elif isinstance(old, int) and way < 0.3:
            inside[last] = old + rand.choice((-256, -1, 1, 256))
        elif way < 0.8:
            inside[last] = rand.choice(VALUES)
        elif way < 0.9 or isinstance(inside, dict):
            inside.pop(last)
        else:
            inside.insert(last, old)
        if not value:
            break
    return json.dumps(value, separators=(",", ":")).encode()


def edited_bytes(data, rand):
    data = bytearray(data)
    for _ in range(rand.choice((1, 1, 2, 4, 16))):
        at, way = rand.randrange(len(data)), rand.random()
        if way < 0.6:
            data[at] = rand.choice((rand.randrange(256), 0, 1, 127, 128, 255))
        elif way < 0.8:
            size = rand.choice((2, 4, 8))
            data[at : at + size] = rand.choice((0, 2 ** (8 * size) - 1, 2 ** (8 * size - 1))).to_bytes(size, "little")
        elif way < 0.9:
            del data[at : at + rand.randrange(1, 9)]
        else:
            data[at:at] = data[at : at + rand.randrange(1, 64)]
    return bytes(data)


def plan_cases(folder, rand):
    flags = FLAGS + ["--validation-data", DATA]
    seeds = []
    for more in ([], ["--micro-batch", "3"]):
        subprocess.run([PROGRAM, "plan", GOLDEN / "cnn.keras", *flags, *more, "--save", folder / "plan"], check=True, stdout=subprocess.DEVNULL)
        seeds.append(json.loads((folder / "plan").read_text()))
    while True:
        (folder / "edited").write_bytes(edited_json(rand.choice(seeds), rand))
        yield ["fit", GOLDEN / "cnn.keras", *flags, "--plan", folder / "edited"]


def checkpoint_cases(folder, rand):
    run, file = folder / "run", folder / "run" / "checkpoint.plimsoll"
    fit = ["fit", GOLDEN / "cnn.keras", *FLAGS, "--checkpoint", run]
    subprocess.run([PROGRAM, *fit], check=True)
    whole = file.read_bytes()
    length = struct.unpack_from("<Q", whole, 8)[0]
    header, tensors = json.loads(whole[24 : 24 + length]), whole[24 + length :]
    while True:
        shutil.rmtree(run)
        run.mkdir()
        text = edited_json(header, rand).ljust(length)  # tensors stay at the offsets in the table, unless the text grew
        start = whole[:8] + struct.pack("<Q", len(text))
        file.write_bytes(start + struct.pack("<II", zlib.crc32(text, zlib.crc32(start)), 0) + text + tensors)
        yield fit + ["--resume", "--epochs", "2"]


def archive_cases(folder, rand, edit):
    """`edit` makes the bytes of an archive from the entries of a valid one."""
    with zipfile.ZipFile(GOLDEN / "cnn.keras") as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    model = folder / "edited.keras"
    while True:
        model.write_bytes(edit(entries, rand))
        yield ["fit", model, *FLAGS, "--steps-per-epoch", "1", "--save", folder / "out.keras"]


def packed(entries, rand):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", rand.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def edited_entry(name, edit):
    return lambda entries, rand: packed({**entries, name: edit(entries[name], rand)}, rand)


def keras2_flags():
    data = f"{GOLDEN / 'keras2' / 'x.npy'},{GOLDEN / 'keras2' / 'y.npy'}"
    return [data if flag == DATA else flag for flag in FLAGS] + ["--steps-per-epoch", "1"]


def h5_cases(folder, rand):
    """Whole models in HDF5: bytes anywhere, or their JSON."""
    wholes = [(GOLDEN / "keras2" / name).read_bytes() for name in ("adam.h5", "old-momentum.h5")]
    model = folder / "edited.h5"
    while True:
        whole = rand.choice(wholes)
        if rand.random() < 0.5:
            model.write_bytes(edited_bytes(whole, rand))
        else:  # the text keeps its length, so that the heap around it stays right
            begin = whole.index(b'{"class_name": "Functional"')
            end = whole.index(b"\0", begin)
            text = edited_json(json.loads(whole[begin:end]), rand)[: end - begin].ljust(end - begin)
            model.write_bytes(whole[:begin] + text + whole[end:])
        yield ["fit", model, *keras2_flags(), "--save", folder / rand.choice(("out.h5", "out.keras"))]


def saved_model_cases(folder, rand):
    """Bytes of one of the three files of a SavedModel folder."""
    model = folder / "edited"
    while True:
        shutil.rmtree(model, ignore_errors=True)
        shutil.copytree(GOLDEN / "keras2" / rand.choice(("saved-model", "old-saved-model")), model)
        file = model / rand.choice(("keras_metadata.pb", "variables/variables.index", "variables/variables.data-00000-of-00001"))
        file.write_bytes(edited_bytes(file.read_bytes(), rand))
        yield ["fit", model, *keras2_flags(), "--save", folder / "out.keras"]


KINDS = {
    "h5": h5_cases,
    "saved_model": saved_model_cases,
    "plan": plan_cases,
    "checkpoint": checkpoint_cases,
    "zip": lambda folder, rand: archive_cases(folder, rand, lambda entries, r: edited_bytes(packed(entries, r), r)),
    "hdf5": lambda folder, rand: archive_cases(folder, rand, edited_entry("model.weights.h5", edited_bytes)),
    "config": lambda folder, rand: archive_cases(folder, rand, edited_entry("config.json", lambda t, r: edited_json(json.loads(t), r))),
}


def ended(command, folder):
    """Returns the exit code (negative: the signal), resident MiB, seconds, and the output."""
    begun = time.monotonic()
    with open(folder / "printed", "w+b") as printed:
        process = subprocess.Popen([PROGRAM, *command], stdout=printed, stderr=printed, env={**os.environ, "GOMP_SPINCOUNT": "2000"},
                                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (SECONDS + 5, SECONDS + 6)))
        _, status, used = os.wait4(process.pid, 0)
        printed.seek(0)
        return os.waitstatus_to_exitcode(status), used.ru_maxrss / 1024, time.monotonic() - begun, printed.read()


def main():
    if len(sys.argv) < 2 or sys.argv[1] not in KINDS:
        sys.exit(__doc__)
    kind, count, seed = (sys.argv[1:] + ["1000", "1"][len(sys.argv) - 2 :])[:3]
    count, seed = int(count), int(seed)
    codes, bad, most, slowest = collections.Counter(), 0, 0, 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        cases = KINDS[kind](folder, random.Random(seed))
        for number in range(count):
            code, held, seconds, printed = ended(next(cases), folder)
            codes[code] += 1
            most, slowest = max(most, held), max(slowest, seconds)
            if code not in (0, 2, 3, 4, 6) or seconds > SECONDS or held > BUDGET_MIB or (code != 0 and b"error P" not in printed):
                bad += 1
                kept = FOUND / f"{kind}-{seed}-{number}"
                shutil.copytree(folder, kept, dirs_exist_ok=True)
                print(f"bad: exit {code}, {held:.0f} MiB, {seconds:.1f} s; kept in {kept}")
    print(f"{kind}: {count} cases, exit codes {dict(sorted(codes.items()))}, {bad} bad; at most {most:.1f} MiB and {slowest:.2f} s")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
