"""Compares predicted with measured step times on this machine's CPU; prints a table for bench/results.md.

    bench/predictions.py [--models fashion,seed_2] [--batches 32,128] [--rounds 3] [--seconds 2]

In each round and for each row, `doctor --calibrate` writes a new file, and `fit` then trains a short segment; the plan's step time
with and without that file is divided by the median step of the segment (--quantile). The table has the median ratio over the rounds, and the range.
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


def quantile(times, share):
    return sorted(times)[int(share * (len(times) - 1))]


def row(side, batch, seconds, rounds, folder, share):
    with_it, without, own, steps, kernels = [], [], [], [], 0
    flags = program.options(batch_size=batch, threads=plimsoll_side.THREADS)
    data = ("--data", side.data)
    for number in range(rounds):
        file = pathlib.Path(folder) / f"calibration-{number}.txt"
        file.unlink(missing_ok=True)
        told = program.run(
            "doctor", "--calibrate", side.model, *flags, "--calibration", file, "--json", "--quiet", "--device", "cpu"
        ).json()
        segment = side.time(batch, seconds)
        step = quantile(segment["times"], share)
        plans = [
            program.run("plan", side.model, *flags, *data, "--calibration", c, "--json", "--device", "cpu").json()
            for c in (file, "none")
        ]
        with_it.append(plans[0]["step_seconds"] / step)
        without.append(plans[1]["step_seconds"] / step)
        own.append(told["steps"][0]["predicted_seconds"] / told["steps"][0]["measured_seconds"])
        steps.append(step)
        kernels = told["kernels"]
    return {"steps": steps, "with": with_it, "without": without, "own": own, "kernels": kernels}


def spread(list_):
    return f"{statistics.median(list_):.2f} ({min(list_):.2f} to {max(list_):.2f})"


def mean_error(ratios):
    """The geometric mean of how far the ratios are from 1."""
    return math.exp(statistics.mean(abs(math.log(r)) for r in ratios)) - 1


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--models", default="fashion,seed_1,seed_2,seed_3,resnet20,pointwise,depthwise")
    a.add_argument("--batches", default="32,128")
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--seconds", type=float, default=2, help="seconds of steps per segment")
    a.add_argument("--quantile", type=float, default=0.5, help="of a segment's steps; 0.25 while other programs run")
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
                r = row(side, batch, o.seconds, o.rounds, folder, o.quantile)
                rows.append(r)
                print(
                    f"| {name} | {batch} | {1e3 * statistics.median(r['steps']):.1f} | {spread(r['without'])} |"
                    f" {spread(r['with'])} | {spread(r['own'])} | {r['kernels']} |",
                    flush=True,
                )
    for what in ("without", "with", "own"):
        medians = [statistics.median(r[what]) for r in rows]
        near = sum(abs(m - 1) <= 0.1 for m in medians)
        print(f"{what}: {mean_error(medians):.1%} off on average, {near} of {len(medians)} within 10 %")


if __name__ == "__main__":
    main()
