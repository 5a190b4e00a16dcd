"""Saved plans: a plan that matches the run is followed to the byte, any other plan is refused before anything runs."""

import json

import numpy as np
import pytest

import program
from bad_files import GOLDEN, data, fit_refused, layer, refused, saved_array, with_config

MODEL = GOLDEN / "cnn.keras"


def saved_plan(folder, *flags, model=MODEL, **named):
    named = {"batch_size": 4, "data": data(), "threads": 2, **named}
    program.run("plan", model, "--save", folder / "plan", *program.options(**named), *flags)
    return folder / "plan"


def misfit(folder, plan, mentions, *flags, model=None, data_=None):
    return fit_refused(folder, 211, model, data_, "--threads", 2, "--plan", plan, *flags, mentions=mentions)


def first(folder, count, x=None, y=None):
    """The first samples of the golden data, in the given dtypes."""
    arrays = np.load(GOLDEN / "cnn_x.npy")[:count], np.load(GOLDEN / "cnn_y.npy")[:count]
    return ",".join(
        str(saved_array(folder, f"{name}.npy", a if dtype is None else a.astype(dtype)))
        for name, a, dtype in zip("xy", arrays, (x, y))
    )


def test_a_plan_brings_its_batch(tmp_path):
    plan = saved_plan(tmp_path, batch_size=8)
    program.run("fit", MODEL, "--data", data(), "--threads", 2, "--plan", plan)


def test_a_plan_brings_its_batch_before_a_cut_is_judged(tmp_path):
    more = ",".join(
        str(saved_array(tmp_path, f"{name}.npy", np.concatenate([np.load(GOLDEN / f"cnn_{name}.npy")] * 3))) for name in "xy"
    )
    plan = saved_plan(tmp_path, batch_size=60, micro_batch=40, data=more)
    program.run("fit", MODEL, "--data", more, "--threads", 2, "--plan", plan, "--micro-batch", 40)


def test_a_plan_beside_more_accumulation_than_can_be_counted(tmp_path):
    plan = saved_plan(tmp_path)
    flags = ("--plan", plan, "--gradient-accumulation-steps", 2**63 - 1)
    refused(201, "fit", MODEL, "--data", data(), "--threads", 2, *flags, mentions=["too many samples to count"])


@pytest.mark.parametrize("flags", ((), ("--gradient-accumulation-steps", 3)))
def test_a_checkpoint_of_fewer_samples_than_a_batch(flags, tmp_path):
    """The window has only the 20 samples of the data, but the requested batch is still 32."""
    run = ("fit", MODEL, "--data", data(), "--checkpoint", tmp_path / "run", *flags)
    program.run(*run)
    program.run(*run, "--epochs", 2, "--resume")


def test_a_plan_that_cannot_be_saved_is_one_document(tmp_path):
    found = program.run("plan", MODEL, "--save", tmp_path / "none" / "plan", "--json", expect=6).json()
    assert list(found) == ["error"]


def test_a_file_that_is_no_plan(tmp_path):
    (tmp_path / "plan").write_text("not a plan")
    misfit(tmp_path, tmp_path / "plan", [tmp_path / "plan", "not JSON"])


@pytest.mark.parametrize("text", ("{}", "[]", "3", '{"class_name": "Sequential"}'))
def test_json_that_is_no_plan(text, tmp_path):
    (tmp_path / "plan").write_text(text)
    misfit(tmp_path, tmp_path / "plan", [tmp_path / "plan", "expected a plan"])


def test_a_plan_that_is_not_there(tmp_path):
    fit_refused(tmp_path, 202, None, None, "--plan", tmp_path / "plan", mentions=[tmp_path / "plan"])


def test_another_model(tmp_path):
    misfit(tmp_path, saved_plan(tmp_path, model=GOLDEN / "mlp.keras", data=data("mlp")), ["model: mlp in the plan, cnn in this run"])


