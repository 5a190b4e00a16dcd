"""The budget is kept: a U-Net that needs more without levers trains in a cgroup whose limit is exactly the budget.

Losses of the two runs differ only by rounding (another micro-batch, another order of additions): RUN_LOSS."""

import re
import subprocess

import keras
import numpy as np
import pytest

import compare
import keras_side
import models
import program

MIB = 2**20
BATCH, STEPS = 32, 3
LEVERS = program.LEVERS


@pytest.fixture(scope="module")
def segmenter(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unet")
    keras.utils.set_random_seed(2)
    model = models.unet(keras, 96, 3, 16, 2)
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "sparse_categorical_crossentropy")
    model.save(folder / "unet.keras")
    rng = np.random.default_rng(5)
    x = rng.standard_normal((BATCH * STEPS, 96, 96, 3), dtype=np.float32)
    # Mostly one class, so that a bias gradient is a sum of equal signs over 300,000 pixels, and does not cancel to rounding error.
    y = rng.choice(3, (BATCH * STEPS, 96, 96), p=(0.8, 0.15, 0.05)).astype(np.uint8)
    data = program.arrays(folder, x=x, y=y)
    free = program.fit(folder, folder / "unet.keras", data, name="free", batch_size=BATCH, epochs=1, steps=STEPS)
    return folder, data, free


def plan(folder, *flags, **named):
    """The plan for the same data and threads as the run."""
    data = f"{folder / 'x.npy'},{folder / 'y.npy'}"
    return program.plan(folder / "unet.keras", *flags, batch_size=BATCH, data=data, threads=2, **named)


def least(folder):
    """The plan without any lever, and the bytes of the smallest plan with levers."""
    return plan(folder, "--forbid", LEVERS), plan(folder)["least_bytes"]


