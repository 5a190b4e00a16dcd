"""What a run shows of itself: event files, the log, Prometheus text, traces, profiles, the plan for PyTorch's memory page."""

import json
import pathlib
import pickle
import re
import time

import numpy as np
import pytest

import checkpoints
import program
from bad_files import GOLDEN, data, refused

MODEL = GOLDEN / "cnn.keras"


def fit(folder, *flags, **named):
    log = folder / "run.jsonl"
    ended = program.run("fit", MODEL, "--data", data(), "--batch-size", 4, "--log", log, *flags, cwd=folder, **named)
    return ended, program.read_log(log)


# ---- TensorBoard


def scalars(folder):
    """Read by TensorBoard's own reader, which checks the framing and the checksums."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util import tensor_util

    reader = EventAccumulator(str(folder), size_guidance={"tensors": 0, "scalars": 0, "histograms": 0})
    reader.Reload()
    tags = reader.Tags()
    found = {tag: [(e.step, float(tensor_util.make_ndarray(e.tensor_proto))) for e in reader.Tensors(tag)] for tag in tags["tensors"] if not tag.endswith("/histogram")}
    found.update({tag: [(e.step, e.value) for e in reader.Scalars(tag)] for tag in tags["scalars"]})
    kinds = set(tags["histograms"]) | {tag for tag in tags["tensors"] if tag.endswith("/histogram")}
    return found, kinds


def test_event_files_have_keras_names_and_the_log_s_numbers(tmp_path):
    pytest.importorskip("tensorboard")
    _, events = fit(tmp_path, "--epochs", 3, "--validation-split", 0.25, "--tensorboard", "board", "--tensorboard-histograms", 2, "--budget", "64MiB")
    train, kinds = scalars(tmp_path / "board" / "train")
    validation, _ = scalars(tmp_path / "board" / "validation")
    epochs = [e for e in events if e["event"] == "epoch"]
    for name in [n for n in epochs[0]["metrics"] if not n.startswith("val_")]:
        assert [s for s, _ in train[f"epoch_{name}"]] == [0, 1, 2]
        np.testing.assert_allclose([v for _, v in train[f"epoch_{name}"]], [e["metrics"][name] for e in epochs], rtol=1e-6)
        np.testing.assert_allclose([v for _, v in validation[f"epoch_{name}"]], [e["metrics"]["val_" + name] for e in epochs], rtol=1e-6)
    steps = [e for e in events if e["event"] == "step"]
    per_epoch = len(steps) // 3
    assert [s for s, _ in validation["evaluation_loss_vs_iterations"]] == [per_epoch, 2 * per_epoch, 3 * per_epoch]
    assert len(train["epoch_learning_rate"]) == 3
    losses = {e["step"]: e["loss"] for e in steps}
    for step, loss in train["batch_loss"]:
        assert loss == pytest.approx(losses[step], rel=1e-6)
    plan, done = events[0], events[-1]
    assert {v for _, v in train["memory/budget_bytes"]} == {float(np.float32(64 * 2**20))}
    assert {v for _, v in train["memory/arena_bytes"]} == {float(np.float32(plan["arena_bytes"]))}
    assert all(0 < v <= float(np.float32(done["process_peak_bytes"])) for _, v in train["memory/held_bytes"])
    seconds = dict(train["step/seconds"])
    for step, read in train["step/waiting_for_data_seconds"]:
        assert 0 <= read <= seconds[step] * 1.001 + 1e-6
        assert dict(train["step/computing_seconds"])[step] == pytest.approx(seconds[step] - read, abs=1e-6)
    assert "dense/kernel/histogram" in kinds


def test_a_second_run_in_the_same_folder_adds_a_file(tmp_path):
    for _ in range(2):
        fit(tmp_path, "--tensorboard", "board")
    assert len(list((tmp_path / "board" / "train").iterdir())) == 2


def test_event_files_match_those_of_keras(tmp_path):
    """The tags and steps of Keras's own callback on the same model, and its run's folders."""
    pytest.importorskip("tensorboard")
    import subprocess, sys

    script = (
        "import os, sys, numpy as np\nos.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'\nimport keras\n"
        "model = keras.saving.load_model(sys.argv[1])\nx, y = np.load(sys.argv[2]), np.load(sys.argv[3])\n"
        "model.fit(x, y, batch_size=4, epochs=2, validation_data=(x, y), verbose=0, callbacks=[keras.callbacks.TensorBoard(sys.argv[4], write_graph=False)])\n"
    )
    x, y = data().split(",")
    subprocess.run([sys.executable, "-c", script, MODEL, x, y, tmp_path / "keras"], check=True, timeout=300)
    fit(tmp_path, "--epochs", 2, "--validation-data", data(), "--tensorboard", "board")
    for run in ("train", "validation"):
        theirs, ours = scalars(tmp_path / "keras" / run)[0], scalars(tmp_path / "board" / run)[0]
        assert theirs
        for tag, values in theirs.items():
            assert [step for step, _ in ours[tag]] == [step for step, _ in values], tag


# ---- The log and Prometheus


def test_the_log_says_what_the_live_line_shows(tmp_path):
    _, events = fit(tmp_path, "--epochs", 2, "--budget", "64MiB")
    steps = [e for e in events if e["event"] == "step"]
    assert all(e["samples"] > 0 and e["samples_per_second"] > 0 for e in steps)
    assert all(0 < e["held_bytes"] <= 64 * 2**20 for e in steps)
    assert steps[-1]["seconds_left"] == 0
    assert all(a["seconds_left"] > 0 for a in steps[:-1])


def test_prometheus_text(tmp_path):
    _, events = fit(tmp_path, "--prometheus", "run.prom", "--budget", "64MiB")
    text = (tmp_path / "run.prom").read_text()
    values = dict(re.findall(r'^plimsoll_(\w+)\{model="cnn"\} (\S+)$', text, re.M))
    assert float(values["budget_bytes"]) == 64 * 2**20 and float(values["held_bytes"]) > 0
    assert float(values["arena_bytes"]) == pytest.approx(events[0]["arena_bytes"])
    for line in text.splitlines():
        assert re.fullmatch(r'# (HELP|TYPE) plimsoll_\w+ .+|plimsoll_\w+\{model="cnn"\} (NaN|[-+0-9.e]+)', line), line
    assert not (tmp_path / "run.prom.tmp").exists()
    refused(602, "fit", MODEL, "--data", data(), "--prometheus", tmp_path / "no" / "run.prom")


# ---- Traces


def trace_of(folder, steps, *flags):
    _, events = fit(folder, "--profile", steps, "-o", "trace.json", *flags)
    return json.loads((folder / "trace.json").read_text()), events


def test_a_trace_has_the_nodes_of_its_steps(tmp_path):
    trace, events = trace_of(tmp_path, "2:3", "--epochs", 2, "--micro-batch", 2)
    slices = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    steps = [e for e in slices if e["cat"] == "step"]
    assert [e["name"] for e in steps] == ["step 2", "step 3"]
    nodes = [e for e in slices if e["cat"] in ("node", "copy")]
    for node in nodes:
        assert any(s["ts"] <= node["ts"] and node["ts"] + node["dur"] <= s["ts"] + s["dur"] + 1 for s in steps)
        assert set(node["args"]) == {"layer", "op", "kernel", "phase", "bytes", "workspace_bytes", "predicted_us"}
    assert {"conv2d", "dense"} <= {n["args"]["layer"] for n in nodes}
    assert sum(n["args"]["phase"] == "apply" for n in nodes) % 2 == 0
    assert any(e["cat"] == "data" for e in slices)
    # Each row is in order and nothing in it overlaps.
    for row in {e["tid"] for e in slices}:
        of_row = sorted((e["ts"], e["ts"] + e["dur"]) for e in slices if e["tid"] == row)
        assert all(a[1] <= b[0] + 0.01 for a, b in zip(of_row, of_row[1:])), row


@pytest.mark.parametrize("flags", ((), ("--micro-batch", 2)), ids=("whole", "pieces"))
def test_the_counter_of_a_trace_reaches_the_plan_s_live_set(flags, tmp_path):
    trace, _ = trace_of(tmp_path, "1:2", *flags)
    counters = [e["args"]["bytes"] for e in trace["traceEvents"] if e["ph"] == "C"]
    plan = program.run("plan", MODEL, "--data", data(), "--batch-size", 4, "--json", *flags).json()
    assert max(counters) == plan["live_set_bytes"]


@pytest.mark.parametrize("flags", (("--profile", "2:1", "-o", "t.json"), ("--profile", "0:2", "-o", "t.json"), ("--profile", "1:2"), ("-o", "t.json"), ("--profile", "1:5000", "-o", "t.json"), ("--profile", "1:2:3", "-o", "t.json")))
def test_wrong_traces(flags):
    refused(201, "fit", MODEL, "--data", data(), *flags)


def test_a_trace_of_steps_that_are_not_made_says_so(tmp_path):
    ended, _ = fit(tmp_path, "--profile", "100:110", "-o", "trace.json")
    assert "no trace was written" in ended.stderr and not (tmp_path / "trace.json").exists()


def test_the_result_is_the_same_with_everything_on(tmp_path):
    _, plain = fit(tmp_path, "--epochs", 2, "--seed", 3)
    _, seen = fit(tmp_path, "--epochs", 2, "--seed", 3, "--tensorboard", "board", "--profile", "1:3", "-o", "t.json", "--prometheus", "p")
    assert [e["loss"] for e in plain if e["event"] == "step"] == [e["loss"] for e in seen if e["event"] == "step"]


# ---- profile, memory_viz


def test_profile_by_layer_and_kind():
    answer = program.run("profile", MODEL, "--batch-size", 8, "--steps", 4, "--json").json()
    assert answer["schema"] == "plimsoll.profile/1" and answer["steps"] == 4
    whole = sum(n["seconds"] for n in answer["nodes"])
    for part in ("layers", "kinds"):
        assert sum(s["seconds"] for s in answer[part]) == pytest.approx(whole)
        assert sum(s["nodes"] for s in answer[part]) == len(answer["nodes"])
    assert {"conv2d", "dense"} <= {s["name"] for s in answer["layers"]}
    assert all(n["runs"] == 1 and n["roofline_seconds"] > 0 and (n["predicted_seconds"] > 0 or n["kernel"] == "view") for n in answer["nodes"])
    said = program.run("profile", MODEL, "--batch-size", 8, "--steps", 2).stdout
    assert re.search(r"^cnn on .+, batch 8: a step took ", said) and "layer\n" in said and "kind\n" in said


def test_the_plan_as_a_memory_snapshot_of_pytorch(tmp_path):
    path = tmp_path / "plan.pickle"
    answer = program.run("plan", MODEL, "--batch-size", 32, "--memory-viz", path, "--json").json()
    snapshot = pickle.loads(path.read_bytes())
    (segment,) = snapshot["segments"]
    assert segment["total_size"] == answer["arena_bytes"] == sum(b["size"] for b in segment["blocks"])
    assert {b["state"] for b in segment["blocks"]} <= {"active_allocated", "inactive"}
    (trace,) = snapshot["device_traces"]
    active, highest = {}, 0
    for event in trace:
        assert {"action", "addr", "size", "stream", "time_us", "frames"} == set(event)
        assert all(set(frame) == {"name", "filename", "line"} for frame in event["frames"])
        if event["action"] == "alloc":
            begin, end = event["addr"], event["addr"] + event["size"]
            assert all(end <= b or e <= begin for b, e in active.values()), "two bands in one place"
            active[begin] = (begin, end)
            highest = max(highest, sum(e - b for b, e in active.values()))
        elif event["action"] == "free_completed":
            del active[event["addr"]]
    assert highest == answer["live_set_bytes"]
    times = [event["time_us"] for event in trace]
    assert times == sorted(times)
    assert {"conv2d", "dense"} <= {frame["filename"] for event in trace for frame in event["frames"]}
