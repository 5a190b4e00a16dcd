"""Writes the results of the benchmark as text."""

import importlib.metadata
import math
import pathlib
import platform
import subprocess

import program

MARK = "<!-- below this line by hand; bench/run.py keeps it -->"
GOALS = {"free": 0.8, "quarter": 0.85, "half": 0.9, "start": 0.1}
MIB = 2**20


def machine():
    cpu = {}
    for row in pathlib.Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines():
        key, _, value = row.partition(":")
        cpu[key.strip()] = value.strip()
    flags = [f for f in cpu.get("flags", "").split() if f.startswith(("avx", "fma", "amx"))]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=program.ROOT
    ).stdout.strip()
    version = program.run("--version", expect=None).stdout.strip()
    return {
        "cpu": cpu.get("model name", platform.processor()),
        "flags": flags,
        "cores": cpu.get("siblings", "?"),
        "kernel": platform.release(),
        "plimsoll": f"{version} ({commit})",
        "tensorflow": importlib.metadata.version("tensorflow-cpu"),
        "keras": importlib.metadata.version("keras"),
    }


def ratio(result, condition):
    mine = result.get(condition) or {}
    return mine["step_seconds"] / result["tensorflow"]["step_seconds"] if "step_seconds" in mine else None


def start_ratio(result):
    mine = (result.get("free") or {}).get("start_seconds")
    return None if mine is None else mine / result["tensorflow"]["start_seconds"]


def memory_ratio(result):
    mine = (result.get("free") or {}).get("peak_bytes")
    return None if mine is None else mine / result["tensorflow"]["peak_bytes"]


def show(value, goal=None):
    if value is None:
        return "does not fit"
    return f"{value:.2f}" + ("" if goal is None or value <= goal else " (!)")


def cells(r):
    tf, free = r["tensorflow"], r["free"]
    smallest = r.get("smallest")
    own = f"{1e3 * free['step_seconds']:.1f}" if "step_seconds" in free else "-"
    peak = f"{free['peak_bytes'] / MIB:.0f}" if "peak_bytes" in free else "-"
    return [
        r["model"],
        str(r["batch"]),
        f"{1e3 * tf['step_seconds']:.1f}",
        own,
        show(ratio(r, "free"), GOALS["free"]),
        f"{tf['peak_bytes'] / MIB:.0f}",
        peak,
        show(memory_ratio(r)),
        f"{show(ratio(r, 'quarter'), GOALS['quarter'])} in {r['quarter']['budget_bytes'] / MIB:.0f}",
        f"{show(ratio(r, 'half'), GOALS['half'])} in {r['half']['budget_bytes'] / MIB:.0f}",
        "none" if smallest is None else f"{smallest / MIB:.0f} ({smallest / tf['peak_bytes']:.2f})",
        f"{tf['start_seconds']:.1f}",
        f"{free['start_seconds']:.2f}" if "start_seconds" in free else "-",
        show(start_ratio(r), GOALS["start"]),
    ]


HEAD = [
    "model",
    "batch",
    "TF step, ms",
    "step, ms",
    "ratio",
    "TF peak, MiB",
    "peak, MiB",
    "ratio",
    "quarter of TF's peak, in MiB",
    "half the live set, in MiB",
    "smallest no slower, MiB",
    "TF start, s",
    "start, s",
    "ratio",
]


def table(results):
    rows = [HEAD, ["---"] * len(HEAD)] + [cells(r) for r in results]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def line(r):
    return "  ".join(f"{h}: {c}" for h, c in zip(HEAD, cells(r)))


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def summary(results):
    out = []
    for name, of in (
        ("memory free", lambda r: ratio(r, "free")),
        ("a quarter of TensorFlow's peak", lambda r: ratio(r, "quarter")),
        ("half the live set", lambda r: ratio(r, "half")),
        ("start to first step", start_ratio),
        ("peak memory, free", memory_ratio),
    ):
        key = {
            "memory free": "free",
            "a quarter of TensorFlow's peak": "quarter",
            "half the live set": "half",
            "start to first step": "start",
        }.get(name)
        values = [v for v in map(of, results) if v is not None]
        if not values:
            out.append(f"- {name}: nothing ran")
            continue
        goal = (
            ""
            if key is None
            else f"; goal {GOALS[key]}, reached by {sum(v <= GOALS[key] for v in values)} of {len(results)}"
        )
        out.append(
            f"- {name}: {geometric_mean(values):.2f}x on average (geometric), {min(values):.2f} to {max(values):.2f}; ran in {len(values)} of {len(results)}{goal}"
        )
    return "\n".join(out)


def write(path, m, results):
    kept = path.read_text().partition(MARK)[2] if path.exists() else "\n"
    path.write_text(f"""# Plimsoll against TensorFlow on a CPU

Made by `{m['command']}` on {m['date']} in {m['minutes']} minutes. Ratios are Plimsoll's number over TensorFlow's, both measured in this run,
with interleaved segments; each is the median of all steps. Below 1, Plimsoll is faster or smaller. (!) marks a missed goal.

- machine: {m['cpu']}, {m['cores']} cores, {' '.join(m['flags'])}; Linux {m['kernel']}; both sides on two threads
- {m['plimsoll']}; TensorFlow {m['tensorflow']} with Keras {m['keras']}, a bare `tf.function` step, `TF_ENABLE_ONEDNN_OPTS=1`
- float32, Adam, synthetic data; TensorFlow's batch is already a tensor, Plimsoll reads each batch from a file

{summary(results)}

{table(results)}

{MARK}{kept}""")
