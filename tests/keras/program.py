"""Runs the program under test and reads its output. This file does not use Keras.

The program is $PLIMSOLL, or build/plimsoll. Every training run of the test suite goes through `fit`, which always asserts:
measured arena == planned arena, process peak within the budget, log complete.
"""

import dataclasses
import json
import os
import pathlib
import shlex
import subprocess

import numpy as np

os.environ.setdefault("PLIMSOLL_CALIBRATION", "none")  # a calibration of this machine would change the predicted times

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = shlex.split(os.environ.get("PLIMSOLL", str(ROOT / "build" / "plimsoll")))
LEVERS = "recompute,micro-batch,prefetch"  # all levers: forbidding them gives the plan without levers
TIMEOUT = float(os.environ.get("PLIMSOLL_TIMEOUT", "300"))


class Failed(AssertionError):
    """The program did not exit as expected; the message is the program's."""


@dataclasses.dataclass
class Ended:
    code: int
    stdout: str
    stderr: str

    def json(self):
        return json.loads(self.stdout)


@dataclasses.dataclass
class Trained:
    saved: pathlib.Path
    events: list
    ended: Ended

    def of(self, kind):
        return [e for e in self.events if e["event"] == kind]

    @property
    def losses(self):
        return np.array([e["loss"] for e in self.of("step")], np.float64)

    @property
    def seconds(self):
        return [e["seconds"] for e in self.of("step")]

    @property
    def plan(self):
        return self.of("plan")[0]

    @property
    def done(self):
        return self.events[-1]


def command(*arguments):
    return PROGRAM + [str(a) for a in arguments]


def run(*arguments, expect=0, cwd=None, prefix=(), env=None, timeout=TIMEOUT):
    """Runs the program; fails unless it exits with `expect` (None: any code)."""
    everything = {**os.environ, "NO_COLOR": "1", **(env or {})}
    p = subprocess.run(
        list(prefix) + command(*arguments), capture_output=True, text=True, cwd=cwd, env=everything, timeout=timeout
    )
    if expect is not None and p.returncode != expect:
        raise Failed(
            f"exit {p.returncode}, expected {expect}\n  {shlex.join(command(*arguments))}\n{p.stdout}{p.stderr}"
        )
    return Ended(p.returncode, p.stdout, p.stderr)


def read_log(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]


def check_log(events, steps=None):
    """Asserts what must be true for every finished run."""
    assert events[0]["event"] == "plan", events[0]
    done = events[-1]
    assert done["event"] == "done", f"the log ends in {done}"
    assert done["arena_planned_bytes"] == done["arena_peak_bytes"], done
    assert 0 < done["process_peak_bytes"] <= done["budget_bytes"], done
    assert done["process_peak_counted_by"] == "the operating system (VmHWM)", done
    if steps is not None:
        assert done["steps"] == steps, done
        assert sum(e["event"] == "step" for e in events) == steps
    assert all(e["seconds"] > 0 for e in events if e["event"] == "step")


def options(**named):
    """batch_size=8 -> --batch-size 8; None is left out."""
    out = []
    for key, value in named.items():
        if value is None:
            continue
        out.append("--" + key.replace("_", "-"))
        if value is not True:
            out.append(str(value))
    return out


def fit(folder, model, data, *flags, name="out", ending=".keras", steps=None, prefix=(), **named):
    """Runs one training without shuffling; returns the saved file and the checked log."""
    saved, log = pathlib.Path(folder) / f"{name}{ending}", pathlib.Path(folder) / f"{name}.jsonl"
    named = {"shuffle": "false", "threads": 2, **named}
    ended = run("fit", model, "--data", data, "--save", saved, "--log", log, *options(**named), *flags, prefix=prefix)
    events = read_log(log)
    check_log(events, steps)
    assert saved.exists()
    return Trained(saved, events, ended)


def predict(folder, model, data, *flags, **named):
    out = pathlib.Path(folder) / "predictions.npy"
    run("predict", model, "--data", data, "--output", out, *options(**{"threads": 2, **named}), *flags)
    return np.load(out)


def evaluate(model, data, *flags, **named):
    return run("evaluate", model, "--data", data, "--json", *options(**{"threads": 2, **named}), *flags).json()


def plan(model, *flags, expect=0, **named):
    """The plan alone; tests of what `plan` advises run the command without --brief."""
    return run("plan", model, "--json", "--brief", *options(**named), *flags, expect=expect).json()


def arrays(folder, prefix="", **named):
    """Writes each array as .npy and returns --data's value: x=..., y=... -> "x.npy,y.npy"."""
    paths = []
    for key, value in named.items():
        if value is None:
            continue
        paths.append(pathlib.Path(folder) / f"{prefix}{key}.npy")
        np.save(paths[-1], value)
    return ",".join(map(str, paths))


def archive(folder, name="data.npz", **named):
    path = pathlib.Path(folder) / name
    np.savez(path, **named)
    return path