def test_another_batch(tmp_path):
    misfit(tmp_path, saved_plan(tmp_path, batch_size=8), ["batch: 8 in the plan, 4 in this run"])


def test_another_thread_count(tmp_path):
    misfit(tmp_path, saved_plan(tmp_path, threads=1), ["1 thread"])


def test_another_precision(tmp_path):
    misfit(tmp_path, saved_plan(tmp_path), ["precision: float32 in the plan, float64 in this run"], "--precision", "float64")


def test_another_rounding_of_matrix_work(tmp_path):
    """Some kernels of a GPU need tf32."""
    card = ("--device", "rtx-4090-24g")
    misfit(tmp_path, saved_plan(tmp_path, *card), ["tf32: true in the plan, false in this run"], *card, "--tf32", "false")


def test_a_number_of_samples_that_leaves_another_last_batch(tmp_path):
    """20 samples make whole batches of 4, but 18 leave 2: the plan has no phase for two samples."""
    misfit(tmp_path, saved_plan(tmp_path), ["2 samples"], data_=first(tmp_path, 18))


def test_a_last_window_that_is_cut_otherwise(tmp_path):
    """Windows of 8 in micro-batches of 3: the last window has 4 = 3 + 1 of 20 samples, 0 of 16, and 5 = 3 + 2 of 13, like a full window."""
    plan = saved_plan(tmp_path, batch_size=8, micro_batch=3, data=first(tmp_path, 16))
    flags = ["--batch-size", 8, "--threads", 2, "--plan", plan, "--epochs", 1]
    refused(211, "fit", MODEL, "--data", data(), *flags, mentions=["1 sample"])
    program.run("fit", MODEL, "--data", first(tmp_path, 13), *flags)


@pytest.mark.parametrize("x, y, mentions", (("uint8", None, "input"), ("float64", None, "input"), (None, "uint8", "target")))
def test_data_of_another_dtype(tmp_path, x, y, mentions):
    misfit(tmp_path, saved_plan(tmp_path), [mentions, x or y], data_=first(tmp_path, 20, x, y))


def test_sample_weights_it_did_not_count(tmp_path):
    weights = saved_array(tmp_path, "w.npy", np.ones(20, np.float32))
    misfit(tmp_path, saved_plan(tmp_path), ["sample weights"], data_=f"{data()},{weights}")


def test_class_weights_it_did_not_count(tmp_path):
    misfit(tmp_path, saved_plan(tmp_path), ["sample weights"], "--class-weight", "0:1,1:2")


def test_validation_it_did_not_count(tmp_path):
    misfit(tmp_path, saved_plan(tmp_path), ["evaluat"], "--validation-data", data())


def test_validation_data_of_another_size(tmp_path):
    plan = saved_plan(tmp_path, validation_data=data())
    misfit(tmp_path, plan, ["evaluat", "3 samples"], "--validation-data", first(tmp_path, 11))


def test_another_activation_under_the_same_name(tmp_path):
    """Names and shapes agree, but the computation differs: the graph of the plan must not be used."""
    other = with_config(tmp_path, lambda c: layer(c, "Conv2D").update(activation="tanh"))
    misfit(tmp_path, saved_plan(tmp_path), ["layers"], model=other)


def test_another_shape_under_the_same_name(tmp_path):
    other = with_config(tmp_path, lambda c: layer(c, "Conv2D").update(strides=[2, 2]))
    misfit(tmp_path, saved_plan(tmp_path, model=other), ["weight 'dense/kernel'"])


def test_another_optimizer(tmp_path):
    misfit(tmp_path, saved_plan(tmp_path), ["optimizer"], "--optimizer", "sgd")


def test_another_micro_batch(tmp_path):
    misfit(tmp_path, saved_plan(tmp_path), ["micro-batch"], "--micro-batch", 2)


