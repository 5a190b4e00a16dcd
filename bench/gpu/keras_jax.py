#!/usr/bin/env python3
"""Times training steps of Keras on JAX and of Plimsoll on one GPU, from the same JSON files, and prints a table of ratios.

  bench/gpu/keras_jax.py [--ours PROGRAM] [--folder build-models] [--precision mixed_bfloat16] [--jobs 4] MODEL:BATCH...

A step of Keras is its own `train_step`, compiled by jax.jit with its state donated, on synthetic data that is already on the device:
fit() without its copy of the batch. ms is the median time per step, each measured over 10 steps without synchronisation in between;
live_mib is JAX's peak of bytes in use. PROGRAM is step_bench, which measures Plimsoll the same way; it runs just before Keras's steps.
XLA takes a minute or more per model, so JOBS models compile at a time. A model is timed while no other one compiles or runs (a lock on
a file in FOLDER). All numbers are printed as JSON lines first, then the table. A model that fails is a row with its error.
"""
import argparse
import fcntl
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

TOGETHER = 10  # steps between two synchronisations
STRETCHES = 5


def with_precision(config, precision):
    """Returns a copy of a model's configuration in which every layer has the given dtype policy."""
    if isinstance(config, dict):
        if config.get("class_name") == "DTypePolicy":
            return dict(config, config={"name": precision})
        return {key: with_precision(value, precision) for key, value in config.items()}
    return [with_precision(value, precision) for value in config] if isinstance(config, list) else config


def compiled_step(path, batch, precision):
    """Returns (compiled step, its state, a batch) of the model in a file."""
    os.environ["KERAS_BACKEND"] = "jax"
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import jax
    import keras
    import numpy as np

    keras.mixed_precision.set_global_policy(precision)
    model = keras.models.model_from_json(json.dumps(with_precision(json.loads(path.read_text()), precision)))
    model.compile(keras.optimizers.Adam(1e-3), "sparse_categorical_crossentropy")
    model.optimizer.build(model.trainable_variables)
    rng = np.random.default_rng(0)
    x = jax.device_put(rng.random((batch,) + model.input_shape[1:], dtype=np.float32))
    y = jax.device_put(rng.integers(0, model.output_shape[-1], (batch,) + model.output_shape[1:-1]).astype(np.int32))
    model._symbolic_build(data_batch=(x, y))
    state = tuple([v.value for v in variables] for variables in (
        model.trainable_variables, model.non_trainable_variables, model.optimizer.variables, model.metrics_variables))
    return jax.jit(model.train_step, donate_argnums=0).lower(state, (x, y)).compile(), state, (x, y)


def time_keras(path, batch, precision, lock):
    """Compiles beside other models; on return this process holds the lock alone."""
    fcntl.flock(lock, fcntl.LOCK_SH)
    start = time.time()
    try:
        step, state, data = compiled_step(path, batch, precision)
        compiled = time.time() - start
    finally:
        fcntl.flock(lock, fcntl.LOCK_UN)
        fcntl.flock(lock, fcntl.LOCK_EX)
    import jax

    times = []
    for _ in range(1 + STRETCHES):
        begin = time.time()
        for _ in range(TOGETHER):
            logs, state = step(state, data)
        jax.block_until_ready((logs, state))
        times.append((time.time() - begin) * 1e3 / TOGETHER)
    peak = jax.local_devices()[0].memory_stats()["peak_bytes_in_use"] / 2**20
    return dict(ms=statistics.median(times[1:]), compiled_s=compiled, live_mib=peak)


def time_ours(program, path, batch, precision):
    ended = subprocess.run([program, str(path), str(batch), precision, "--steps", "50"], capture_output=True, text=True, timeout=240)
    lines = [line for line in ended.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else dict(error=(ended.stderr.strip() or f"exit code {ended.returncode}")[-300:])


def here(o):
    """Times one model in this process and prints the JSON lines of both sides."""
    name, batch = o.models[0].split(":")
    path = o.folder / f"{name}.json"
    about = dict(work=name, batch=int(batch), precision=o.precision)
    with open(o.folder / "keras_jax.lock", "a") as lock:
        try:
            keras = time_keras(path, int(batch), o.precision, lock)
        except Exception as e:  # a failure of a peer is also a result
            keras = dict(error=f"{type(e).__name__}: {e}"[:300])
        print(json.dumps(dict(about, peer="keras-jax", **keras)), flush=True)
        if o.ours:
            print(json.dumps(dict(about, peer="ours", **time_ours(o.ours, path, int(batch), o.precision))), flush=True)


def table(lines):
    sides = {}
    for line in lines:
        sides.setdefault((line["work"], line["batch"]), {})[line["peer"]] = line
    print("\n| model | batch | Plimsoll, ms | Keras on JAX, ms | ratio | memory of our process, MiB | live in JAX, MiB |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for (work, batch), of in sides.items():
        ours, keras = of.get("ours", {}), of["keras-jax"]
        cell = lambda line, key: f"{line[key]:.2f}" if key in line else line.get("error", "–")[:60]
        ratio = f"**{ours['ms'] / keras['ms']:.2f}**" if "ms" in ours and "ms" in keras else "–"
        memory = [f"{line[key]:.0f}" if key in line else "–" for line, key in ((ours, "driver_mib"), (keras, "live_mib"))]
        print(f"| {work} | {batch} | {cell(ours, 'ms')} | {cell(keras, 'ms')} | {ratio} | {memory[0]} | {memory[1]} |")


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--ours", help="the program step_bench; without it only Keras is timed")
    a.add_argument("--folder", type=pathlib.Path, default="build-models")
    a.add_argument("--precision", default="mixed_bfloat16")
    a.add_argument("--jobs", type=int, default=4)
    a.add_argument("--here", action="store_true", help=argparse.SUPPRESS)  # in this process, not in one of its own
    a.add_argument("models", nargs="+", metavar="MODEL:BATCH")
    o = a.parse_args()
    if o.here:
        return here(o)
    command = [sys.executable, __file__, "--here", "--folder", str(o.folder), "--precision", o.precision]
    command += ["--ours", o.ours] if o.ours else []
    running, lines = [], []

    def collect(wait):
        for process in list(running):
            if wait or process.poll() is not None:
                out, _ = process.communicate()
                print(out, end="", flush=True)
                lines.extend(json.loads(line) for line in out.splitlines() if line.startswith("{"))
                running.remove(process)

    for model in o.models:
        while len(running) >= o.jobs:
            collect(wait=False)
            time.sleep(0.1)
        running.append(subprocess.Popen(command + [model], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
    collect(wait=True)
    table(lines)


if __name__ == "__main__":
    main()
