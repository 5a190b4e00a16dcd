"""Ways to break a .keras file, and the check every refusal must pass."""

import io
import json
import pathlib
import re
import shutil
import zipfile

import h5py
import numpy as np

import program

GOLDEN = program.ROOT / "tests" / "golden"
OLD = b"what was saved before"


def data(name="cnn"):
    return f"{GOLDEN / f'{name}_x.npy'},{GOLDEN / f'{name}_y.npy'}"


def entries(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write(path, parts):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, value in parts.items():
            archive.writestr(name, value)
    return path


def changed(folder, change, name="cnn", part="config.json"):
    """A copy of a golden file with one entry changed: `change` takes bytes and returns bytes, or None to remove the entry."""
    parts = entries(GOLDEN / f"{name}.keras")
    new = change(parts[part])
    parts[part] = new
    return write(pathlib.Path(folder) / "model.keras", {k: v for k, v in parts.items() if v is not None})


def with_config(folder, edit, name="cnn"):
    """`edit` changes the parsed config.json in place."""

    def change(text):
        config = json.loads(text)
        edit(config)
        return json.dumps(config).encode()

    return changed(folder, change, name)


def layer(config, class_name, index=0):
    return [l for l in config["config"]["layers"] if l["class_name"] == class_name][index]["config"]


def with_weights(folder, edit, name="cnn"):
    """`edit` changes the opened model.weights.h5 in place."""

    def change(blob):
        buffer = io.BytesIO(blob)
        with h5py.File(buffer, "r+") as f:
            edit(f)
        return buffer.getvalue()

    return changed(folder, change, name, "model.weights.h5")


def datasets(f):
    out = []
    f.visititems(
        lambda path, item: out.append(path) if isinstance(item, h5py.Dataset) and path.startswith("layers") else None
    )
    return sorted(out)


def refused(code, *arguments, mentions=(), env=None, timeout=60):
    """The program exits with the hundreds digit of `code` and prints `error P<code>: ...` in the form of CONTRACT.md; docs explain it."""
    ended = program.run(*arguments, expect=None, env=env, timeout=timeout)
    text = ended.stderr
    assert ended.code == code // 100, f"exit {ended.code}, expected {code // 100}\n{ended.stdout}{text}"
    lines = [line for line in text.splitlines() if line.startswith("error ")]
    assert len(lines) == 1 and re.match(rf"error P{code}: \S", lines[0]), text
    after = text.splitlines()[text.splitlines().index(lines[0]) + 1 :]
    assert all(line.startswith("  ") or not line for line in after), text
    for word in mentions:
        assert str(word) in text, f"{word!r} is not in\n{text}"
    assert (program.ROOT / "docs" / "errors" / f"P{code}.md").exists(), f"no page for P{code}"
    return text


def fit_refused(folder, code, model=None, data_=None, *flags, mentions=(), **named):
    """A refused `fit` does not change its folder: the old saved file is intact, and there is no incomplete file."""
    out = pathlib.Path(folder) / "out"
    out.mkdir()
    saved = out / "saved.keras"
    saved.write_bytes(OLD)
    text = refused(
        code,
        "fit",
        model or GOLDEN / "cnn.keras",
        "--data",
        data_ or data(),
        "--batch-size",
        4,
        "--epochs",
        1,
        "--save",
        saved,
        "--checkpoint",
        out / "checkpoint",
        *flags,
        mentions=mentions,
        **named,
    )
    assert saved.read_bytes() == OLD
    left = [p for p in out.rglob("*") if p != saved and p.is_file() and (p.suffix != ".keras" or p.stat().st_size == 0)]
    assert sorted(p.name for p in out.iterdir()) in (["saved.keras"], ["checkpoint", "saved.keras"]), list(
        out.iterdir()
    )
    assert not left, left
    return text


def saved_array(folder, name, values):
    path = pathlib.Path(folder) / name
    np.save(path, values)
    return path


def copy(folder, name):
    return shutil.copy(GOLDEN / name, pathlib.Path(folder) / name)
