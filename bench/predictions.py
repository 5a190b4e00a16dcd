"""Compares predicted with measured step times on this machine's CPU; prints a table for bench/results.md.

    bench/predictions.py [--models fashion,seed_2] [--batches 32,128] [--rounds 3] [--seconds 2]

In each round and for each row, `doctor --calibrate` writes a new file, and `fit` then trains a short segment. `without` and `with` are
the plan's step time without and with a calibration, over the median step of all segments. `own`: the same with a calibration, over
the steps that doctor runs between those that it times kernel by kernel.
Needs Keras, to make the models and their data."""

import argparse
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests" / "keras")]

import plimsoll_side
import program


def row(side, batch, seconds, rounds, folder, least):
    flags = program.options(batch_size=batch, threads=plimsoll_side.THREADS, device="cpu")
    predicted, steps, own = [], [], []
    for number in range(rounds):
        file = pathlib.Path(folder) / f"calibration-{number}.txt"
        file.unlink(missing_ok=True)
        to = ("--calibration", file, "--json")
        told = program.run("doctor", "--calibrate", side.model, *flags, *to, "--quiet").json()
        steps += [side.time(batch, seconds)["times"]]
        predicted.append(program.run("plan", side.model, *flags, "--data", side.data, *to).json()["step_seconds"])
        own.append(told["steps"][0]["predicted_seconds"] / told["steps"][0]["measured_seconds"])
    bare = program.run("plan", side.model, *flags, "--data", side.data, "--calibration", "none", "--json").json()
    choose = min if least else statistics.median
    step = choose([t for segment in steps for t in segment])
    return {
        "step": step,
        "without": bare["step_seconds"] / step,
        "with": choose(predicted) / step,
        "own": statistics.median(own),
        "kernels": told["kernels"],
    }


def mean_error(ratios):
    """The geometric mean of how far the ratios are from 1."""
    return math.exp(statistics.mean(abs(math.log(r)) for r in ratios)) - 1


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--models", default="fashion,seed_1,seed_2,seed_3,resnet20,pointwise,depthwise")
    a.add_argument("--batches", default="32,128")
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--seconds", type=float, default=2, help="seconds of steps per segment")
    a.add_argument("--least", action="store_true", help="the fastest step and the least prediction: for a busy machine")
    o = a.parse_args()
    names, rows = o.models.split(","), []
    with tempfile.TemporaryDirectory(prefix="plimsoll-bench-") as folder:
        subprocess.run(
            [sys.executable, HERE / "tensorflow_side.py", "prepare", folder, str(48 * 2**20), *names],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        print("| model | batch | step, ms | without | with | doctor's own steps | kernels |\n" + "| --- " * 7 + "|")
        for name in names:
            side = plimsoll_side.Side(folder, name)
            for batch in map(int, o.batches.split(",")):
                r = row(side, batch, o.seconds, o.rounds, folder, o.least)
                rows.append(r)
                print(
                    f"| {name} | {batch} | {1e3 * r['step']:.1f} | {r['without']:.2f} | {r['with']:.2f} | {r['own']:.2f} |"
                    f" {r['kernels']} |",
                    flush=True,
                )
    for what in ("without", "with", "own"):
        ratios = [r[what] for r in rows]
        near = sum(abs(ratio - 1) <= 0.1 for ratio in ratios)
        print(f"{what}: {mean_error(ratios):.1%} off on average, {near} of {len(ratios)} within 10 %")


if __name__ == "__main__":
    main()