def test_statistics_per_micro_batch_must_be_allowed_again(tmp_path):
    plan = saved_plan(tmp_path, "--batchnorm", "per-micro-batch", model=GOLDEN / "resnet.keras", data=data("resnet"),
                      micro_batch=2)
    flags = ["fit", GOLDEN / "resnet.keras", "--data", data("resnet"), "--batch-size", 4, "--threads", 2, "--plan", plan]
    refused(211, *flags, mentions=["--batchnorm"])
    program.run(*flags, "--batchnorm", "per-micro-batch", "--epochs", 1)


def test_a_lever_that_is_forbidden_now(tmp_path):
    plan = saved_plan(tmp_path, micro_batch=2)
    misfit(tmp_path, plan, ["micro-batch"], "--forbid", "micro-batch")


def test_a_budget_below_the_plan(tmp_path):
    plan = saved_plan(tmp_path)
    fit_refused(tmp_path, 301, None, None, "--threads", 2, "--plan", plan, "--budget", "20MiB")


@pytest.mark.parametrize(
    "damage",
    (
        lambda p: p.update(arena_bytes=p["arena_bytes"] - 64),
        lambda p: p["settings"].update({"micro-batch": 10**6}),
        lambda p: p["settings"].update(prefetch=1000),
        lambda p: p["settings"].update(prefetch=-1),
        lambda p: p.update(batch="four"),
        lambda p: p.pop("persistent"),
        lambda p: p["phases"][0].update(peak_node=10**6),
        lambda p: p["phases"][0]["values"].pop(),
        lambda p: p["phases"][0]["values"][0].__setitem__(0, 10**9),
        lambda p: p["phases"][0]["values"][0].__setitem__(0, -(10**9)),
        lambda p: p["phases"][0]["nodes"][0].__setitem__(0, "no-such-kernel"),
        lambda p: p["phases"][0]["nodes"][0].__setitem__(2, -1),
        lambda p: p["phases"][0].update(graph=p["phases"][0]["graph"].replace("f32", "f64")),
        lambda p: p["phases"].clear(),
        lambda p: p["persistent"].reverse(),
        lambda p: p.update(format="plimsoll.saved-plan/0"),
    ),
    ids=range(16),
)
def test_a_damaged_plan(tmp_path, damage):
    """A damaged file is an error of the file: never P101 (internal error), never a crash."""
    plan = saved_plan(tmp_path)
    read = json.loads(plan.read_text())
    damage(read)
    plan.write_text(json.dumps(read))
    misfit(tmp_path, plan, [])


def test_a_plan_that_suits_is_obeyed(tmp_path):
    plan = saved_plan(tmp_path)
    wanted = program.plan(MODEL, batch_size=4, data=data(), threads=2)
    trained = program.fit(tmp_path, MODEL, data(), batch_size=4, epochs=1, plan=plan, steps=5)
    assert trained.done["arena_planned_bytes"] == wanted["arena_bytes"]


def test_a_given_plan_is_shown_too(tmp_path):
    plan = saved_plan(tmp_path)
    run = ["fit", MODEL, "--data", data(), "--batch-size", 4, "--threads", 2, "--checkpoint", tmp_path / "checkpoint"]
    for flags in (["--plan", plan, "--epochs", 1], ["--resume", "--epochs", 2]):
        shown = program.run(*run, *flags).stderr
        assert "plan: " in shown and "batch 4 in one piece" in shown, flags


def test_a_plan_made_without_data_suits_data_of_the_types_it_assumed(tmp_path):
    plan = saved_plan(tmp_path, data=None)
    program.fit(tmp_path, MODEL, data(), batch_size=4, epochs=1, plan=plan, steps=5)


def test_a_plan_with_an_evaluation_serves_a_run_without(tmp_path):
    plan = saved_plan(tmp_path, validation_data=data())
    program.run("fit", MODEL, "--data", data(), "--batch-size", 4, "--threads", 2, "--plan", plan, "--epochs", 1)
