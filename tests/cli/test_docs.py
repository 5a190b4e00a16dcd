"""Every command in README.md and docs/ is run or checked, and the output that a page shows has the shape that is printed now.

The commands of a page run in their order in one folder, which has the files that the docs name. A page of docs/errors/ first prepares
the mistake it is about: see SETUPS. A command that nothing here knows how to run fails the test.
"""

import gzip
import json
import os
import re
import shlex
import shutil
import signal
import struct
import time
import zipfile

import numpy as np
import pytest

import checkpoints
import docs_commands
import program
from bad_files import GOLDEN

CATEGORIES = "weights gradients optimizer activations inputs workspace temporaries fragmentation".split()
PAGES = {docs_commands.name_of(path): docs_commands.commands_of(path) for path in docs_commands.pages()}
COMMANDS = ("plan", "fit", "evaluate", "predict", "doctor", "explain", "profile", "precision", "top", "reduce", "convert",
            "shrink")  # the program's
WITH_COMMANDS = [page for page, commands in PAGES.items() if commands]


# ---- The files that the docs name


def save_zeros(path, samples, sample, dtype):
    """A .npy of zeros, however large: the file has a hole."""
    np.lib.format.open_memmap(path, "w+", dtype, (samples, *sample))


def save_safetensors(path, **arrays):
    names = {np.dtype(np.float32): "F32", np.dtype(np.int32): "I32"}
    header, blob = {}, b""
    for name, array in arrays.items():
        bounds = [len(blob), len(blob) + array.nbytes]
        header[name] = {"dtype": names[array.dtype], "shape": list(array.shape), "data_offsets": bounds}
        blob += array.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + blob)


