"""Decoded pictures on the disk, and records shuffled through it: the same training to the bit, nothing left behind, and memory
within the budget."""

import os
import signal
import subprocess
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

import program
from test_budget import limited
from test_image_folders import smooth

L = keras.layers
MIB = 2**20


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PLIMSOLL_CACHE", str(tmp_path / "cache"))


def photos(folder, rng, count=24, size=(70, 90), kind="jpeg", plain=False):
    """Two classes of pictures. `plain`: of one colour, so that the files are small."""
    for k in range(count):
        one = np.full((*size, 3), 9 * k % 256, np.uint8) if plain else smooth(rng, *size, 3)
        path = folder / "ab"[k % 2] / f"{k}.{kind}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((tf.io.encode_jpeg(one) if kind == "jpeg" else tf.io.encode_png(one)).numpy())
    return folder


def classifier(folder, size, augment=False):
    layers = [L.RandomFlip("horizontal")] if augment else []
    model = keras.Sequential([keras.Input((*size, 3)), L.Rescaling(1 / 255), *layers, L.Flatten(), L.Dense(2, "softmax")])
    model.compile(keras.optimizers.SGD(0.05), "sparse_categorical_crossentropy")
    model.save(folder / "model.keras")
    return folder / "model.keras"


def fit(folder, data, *flags, name="out", **named):
    named = {"batch_size": 5, "epochs": 3, "shuffle": "true", "seed": 7, "budget": "256MiB", **named}
    return program.fit(folder, folder / "model.keras", data, *flags, name=name, **named)


def same(a, b):
    assert np.array_equal(a.losses, b.losses)
    for x, y in zip(keras.models.load_model(a.saved).get_weights(), keras.models.load_model(b.saved).get_weights(), strict=True):
        assert np.array_equal(x, y)


