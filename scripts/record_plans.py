#!/usr/bin/env python3
"""Records the plans of many models, batches, budgets and flags, and compares two such records.

    scripts/record_plans.py PROGRAM OUT.json [--only TEXT] [--jobs N]    plans every combination (takes minutes; prints each)
    scripts/record_plans.py --compare A.json B.json                      prints the differences; exits with 1 if there are any
    scripts/record_plans.py --list                                       lists the combinations

A record contains the bytes, seconds and levers of a plan and, per phase, the order of nodes with their kernels and workspaces.
It does not contain the places of values: two plans that differ only in these count as equal.
"""

import argparse
import concurrent.futures
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests/golden"
CPU, CARDS = "cpu", ("rtx-4090-24g", "t4-16g", "h100-80g")
COMPILED = ["--loss", "sparse_categorical_crossentropy", "--optimizer", "adam"]
NO_BUDGET_TO_SPEAK_OF = 12 * 1024


def data(name):
    return f"{GOLDEN}/{name}_x.npy,{GOLDEN}/{name}_y.npy"


# Each row: model, flags, and the budgets in MiB per device. Some budgets need recompute, offload and micro-batches together, and some
# are too small for any plan.
PLANS = [
    ("seed-1", [], {CPU: [NO_BUDGET_TO_SPEAK_OF, 45, 39, 34], "t4-16g": [NO_BUDGET_TO_SPEAK_OF, 510]}),
    ("seed-2", ["--batch-size", "128"], {CPU: [NO_BUDGET_TO_SPEAK_OF, 250, 120, 46, 30]}),
    ("seed-2", ["--batch-size", "128"], {card: [NO_BUDGET_TO_SPEAK_OF, 800, 600, 530] for card in CARDS}),
    ("seed-2", ["--batch-size", "128", "--forbid", "micro-batch"], {CPU: [350, 250], "rtx-4090-24g": [850, 720, 600]}),
    ("seed-2", ["--batch-size", "128", "--forbid", "micro-batch,recompute"], {"rtx-4090-24g": [850, 750], "t4-16g": [700]}),
    ("seed-2", ["--batch-size", "128", "--allow", "recompute"], {CPU: [300]}),
    ("seed-2", ["--batch-size", "128", "--micro-batch", "48"], {CPU: [NO_BUDGET_TO_SPEAK_OF, 150, 100], "h100-80g": [640]}),
    ("seed-2", ["--batch-size", "24", "--gradient-accumulation-steps", "4"], {CPU: [NO_BUDGET_TO_SPEAK_OF, 80]}),
    ("seed-2", ["--batch-size", "auto"], {CPU: [700], "rtx-4090-24g": [2000]}),
    ("seed-2", ["--batch-size", "128", "--forbid", "offload", "--host-budget", "0"], {"rtx-4090-24g": [560]}),
    ("seed-2", ["--batch-size", "128", "--precision", "auto"], {card: [560] for card in CARDS}),
    ("seed-3", ["--batch-size", "16", "--precision", "mixed_float16"], {"t4-16g": [NO_BUDGET_TO_SPEAK_OF, 500]}),
    ("fashion-cnn", ["--batch-size", "64"], {CPU: [NO_BUDGET_TO_SPEAK_OF, 36, 34], "rtx-4090-24g": [484]}),
    ("fashion-cnn", ["--batch-size", "64", "--forbid", "prefetch"], {CPU: [37]}),
    ("mlp.keras", ["--batch-size", "5", "--data", data("mlp")], {CPU: [40]}),
    ("mlp.keras", ["--batch-size", "5", "--micro-batch", "2", "--data", data("mlp"), "--validation-split", "0.2"], {CPU: [40]}),
    ("cnn.keras", ["--batch-size", "8", "--data", data("cnn"), "--validation-split", "0.3"], {CPU: [40, 33], "t4-16g": [900]}),
    ("cnn.keras", ["--batch-size", "256", "--data", data("cnn"), "--validation-data", data("cnn")], {CPU: [40]}),
    ("resnet.keras", ["--batch-size", "256"], {CPU: [NO_BUDGET_TO_SPEAK_OF, 36, 34]}),
    ("resnet.keras", ["--batch-size", "256", "--batchnorm", "per-micro-batch"], {CPU: [35], "h100-80g": [485]}),
    ("resnet.keras", ["--batch-size", "9", "--micro-batch", "4", "--batchnorm", "per-micro-batch", "--data", data("resnet")],
     {CPU: [40]}),
    ("resnet.keras", ["--batch-size", "8", "--micro-batch", "4"], {CPU: [40]}),
    ("oldest.keras", ["--batch-size", "64"], {CPU: [NO_BUDGET_TO_SPEAK_OF, 34], "h100-80g": [NO_BUDGET_TO_SPEAK_OF]}),
    ("resnet50", COMPILED + ["--batch-size", "32"], {CPU: [NO_BUDGET_TO_SPEAK_OF, 440], "rtx-4090-24g": [1000]}),
    ("resnet50", COMPILED + ["--batch-size", "32", "--batchnorm", "per-micro-batch"], {CPU: [420]}),
    ("resnet50", COMPILED + ["--batch-size", "32", "--precision", "auto"], {"h100-80g": [900]}),
    ("mobilenet_v2", COMPILED + ["--batch-size", "32"], {CPU: [150], "t4-16g": [580]}),
]
# Evaluation and prediction cannot save a plan, so the record contains their results, or their error if the budget is too small.
RUNS = [
    ("evaluate", name, ["--data", data(name), "--batch-size", batch], budget)
    for name, batch in (("cnn", "5"), ("mlp", "64"), ("resnet", "8"))
    for budget in (200, 20)
] + [
    ("predict", name, ["--data", f"{GOLDEN}/{name}_x.npy", "--batch-size", batch], budget)
    for name, batch in (("cnn", "5"), ("resnet", "8"))
    for budget in (200, 20)
]