def save_idx(path, array):
    head = struct.pack(">BBBB", 0, 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(gzip.compress(head + array.astype(np.uint8).tobytes()))


def change_part(path, part, change):
    """Writes the golden CNN with one entry of its archive changed."""
    with zipfile.ZipFile(GOLDEN / "cnn.keras") as old, zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as new:
        for name in old.namelist():
            new.writestr(name, change(old.read(name)) if name == part else old.read(name))


def without_compile_config(text):
    config = json.loads(text)
    config.pop("compile_config")
    return json.dumps(config).encode()


def for_any_size(text):
    """A compiled model for images of any size."""
    layers = [
        ("InputLayer", {"name": "images", "batch_shape": [None, None, None, 3], "dtype": "float32"}),
        ("Conv2D", {"name": "conv2d", "filters": 4, "kernel_size": [3, 3], "activation": "relu"}),
        ("GlobalAveragePooling2D", {"name": "pool"}),
        ("Dense", {"name": "dense", "units": 3, "activation": "softmax"}),
    ]
    named = [{"class_name": c, "module": "keras.layers", "config": config} for c, config in layers]
    model = {"class_name": "Sequential", "module": "keras", "config": {"name": "any_size", "layers": named}}
    return json.dumps({**model, "compile_config": json.loads(text)["compile_config"]}).encode()


def sentence_model():
    """A compiled classifier of sentences of any length."""
    layers = [
        ("InputLayer", {"name": "words", "batch_shape": [None, None], "dtype": "int32"}),
        ("Embedding", {"name": "embedding", "input_dim": 50, "output_dim": 8, "mask_zero": True}),
        ("LSTM", {"name": "lstm", "units": 6}),
        ("Dense", {"name": "dense", "units": 1, "activation": "sigmoid"}),
    ]
    named = [{"class_name": c, "module": "keras.layers", "config": config} for c, config in layers]
    model = {"class_name": "Sequential", "module": "keras", "config": {"name": "sentences", "layers": named}}
    return json.dumps({**model, "compile_config": {"optimizer": "adam", "loss": "binary_crossentropy"}})


def card_of_the_docs():
    """The profile that docs/gpu.md shows."""
    text = (program.ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
    return re.search(r"```json\n(.*?)```", text, re.DOTALL)[1]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("docs")
    x, y = np.load(GOLDEN / "cnn_x.npy"), np.load(GOLDEN / "cnn_y.npy")
    for name in ("model", "trained", "teacher", "student"):
        shutil.copy(GOLDEN / "cnn.keras", folder / f"{name}.keras")
    change_part(folder / "uncompiled.keras", "config.json", without_compile_config)
    change_part(folder / "any_size.keras", "config.json", for_any_size)
    (folder / "my-card.json").write_text(card_of_the_docs())
    for ending in ("", "_val", "_test"):
        np.save(folder / f"x{ending}.npy", x)
        np.save(folder / f"y{ending}.npy", y)
    shutil.copy(program.ROOT / "tests" / "logs" / "oom" / "tf_plain_excess.log", folder / "train.log")
    np.save(folder / "x_new.npy", x)
    np.save(folder / "weights.npy", np.ones(len(x), np.float32))
    np.savez(folder / "data.npz", x=x, y=y)
    save_safetensors(folder / "data.safetensors", x=x, y=y)
    rng = np.random.default_rng(3)
    (folder / "sentences.json").write_text(sentence_model())
    words = rng.integers(1, 50, (64, 12)).astype(np.int32)
    words[np.arange(12) >= rng.integers(2, 13, 64)[:, None]] = 0
    np.save(folder / "words.npy", words)
    np.save(folder / "labels.npy", rng.integers(0, 2, 64).astype(np.float32))
    save_idx(folder / "train-images-idx3-ubyte.gz", rng.integers(0, 256, (40, 28, 28)))
    save_idx(folder / "train-labels-idx1-ubyte.gz", rng.integers(0, 10, 40))
    return folder


# ---- What a page of docs/errors/ needs: functions of (folder, number of the command on the page), called before that command


def long_run(folder):
    """A run that holds the checkpoint folder and the log."""
    flags = shlex.split("model.keras --data x.npy,y.npy --batch-size 4 --checkpoint run --resume --epochs 1000000 --log a.jsonl")
    (folder / "a.jsonl").unlink(missing_ok=True)  # steps of an earlier run would end the wait too early
    process = checkpoints.start("fit", *flags, cwd=folder)
    checkpoints.wait_until(lambda: checkpoints.steps_in(folder / "a.jsonl") > 0, process)
    return process


def finished_run(folder):
    flags = shlex.split("model.keras --data x.npy,y.npy --batch-size 4 --checkpoint run --epochs 2")
    program.run("fit", *flags, cwd=folder)


def damage(folder):
    """Changes one byte of the last tensor of every checkpoint."""
    for path in (folder / "run").glob("checkpoint*.plimsoll"):
        document, blob = checkpoints.read(path)
        at = max(t["offset"] for t in document["tensors"])
        path.write_bytes(blob[:at] + bytes([blob[at] ^ 1]) + blob[at + 1 :])


def cut_short(folder, number):
    path = folder / "model.keras"
    path.write_bytes(path.read_bytes()[:-100])


def never_compiled(folder, number):
    shutil.copy(folder / "uncompiled.keras", folder / "model.keras")


def of_any_size(folder, number):
    shutil.copy(folder / "any_size.keras", folder / "model.keras")


def other_checkpoint(folder, number):
    if number == 0:
        finished_run(folder)
    for name in ("x", "y"):  # one sample more for the second command, and no longer for the third
        array = np.load(folder / f"{name}_test.npy")
        np.save(folder / f"{name}.npy", np.concatenate([array, array[:1]]) if number == 1 else array)
    if number == 2:
        damage(folder)


def not_hdf5(folder, number):
    change_part(folder / "model.keras", "model.weights.h5", lambda _: b"no HDF5" * 1000)


def folder_in_use(folder, number):
    if number == 0:
        finished_run(folder)
    return long_run(folder) if number > 0 else None


def much_data(folder, number):
    save_zeros(folder / "x.npy", 400_000, (10, 10, 2), np.float32)
    save_zeros(folder / "y.npy", 400_000, (), np.int32)


def large_images(folder, number):
    save_zeros(folder / "x.npy", 64, (128, 128, 3), np.float32)
    save_zeros(folder / "y.npy", 64, (), np.int32)


def slow_batches(folder, number):
    save_zeros(folder / "x.npy", 4096, (28, 28, 1), np.uint8)
    save_zeros(folder / "y.npy", 4096, (), np.int32)


SETUPS = {
    "P203": cut_short,
    "P208": never_compiled,
    "P209": of_any_size,
    "P212": other_checkpoint,
    "P213": not_hdf5,
    "P214": folder_in_use,
    "P501": much_data,
    "P604": large_images,
    "P701": slow_batches,
}
SIGNALS = {"P501": 1, "P701": 2}  # how often the user presses Ctrl-C


# ---- Running


def expected_code(command):
    """What the page states: 0, or the code of the error it shows."""
    for line in command.output:
        if error := re.match(r"error P(\d)\d\d: ", line):
            return int(error[1])
        if line.startswith("interrupted"):
            return 5
        if line.startswith("Does not fit: "):
            return 3
    return 0


def run_interrupted(line, folder, times, seconds):
    """Runs for some seconds, until it is in the middle of its work, then presses Ctrl-C."""
    process = checkpoints.start(*line, cwd=folder, env={**os.environ, "NO_COLOR": "1", "PLIMSOLL_THREADS": "1"})
    time.sleep(seconds * times)
    if "--checkpoint-every" in line:
        checkpoints.wait_until(lambda: (folder / "run/checkpoint.plimsoll").exists(), process)
        time.sleep(0.2)
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.15)
    out, err = process.communicate(timeout=program.TIMEOUT)
    return program.Ended(process.returncode, out, err)


def run_line(line, folder, limit=None):
    prefix = ["bash", "-c", f'{limit}; exec "$@"', "-"] if limit else []
    return program.run(*line, expect=None, cwd=folder, prefix=prefix)


def check_gpu_command(command, words, folder):
    """There may be no GPU here: the flags are understood, and a card elsewhere has a plan for what the two commands share."""
    ended = run_line(words, folder)
    assert ended.code == 0 or (ended.code == 6 and "error P603" in ended.stderr), f"{command}\n{ended}"
    known = set(re.findall(r"--[a-z0-9-]+", program.run("plan", "--help").stdout)) - {"--save", "--device"}
    kept, i = [words[1]], 2
    while i < len(words):
        takes = i + 1 < len(words) and not words[i + 1].startswith("--")
        if words[i] in known:
            kept += words[i : i + 1 + takes]
        i += 1 + takes
    program.run("plan", *kept, "--device", "rtx-4090-24g", cwd=folder)


def run_plimsoll(command, folder, number, limit):
    code_of_page = command.page.removeprefix("docs/errors/").removesuffix(".md")
    words = shlex.split(command.text)[1:]
    if "gpu" in words:
        return check_gpu_command(command, words, folder)
    background = SETUPS[code_of_page](folder, number) if code_of_page in SETUPS else None
    try:
        if code_of_page in SIGNALS:
            # Again where the work had not begun, or ended between two signals: that depends on how busy the machine is.
            for seconds in (0.7, 0.7, 0.4, 1.4, 0.7, 2.5):
                shutil.rmtree(folder / "run", ignore_errors=True)
                ended = run_interrupted(words, folder, SIGNALS[code_of_page], seconds)
                if ended.code == expected_code(command):
                    break
        else:
            ended = run_line(words, folder, limit)
    finally:
        if background:
            background.kill()
            background.communicate()
    assert ended.code == expected_code(command), f"{command}\nthe page says exit code {expected_code(command)}\n{ended}"
    if command.output:
        check_output(command, ended)


# ---- Output


def shape(text):
    """The lines of an output without what differs between machines and runs: numbers, the device, the largest category."""
    lines = []
    for line in text.splitlines():
        line = re.sub(r"(parameters, \w+|per step)(,?) on .+", r"\1\2 on DEVICE", line)
        line = re.sub(r"(at the peak), while .*", r"\1", line)
        line = re.sub(r"(at its peak) .*", r"\1", line)
        line = re.sub(r"\b[0-9a-f]{8}\b", "#", line)  # checksums
        line = re.sub(r"[+-]?\d[\d,.e-]*( ?(B|KiB|MiB|GiB|ms|s|x))?\b", "#", line)
        line = re.sub(r" - idle #%: .*", "", line)  # only where the machine waited long for the data
        line = " ".join(line.split())
        if line and line.split()[0] not in CATEGORIES:
            lines.append(line)
    return lines


def check_output(command, ended):
    """A page shows what goes to stdout, to stderr, or both; `...` stands for lines left out. A page of an error leaves out what was
    printed before the error."""
    wanted = shape("\n".join(command.output))
    if command.page.startswith("docs/errors/"):
        wanted.insert(0, "...")
    pattern = "".join(r"(?:.*\n)*?" if line == "..." else re.escape(line) + "\n" for line in wanted)
    printed = (ended.stdout, ended.stderr, ended.stderr + ended.stdout)
    assert any(re.fullmatch(pattern, "".join(line + "\n" for line in shape(text))) for text in printed), (
        f"{command}\nthe page shows something else than the program prints; numbers are masked\n"
        + "\n".join([*wanted, "-- printed:", *shape(printed[2])])
    )


# ---- Commands that are not run here, but whose parts must exist


def check_make(command, words):
    targets = re.findall(r"^([a-z-]+):", (program.ROOT / "Makefile").read_text(), re.MULTILINE)
    for word in words[1:]:
        assert word in targets or re.fullmatch(r"[A-Z_]+=.*", word), f"{command}: the Makefile has no target {word}"


def check_cmake(command, words):
    presets = re.findall(r'"name": "([\w-]+)"', (program.ROOT / "CMakePresets.json").read_text())
    if "--preset" in words:
        assert words[words.index("--preset") + 1] in presets, f"{command}: CMakePresets.json has no such preset"
    else:
        assert words[1] in ("-B", "-S", "--build", "--install", "--test-dir"), f"{command}: not known to this test"


def check_files(command, words):
    """Paths of the repository that the command names exist; programs of the build have a source."""
    for word in words:
        if program_of_build := re.match(r"build(-fuzz)?/fuzz_(\w+)$", word):
            assert (program.ROOT / "tests/fuzz" / f"{program_of_build[2]}.cpp").exists(), f"{command}: no such fuzz target"
        elif re.match(r"(scripts|bench|tests|examples)/", word):
            assert (program.ROOT / word).exists(), f"{command}: {word} is not there"


def check_command(command, folder, number, limit):
    words = shlex.split(command.text)
    if words[0] in ("plimsoll", "build/plimsoll"):
        run_plimsoll(command, folder, number, limit)
    elif words[0] == "make":
        check_make(command, words)
    elif words[0] in ("cmake", "ctest"):
        check_cmake(command, words)
    elif words[0] == "python3" or words[0].startswith((".venv/bin/python", "scripts/", "bench/", "build/fuzz_", "build-fuzz/fuzz_")):
        check_files(command, words)
    else:
        pytest.fail(f"{command}: this test does not know how to check it")


@pytest.mark.parametrize("page", WITH_COMMANDS)
def test_commands_of_the_page(page, files, tmp_path):
    folder = tmp_path / "work"
    shutil.copytree(files, folder)
    limit, number = None, 0
    for command in PAGES[page]:
        if command.text.startswith("ulimit "):
            limit = command.text
            continue
        check_command(command, folder, number, limit)
        number += 1


def test_commands_were_found():
    """A reader of Markdown that finds nothing would pass."""
    run = [c for commands in PAGES.values() for c in commands if c.text.startswith("plimsoll ")]
    assert len(run) > 60 and sum(bool(c.output) for c in run) > 20


# ---- Commands and flags inside of sentences


def inline_code():
    for path in docs_commands.pages():
        prose = re.sub(r"^\s*```.*?^\s*```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        for code in re.findall(r"`([^`\n]+)`", prose):
            yield docs_commands.name_of(path), code


def test_flags_in_sentences_exist():
    helps = [program.run(command, "--help").stdout for command in COMMANDS]
    helps += [program.run("shrink", way, "--help").stdout for way in ("prune", "resize", "quantize", "distill")]
    helps.append((program.ROOT / "python" / "plimsoll" / "scripts.py").read_text())  # commands of the Python package
    known = set(re.findall(r"--[a-z0-9-]+", "".join(helps)))
    for page, code in inline_code():
        if code.startswith("--") and "internals" not in page:
            for flag in re.findall(r"(?<!\S)--[a-z0-9-]+", code):
                assert flag in known, f"{page}: no command has the flag {flag}"


def test_commands_in_sentences_exist():
    targets = re.findall(r"^([a-z-]+):", (program.ROOT / "Makefile").read_text(), re.MULTILINE)
    for page, code in inline_code():
        if make := re.match(r"make ([a-z-]+)", code):
            assert make[1] in targets, f"{page}: the Makefile has no target {make[1]}"
        if command := re.match(r"(?:build/)?plimsoll ([a-z]+)", code):
            assert command[1] in (*COMMANDS, "run", "check"), f"{page}: {code}"