@pytest.mark.parametrize("kind", ["jpeg", "png"])
def test_the_cache_changes_no_bit(kind, tmp_path, rng):
    """Flips are drawn anew in each epoch: they come after the cache."""
    data = photos(tmp_path / "data", rng, kind=kind, size=(32, 48) if kind == "png" else (70, 90))
    classifier(tmp_path, (32, 48), augment=True)
    off = fit(tmp_path, data, cache_images="off", name="off")
    assert off.done["data"]["decoded"] == 72 and off.done["data"]["from_cache"] == 0
    for name, flags in {"all": ("1GiB",), "few": ("100KiB",), "threads": ("1GiB", "--data-threads", "3")}.items():
        on = fit(tmp_path, data, "--cache-images", *flags, name=name)
        same(off, on)
        done, plan = on.done["data"], on.plan["data"]["caches"][0]
        row = 32 * 48 * 3 * (1 if kind == "png" else 4)  # a PNG of the model's size has whole numbers
        kept = min(24, 100 * 1024 // row) if name == "few" else 24
        assert plan["used"] and plan["exact"] and plan["kept"] == kept and plan["disk_bytes"] == kept * row
        assert done["decoded"] == 24 + 2 * (24 - kept) and done["from_cache"] == 2 * kept
        assert done["threads"] == (3 if name == "threads" else 1)
        assert "Pictures are decoded once" in on.ended.stderr
    assert not list((tmp_path / "cache").iterdir())


def test_rounded_pixels(tmp_path, rng):
    """Rounding is the same with a cache of all, of some and in the first epoch; and Keras with rounded pixels agrees."""
    data = photos(tmp_path / "data", rng)
    path = classifier(tmp_path, (32, 48))
    runs = [fit(tmp_path, data, "--cache-images", most, "--cache-pixels", "uint8", name=most, shuffle="false")
            for most in ("1GiB", "20KiB")]
    same(*runs)
    assert runs[0].plan["data"]["caches"][0]["disk_bytes"] == 24 * 32 * 48 * 3
    assert "changes training: pixels are rounded" in runs[0].ended.stderr
    found = keras.utils.image_dataset_from_directory(data, image_size=(32, 48), batch_size=5, shuffle=False, verbose=False)
    model = keras.models.load_model(path)
    want = [model.train_on_batch(np.rint(x), y) for _ in range(3) for x, y in found.as_numpy_iterator()]
    assert np.allclose(runs[0].losses, want, rtol=2e-4)


def test_chosen_when_it_pays(tmp_path, rng):
    photos(tmp_path / "large", rng, count=4, size=(900, 1200))
    photos(tmp_path / "small", rng, count=4, size=(20, 20))
    classifier(tmp_path, (24, 24))
    plan = lambda data, epochs: program.plan(
        tmp_path / "model.keras", data=tmp_path / data, batch_size=2, epochs=epochs, budget="256MiB"
    )["data"]["caches"][0]
    assert plan("large", 5)["used"] and plan("large", 5)["make_seconds"] > 2e-3
    assert plan("large", 1) == {"used": False, "work": "JPEG decode", "why": "each picture is read once"}
    text = program.run("plan", tmp_path / "model.keras", "--data", tmp_path / "large", "--epochs", 5, "--budget", "256MiB").stdout
    assert "How the data are read" in text and "Pictures are decoded once" in text


def test_validation_pictures_are_cached_too(tmp_path, rng):
    data = photos(tmp_path / "data", rng)
    classifier(tmp_path, (32, 48))
    off = fit(tmp_path, data, cache_images="off", validation_split=0.25, name="off")
    on = fit(tmp_path, data, cache_images="1GiB", validation_split=0.25, name="on")
    same(off, on)
    assert [e["metrics"] for e in off.of("epoch")] == [e["metrics"] for e in on.of("epoch")]
    assert on.done["data"]["decoded"] == 24


def test_bad_flags(tmp_path, rng):
    data = photos(tmp_path / "data", rng, count=4)
    model = classifier(tmp_path, (8, 8))
    ask = lambda *flags: program.run("fit", model, "--data", data, *flags, expect=2).stderr
    assert "takes auto, off, or bytes" in ask("--cache-images", "many")
    assert "cannot be combined with" in ask("--cache-images", "off", "--cache-pixels", "uint8")
    ended = program.run("fit", model, "--data", data, "--cache-images", "1GiB", "--epochs", 2, "--cache-folder", "/nowhere")
    assert "/nowhere" in ended.stderr and "not cached" in ended.stderr


def test_the_page_cache_does_not_grow_with_it(tmp_path, rng):
    """Pictures of one colour: small files, large rows. The cgroup counts every page of the cache that the kernel keeps."""
    data = photos(tmp_path / "data", rng, count=150, size=(400, 400), plain=True)
    classifier(tmp_path, (300, 300))
    budget = 160 * MIB
    report = tmp_path / "report"
    prefix = limited(f"{budget + 60 * MIB}")
    trained = fit(tmp_path, data, cache_images="1GiB", epochs=2, budget=budget, prefix=[prefix[0], "--report", report, *prefix[1:]])
    assert trained.done["data"]["from_cache"] == 150
    assert trained.plan["data"]["caches"][0]["disk_bytes"] == 150 * 300 * 300 * 3 * 4 > 150 * MIB
    told = dict(line.split("=") for line in report.read_text().splitlines())
    assert told["oom_killed"] == "no"
    if int(told["peak_bytes"]) > 0:
        # All of the cache in memory would reach the limit of the group.
        assert int(told["peak_bytes"]) < trained.done["process_peak_bytes"] + 60 * MIB, told


def test_a_killed_run_leaves_nothing(tmp_path, rng):
    data = photos(tmp_path / "data", rng)
    classifier(tmp_path, (32, 48))
    folder = tmp_path / "scratch"
    folder.mkdir()
    log = tmp_path / "log.jsonl"
    process = subprocess.Popen(
        program.command("fit", tmp_path / "model.keras", "--data", data, "--epochs", 100000, "--cache-images", "1GiB",
                        "--cache-folder", folder, "--log", log, "--quiet"),
        stderr=subprocess.DEVNULL,
    )
    try:
        limit = time.monotonic() + 60
        while time.monotonic() < limit and (not log.exists() or log.read_text().count('"epoch"') < 2):
            time.sleep(0.1)
        opened = [os.readlink(p) for p in descriptors_of(process.pid)]
        assert any(name.startswith(str(folder)) for name in opened), opened
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not list(folder.iterdir())


def descriptors_of(pid):
    folder = f"/proc/{pid}/fd"
    return [f"{folder}/{name}" for name in os.listdir(folder)]


def test_the_verdict(tmp_path, rng):
    """Large pictures, a tiny model: the device waits, and what would feed it is computed from the counters."""
    data = photos(tmp_path / "data", rng, count=12, size=(1000, 1500))
    classifier(tmp_path, (16, 16))
    trained = fit(tmp_path, data, cache_images="off", epochs=8)
    done = trained.done["data"]
    assert done["idle"] > 0.3 and done["waited_for"] == "JPEG decode" and done["threads"] == 1
    needed = done["decode_seconds"] / done["decoded"] * done["device_samples_per_second"]
    assert done["threads_needed"] == int(np.ceil(needed)) > 1
    assert done["cache_bytes"] in (12 * 16 * 16 * 3 * 4, 12 * 16 * 16 * 3)
    if done["waited_seconds"] > 0.6:
        for words in ("device idle", "waiting for JPEG decode (1 thread", "threads would feed it", "would from epoch 2 (--cache-images"):
            assert words in trained.ended.stderr, trained.ended.stderr
    assert " - idle " in trained.ended.stderr  # of an epoch


# ---- Shuffling through the disk


def rows(folder, count):
    x = np.zeros((count, 784), np.uint8)
    x[:, :4] = np.arange(count, dtype=np.uint32).view(np.uint8).reshape(-1, 4)
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", (np.arange(count) % 10).astype(np.int32))
    model = keras.Sequential([keras.Input((784,)), L.Rescaling(1 / 255), L.Dense(10, "softmax")])
    model.compile(keras.optimizers.SGD(0.01), "sparse_categorical_crossentropy")
    model.save(folder / "model.keras")
    return f"{folder}/x.npy,{folder}/y.npy"


def test_shuffle_through_the_disk(tmp_path):
    """A set four times the budget: the same losses as by index, and the planned memory."""
    data = rows(tmp_path, 210_000)
    run = lambda by, name: fit(tmp_path, data, shuffle_by=by, batch_size=2100, micro_batch=210, epochs=1, budget="38MiB", name=name)
    index, disk = run("index", "index"), run("disk", "disk")
    same(index, disk)
    plan = disk.plan["data"]["shuffle"]
    assert plan["by"] == "disk" and plan["disk_bytes"] > 4 * 38 * MIB and plan["memory_bytes"] < 12 * MIB
    assert plan["disk_seconds"] < plan["index_seconds"]
    assert "Records are shuffled through" in disk.ended.stderr
    assert disk.plan["data_bytes"] >= index.plan["data_bytes"] + plan["memory_bytes"]
    assert not list((tmp_path / "cache").iterdir())


def test_resume_in_the_middle_of_such_an_epoch(tmp_path):
    data = rows(tmp_path, 6_000)
    named = {"shuffle_by": "disk", "batch_size": 100, "epochs": 2, "checkpoint_every": 10}
    whole = fit(tmp_path, data, "--checkpoint", tmp_path / "whole", name="whole", **named)
    process = subprocess.Popen(
        program.command("fit", tmp_path / "model.keras", "--data", data, "--checkpoint", tmp_path / "cut", "--save",
                        tmp_path / "cut.keras", "--log", tmp_path / "cut.jsonl", "--seed", 7, "--threads", 2, "--budget", "256MiB",
                        *program.options(**named)),
        stderr=subprocess.DEVNULL,
    )
    limit = time.monotonic() + 60
    while time.monotonic() < limit and process.poll() is None:
        if (tmp_path / "cut.jsonl").exists() and (tmp_path / "cut.jsonl").read_text().count('"step"') > 25:
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    if process.returncode == 0:
        pytest.skip("the run was over before it could be killed")
    log = tmp_path / "cut.jsonl"
    program.run("fit", tmp_path / "model.keras", "--data", data, "--checkpoint", tmp_path / "cut", "--resume", "--save",
                tmp_path / "cut.keras", "--log", log, "--seed", 7, "--threads", 2, "--budget", "256MiB", *program.options(**named))
    for x, y in zip(keras.models.load_model(whole.saved).get_weights(),
                    keras.models.load_model(tmp_path / "cut.keras").get_weights(), strict=True):
        assert np.array_equal(x, y)