def combinations():
    """Name -> (command, model, flags)."""
    found = {}
    for model, flags, budgets in PLANS:
        for device, sizes in budgets.items():
            for size in sizes:
                common = ["--device", device, "--budget", f"{size}MiB"]
                if device != CPU and "--host-budget" not in flags:  # the default depends on the free memory
                    common += ["--host-budget", "64GiB"]
                words = [pathlib.Path(word).name if str(GOLDEN) in word else word for word in flags]
                found[" ".join(["plan", model, *words, device, f"{size}MiB"])] = ("plan", model, flags + common)
    for command, name, flags, size in RUNS:
        words = ["cpu" if str(GOLDEN) in word else word for word in flags]
        found[" ".join([command, name, *words, f"{size}MiB"])] = (
            command, f"{name}.keras", flags + ["--device", CPU, "--budget", f"{size}MiB"])
    return found


def model_file(model, folder):
    if model.endswith(".keras"):
        return str(GOLDEN / model)
    golden = GOLDEN / "model" / f"{model}.json"
    if not golden.exists():
        return model
    path = pathlib.Path(folder) / f"{model}.json"
    content = json.loads(golden.read_text())
    content = content[0] if isinstance(content, list) else content
    path.write_text(json.dumps(content["config"]))
    return str(path)


NODE = re.compile(r"^  %[^=]*= (\w+)\(")  # nodes of a phase's own graph; bodies of fused nodes are indented further
LAYER = re.compile(r'.*layer="([^"]*)"')


def nodes_of(phase):
    """One text per node, in execution order: op, layer, kernel and workspace."""
    heads = []
    for line in phase["graph"].split("\n"):
        if match := NODE.match(line):
            layer = LAYER.match(line)
            heads.append(f"{match.group(1)} {layer.group(1) if layer else '-'}")
    planned = []
    for node in phase["nodes"]:
        if isinstance(node, dict):
            planned.append((node["kernel"], node["workspace_bytes"], node["seconds"]))
        else:
            planned.append((node[0], node[2], node[3]))
    if len(heads) != len(planned):
        raise SystemExit(f"phase {phase['name']}: {len(heads)} nodes in its graph, but {len(planned)} planned nodes")
    return [f"{head} | {kernel} | {workspace} | {seconds!r}" for head, (kernel, workspace, seconds) in zip(heads, planned)]


def phase_record(phase):
    shown = ("name", "samples", "arena_bytes", "live_set_bytes", "seconds", "primitives", "peak_node")
    beside = sum(memory[1] for memory in phase["beside"]) if "beside" in phase else phase["host_bytes"]
    return {key: phase[key] for key in shown} | {"host_bytes": beside, "nodes": nodes_of(phase)}