def half_way(folder):
    whole, smallest = least(folder)
    assert smallest < 0.7 * whole["peak_bytes"], "levers save next to nothing on a U-Net"
    return (smallest + (whole["peak_bytes"] - smallest) // 4) // MIB * MIB


def limited(budget):
    """A command that starts a program in a memory cgroup of that size; skips the test if it cannot create one."""
    script = str(program.ROOT / "scripts" / "in_cgroup.sh")
    probe = subprocess.run([script, "64MiB", "--", "true"], capture_output=True, text=True)
    if probe.returncode == 77:
        pytest.skip(probe.stderr.strip())
    return [script, str(budget), "--"]


def test_run_completes_inside_a_cgroup_of_the_budget(segmenter):
    folder, data, free = segmenter
    budget = half_way(folder)
    trained = program.fit(
        folder,
        folder / "unet.keras",
        data,
        name="limited",
        batch_size=BATCH,
        epochs=1,
        budget=budget,
        steps=STEPS,
        prefix=limited(budget),
    )
    assert trained.done["budget_bytes"] == budget
    for step, (a, b) in enumerate(zip(trained.losses, free.losses, strict=True)):
        compare.close("run loss", f"budget: step {step + 1}", a, b, compare.RUN_LOSS)
    got, want = (keras_side.values(keras_side.load(t.saved)) for t in (trained, free))
    for k, (a, b) in enumerate(zip(got, want)):
        compare.close("weight", f"budget: {k}", a, b, compare.RUN_WEIGHT)


def test_the_kernel_would_have_killed_the_plan_without_levers(segmenter):
    """Without levers, the same budget is refused before step 0, with the number of missing bytes."""
    folder, data, _ = segmenter
    ended = program.run(
        "fit",
        folder / "unet.keras",
        "--data",
        data,
        "--batch-size",
        BATCH,
        "--budget",
        half_way(folder),
        "--forbid",
        LEVERS,
        expect=3,
    )
    assert "P301" in ended.stderr, ended.stderr


def test_below_the_least_is_refused(segmenter):
    """The error names the smallest budget that is enough. Rounded up to MiB it is enough; one MiB less is not."""
    folder, data, free = segmenter
    flags = ["fit", folder / "unet.keras", "--data", data, "--batch-size", BATCH, "--threads", 2]
    text = program.run(*flags, "--budget", "1MiB", expect=3).stderr
    told = float(re.search(r"smallest plan found needs ([\d.]+) MiB", text)[1])
    ended = program.run(*flags, "--budget", int((told - 1) * MIB), expect=3)
    assert "P301" in ended.stderr, ended.stderr
    least_named = dict(batch_size=BATCH, epochs=1, steps_per_epoch=1, steps=1, budget=int((told + 0.1) * MIB))
    trained = program.fit(folder, folder / "unet.keras", data, name="least", **least_named)
    compare.close("run loss", "least budget", trained.losses[0], free.losses[0], compare.RUN_LOSS)


def test_plan_closes(segmenter):
    """The rows sum to the peak, and the run used what the plan says."""
    folder, _, free = segmenter
    whole = plan(folder, "--forbid", LEVERS)
    assert whole["schema"] == "plimsoll.plan/1"
    assert whole["arena_bytes"] + whole["overhead_bytes"] + whole["data_bytes"] == whole["peak_bytes"]
    assert sum(c["bytes"] for c in whole["categories"]) == whole["arena_bytes"]
    assert whole["arena_bytes"] <= 1.02 * whole["live_set_bytes"], "packing is more than 2 % above the live set"
    assert {"effective": BATCH, "micro": BATCH, "accumulation_steps": 1} == whole["batch"]
    assert free.plan["arena_bytes"] == free.done["arena_planned_bytes"]


def test_less_budget_never_needs_more(segmenter):
    """For six shrinking budgets: the peak is within the budget and does not rise, and the seconds do not fall."""
    folder, _, _ = segmenter
    whole, smallest = least(folder)
    budgets = np.linspace(whole["peak_bytes"], smallest, 6).astype(int)
    plans = [plan(folder, budget=b) for b in budgets]
    assert all(p["fits"] and p["peak_bytes"] <= b for p, b in zip(plans, budgets))
    peaks, seconds = [p["peak_bytes"] for p in plans], [p["step_seconds"] for p in plans]
    assert peaks == sorted(peaks, reverse=True) and seconds == sorted(seconds), (peaks, seconds)


@pytest.mark.parametrize("name", ["resnet20", "depthwise"])
def test_half_the_live_set_trains_bitwise_where_the_batch_may_not_be_cut(name, tmp_path):
    """BatchNormalization needs statistics of the whole batch, so the batch cannot be split and only recompute is left."""
    keras.utils.set_random_seed(3)
    model = models.bench_model(keras, name)
    model.compile("adam", "sparse_categorical_crossentropy")
    model.save(tmp_path / "model.keras")
    x, y = models.labelled(np.random.default_rng(0), 2 * BATCH, model.input_shape[1:])
    data = program.arrays(tmp_path, x=x, y=y.astype(np.int32))
    bare = program.plan(tmp_path / "model.keras", batch_size=BATCH, threads=2, data=data, forbid=LEVERS)
    half = bare["overhead_bytes"] + bare["data_bytes"] + bare["live_set_bytes"] // 2
    free, limited = (
        program.fit(tmp_path, tmp_path / "model.keras", data, name=k, batch_size=BATCH, epochs=1, steps=2, budget=b)
        for k, b in (("free", None), ("half", half))
    )
    assert [(lever["name"], lever["effect"]) for lever in limited.plan["levers"]] == [("recompute", "bitwise")]
    assert limited.done["arena_peak_bytes"] <= 0.55 * bare["live_set_bytes"]  # the arena may use overhead that the run does not need
    assert limited.losses.tolist() == free.losses.tolist()
    got, want = (keras_side.values(keras_side.load(t.saved)) for t in (limited, free))
    assert all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))
