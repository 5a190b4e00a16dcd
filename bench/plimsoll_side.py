"""Plimsoll's half of the benchmark: times segments of training from the log, and reads memory peaks from the kernel."""

import os
import pathlib
import subprocess
import time

import numpy as np

import program

THREADS = os.environ.get("BENCH_THREADS", "2")
LEVERS = program.LEVERS
WARM_UP = 2  # steps that are not timed: the first one makes the arena's pages resident


class Side:
    def __init__(self, folder, name):
        self.folder, self.model = pathlib.Path(folder), f"{folder}/{name}.keras"
        self.data = f"{folder}/{name}_x.npy,{folder}/{name}_y.npy"
        self.samples = len(np.load(f"{folder}/{name}_y.npy", mmap_mode="r"))
        self.step_guess = {}

    def plan(self, batch, budget=None, forbid=None):
        return program.plan(self.model, batch_size=batch, budget=budget, forbid=forbid, threads=THREADS)

    def fit(self, batch, steps, budget=None):
        """Runs that many steps; returns log events and wall seconds, or the reason of a refusal."""
        log = self.folder / "bench.jsonl"
        log.unlink(missing_ok=True)
        an_epoch = max(1, min(steps, self.samples // batch))
        arguments = program.command(
            "fit",
            self.model,
            "--data",
            self.data,
            "--quiet",
            "--log",
            log,
            *program.options(
                batch_size=batch,
                epochs=-(-steps // an_epoch),
                steps_per_epoch=an_epoch,
                shuffle="false",
                threads=THREADS,
                budget=budget,
            ),
        )
        started = time.time()
        process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        message = process.communicate()[1]
        wall = time.time() - started
        if process.returncode:
            lines = [line for line in message.splitlines() if line.startswith("error")]
            if process.returncode != 3:
                raise SystemExit(f"plimsoll failed ({process.returncode}): {' '.join(map(str, arguments))}\n{message}")
            return {"refused": (lines or ["does not fit"])[0]}
        return {"events": program.read_log(log), "wall": wall}

    def time(self, batch, seconds, budget=None):
        """Runs a segment of steps that takes about that many seconds."""
        guess = self.step_guess.get(batch)
        if guess is None:
            probe = self.fit(batch, 4)
            if "refused" in probe:
                return probe
            guess = self.step_guess[batch] = min(e["seconds"] for e in probe["events"] if e["event"] == "step")
        run = self.fit(batch, WARM_UP + max(4, min(2000, round(seconds / guess))), budget)
        if "refused" in run:
            return run
        program.check_log(run["events"])
        times = [e["seconds"] for e in run["events"] if e["event"] == "step"][WARM_UP:]
        done = run["events"][
            -1
        ]  # the peak is VmHWM, as for TensorFlow; ru_maxrss of a child would include its parent before exec
        return {"times": times, "peak_bytes": done["process_peak_bytes"], "arena_bytes": done["arena_peak_bytes"]}

    def start_seconds(self, batch):
        """Wall seconds of a process that trains one step and exits, minus the logged time of that step."""
        run = self.fit(batch, 1)
        return run["wall"] - next(e["seconds"] for e in run["events"] if e["event"] == "step")