def plan_record(saved, shown):
    record = {key: shown[key] for key in (
        "fits", "batch", "precision", "peak_bytes", "arena_bytes", "overhead_bytes", "data_bytes", "memories", "fixed_bytes",
        "bytes_per_sample", "live_set_bytes", "least_bytes", "categories", "levers", "step_seconds") if key in shown}
    record["candidates"] = shown["solver"]["candidates"]
    if saved is not None:
        record["persistent_bytes"] = saved["persistent_bytes"]
        record["phases"] = [phase_record(phase) for phase in saved["phases"]]
    return record


def record_one(program, command, model, flags, folder):
    arguments = [program, command, model_file(model, folder), *flags, "--json", "--quiet", "--threads", "2"]
    result = pathlib.Path(folder) / ("result.npy" if command == "predict" else "result.plan")
    if command == "plan":
        arguments += ["--save", str(result)]
    elif command == "predict":
        arguments += ["--output", str(result)]
    ended = subprocess.run(arguments, capture_output=True, text=True, cwd=ROOT, timeout=900)
    shown = json.loads(ended.stdout) if ended.stdout.strip() else {}
    record = {"exit_code": ended.returncode}
    if "error" in shown:
        record["error"] = shown["error"]
    if command == "plan" and "solver" in shown:
        record |= plan_record(json.loads(result.read_text()) if result.exists() else None, shown)
    elif command == "predict" and result.exists():
        record["sha256"] = hashlib.sha256(result.read_bytes()).hexdigest()
    elif command == "evaluate" and "error" not in shown:
        record["result"] = shown
    if ended.returncode and "error" not in shown:
        record["stderr"] = ended.stderr
    return json.loads(json.dumps(record).replace(folder + "/", "").replace(str(ROOT) + "/", ""))


def record(program, out, only, jobs):
    wanted = {name: what for name, what in combinations().items() if only in name}

    def one(item):
        with tempfile.TemporaryDirectory() as folder:
            start = time.monotonic()
            found = record_one(program, *item[1], folder)
        print(f"{time.monotonic() - start:6.1f} s  {item[0]}", flush=True)
        return item[0], found

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        records = dict(pool.map(one, wanted.items()))
    pathlib.Path(out).write_text(json.dumps(records, indent=1) + "\n")
    planned = [r for r in records.values() if "levers" in r]
    levers = sorted({lever["name"] for r in planned for lever in r["levers"]})
    print(f"{len(records)} combinations, {len(planned)} plans, {sum('error' in r for r in records.values())} errors; "
          f"levers used: {', '.join(levers)}")


def differences(then, now, path=""):
    """Lines that say where two records differ."""
    if isinstance(then, dict) and isinstance(now, dict):
        for key in sorted(then.keys() | now.keys()):
            if key not in then or key not in now:
                yield f"{path}/{key}: only in the {'second' if key not in then else 'first'}"
            else:
                yield from differences(then[key], now[key], f"{path}/{key}")
    elif isinstance(then, list) and isinstance(now, list):
        if len(then) != len(now):
            yield f"{path}: {len(then)} entries, then {len(now)}"
        for i, (a, b) in enumerate(zip(then, now)):
            yield from differences(a, b, f"{path}[{i}]")
    elif then != now:
        yield f"{path}: {then} -> {now}"


def compare(first, second):
    then, now = (json.loads(pathlib.Path(path).read_text()) for path in (first, second))
    changed = 0
    for name in sorted(then.keys() | now.keys()):
        if name not in then or name not in now:
            print(f"{name}: only in {first if name in then else second}")
            changed += name in then
            continue
        lines = list(differences(then[name], now[name]))
        changed += bool(lines)
        if lines:
            print(name, *(f"\n  {line}" for line in lines[:12]), f"\n  and {len(lines) - 12} more" if len(lines) > 12 else "", sep="")
    print(f"{len(then)} combinations compared, {changed} differ")
    return 1 if changed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?")
    parser.add_argument("out", nargs="?")
    parser.add_argument("--compare", nargs=2, metavar=("A.json", "B.json"))
    parser.add_argument("--only", default="", help="only combinations whose name contains this text")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(combinations()))
        return 0
    if arguments.compare:
        return compare(*arguments.compare)
    if not arguments.program or not arguments.out:
        parser.error("PROGRAM and OUT.json, or --compare A.json B.json")
    record(str(pathlib.Path(arguments.program).resolve()), arguments.out, arguments.only, arguments.jobs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
