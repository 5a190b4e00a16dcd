"""Compares Plimsoll with TensorFlow on this machine's CPU in one run; writes bench/results.md and bench/results.json.

    bench/run.py [--quick] [--models fashion,seed_2] [--batches 32,128] [--rounds 3] [--seconds 4]

Machines are noisy, so short segments of both sides alternate (`--rounds` times) and medians over all steps are compared.
For each model and batch:
  free      no budget: step time and peak resident memory
  quarter   --budget at a quarter of TensorFlow's peak
  half      the arena at half of the live set without levers: --budget = overhead + data + half of it
  smallest  the smallest budget whose step is no slower than TensorFlow's, by bisection with at most `--probes` timed runs
  start     seconds from process start to the end of the first step, minus one step
Text below the marker in results.md is written by hand and kept."""

import argparse
import datetime
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests" / "keras")]

import models
import plimsoll_side
import report


def tensorflow(name, batch, seconds):
    p = subprocess.run(
        [sys.executable, HERE / "tensorflow_side.py", "time", name, str(batch), str(seconds)],
        capture_output=True,
        text=True,
    )
    if p.returncode:
        raise SystemExit(f"TensorFlow failed on {name}, batch {batch}:\n{p.stderr[-2000:]}")
    return json.loads(p.stdout.splitlines()[-1])


def merge(segments):
    """The median of all steps and the highest peak of several segments, or None if no segment ran."""
    good = [s for s in segments if "times" in s]
    if not good:
        return segments[0] if segments else None
    times = [t for s in good for t in s["times"]]
    return {
        **{k: v for k, v in good[0].items() if k != "times"},
        "step_seconds": statistics.median(times),
        "best_seconds": min(times),
        "steps": len(times),
        "peak_bytes": max(s["peak_bytes"] for s in good),
    }


def budgets(side, batch, peak):
    """The --budget for each condition; `half` needs the plan without levers."""
    bare = side.plan(batch, forbid=plimsoll_side.LEVERS)
    half = bare["overhead_bytes"] + bare["data_bytes"] + bare["live_set_bytes"] // 2
    return {"free": None, "quarter": peak // 4, "half": half}, bare


def smallest_budget(side, batch, limit, seconds, probes, free_peak):
    """The smallest budget with a median step of at most `limit` seconds, and the budgets that were tried."""
    least = side.plan(batch)["least_bytes"]
    tried = []

    def fast(budget):
        segment = side.time(batch, seconds, budget)
        tried.append(
            {
                "budget_bytes": budget,
                "step_seconds": statistics.median(segment["times"]) if "times" in segment else None,
            }
        )
        return "times" in segment and tried[-1]["step_seconds"] <= limit

    if fast(least):
        return least, tried
    low, high, found = least, free_peak, None
    if not fast(high):
        return None, tried
    found = high
    for _ in range(probes - 2):
        middle = (low + high) // 2 // 2**20 * 2**20
        if middle <= low or high - low < 0.05 * high:
            break
        if fast(middle):
            high = found = middle
        else:
            low = middle
    return found, tried


def case(name, batch, folder, o):
    side = plimsoll_side.Side(folder, name)
    first = tensorflow(name, batch, o.seconds)
    wanted, bare = budgets(side, batch, first["peak_bytes"])
    segments = {"tensorflow": [first], **{k: [] for k in wanted}}
    for round_ in range(o.rounds):
        if round_:
            segments["tensorflow"].append(tensorflow(name, batch, o.seconds))
        for condition, budget in wanted.items():
            segments[condition].append(side.time(batch, o.seconds, budget))
    result = {
        "model": name,
        "batch": batch,
        "live_set_bytes": bare["live_set_bytes"],
        **{k: merge(v) for k, v in segments.items()},
    }
    for condition, budget in wanted.items():
        result[condition]["budget_bytes"] = budget
    tf_first = [s["first_step_seconds"] for s in segments["tensorflow"]]
    result["tensorflow"]["start_seconds"] = statistics.median(tf_first) - result["tensorflow"]["step_seconds"]
    if "step_seconds" in result["free"]:
        result["free"]["start_seconds"] = statistics.median(side.start_seconds(batch) for _ in range(max(3, o.rounds)))
        result["smallest"], result["probes"] = smallest_budget(
            side, batch, result["tensorflow"]["step_seconds"], o.seconds / 2, o.probes, result["free"]["peak_bytes"]
        )
    return result


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--models", default=",".join(models.BENCH_NAMES + models.BENCH_SEQUENCES))
    a.add_argument("--batches", default=None)
    a.add_argument("--rounds", type=int, default=None)
    a.add_argument("--seconds", type=float, default=None, help="seconds of steps per segment")
    a.add_argument("--probes", type=int, default=6)
    a.add_argument("--quick", action="store_true", help="one short round at batch 32; writes nothing")
    o = a.parse_args()
    o.batches = o.batches or ("32" if o.quick else "32,128")
    o.rounds = o.rounds or (1 if o.quick else 3)
    o.seconds = o.seconds or (1.5 if o.quick else 4.0)
    if o.quick:
        o.probes = min(o.probes, 3)
    names = o.models.split(",")
    started, results = time.time(), []
    with tempfile.TemporaryDirectory(prefix="plimsoll-bench-") as folder:
        subprocess.run(
            [sys.executable, HERE / "tensorflow_side.py", "prepare", folder, str(48 * 2**20), *names],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        for name in names:
            for batch in map(int, o.batches.split(",")):
                results.append(case(name, batch, folder, o))
                print(report.line(results[-1]), flush=True)
    machine = report.machine()
    machine.update(
        date=datetime.date.today().isoformat(),
        command=" ".join(["bench/run.py"] + sys.argv[1:]),
        minutes=round((time.time() - started) / 60, 1),
    )
    print(report.table(results))
    if not o.quick:
        (HERE / "results.json").write_text(json.dumps({"machine": machine, "results": results}, indent=1) + "\n")
        report.write(HERE / "results.md", machine, results)


if __name__ == "__main__":
    main()
