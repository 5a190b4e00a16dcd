#!/usr/bin/env python3
"""Reads the plans and logs of the demo. Each call prints one answer to stdout, and exits with 1 if a check fails."""

import json
import sys

MIB = 1024 * 1024
# Micro-batches add the same terms in another order, so losses agree up to float32 rounding: a few units of 2^-24 per step.
LOSS_BOUND = 1e-5


def size(count):
    """A size in the format of plimsoll: three significant digits."""
    value, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while abs(value) >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    if units[0] == "B":
        return f"{int(count)} B"
    return f"{value:.{2 if abs(value) < 10 else 1 if abs(value) < 100 else 0}f} {units[0]}"


def events(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def event(path, name):
    found = [e for e in events(path) if e["event"] == name]
    if not found:
        sys.exit(f"{path} has no event '{name}'")
    return found[-1]


def get(path, key):
    with open(path, encoding="utf-8") as file:
        print(json.load(file)[key])


def limit(needs, least):
    """Half of the bytes needed without levers, in whole MiB, but at least about 1.1 times the smallest plan with levers."""
    print(f"{max(int(needs) // 2, -(-int(least) * 11 // 10)) // MIB}MiB")


def levers(path):
    pulled = event(path, "plan").get("levers", [])
    print(", ".join(f"{lever['name']} ({lever['effect']})" for lever in pulled) or "none")


def losses(free_path, planned_path):
    free, planned = ([e["loss"] for e in events(path) if e["event"] == "step"] for path in (free_path, planned_path))
    if not free or len(free) != len(planned):
        sys.exit(f"{len(free)} and {len(planned)} steps were logged")
    print(f"  {'step':>4}  {'memory free':>12}  {'planned':>12}  {'difference':>10}")
    worst = 0.0
    for step, (a, b) in enumerate(zip(free, planned), 1):
        difference = abs(a - b) / max(abs(a), 1e-30)
        worst = max(worst, difference)
        print(f"  {step:>4}  {a:>12.6f}  {b:>12.6f}  {difference:>10.1e}")
    if not worst <= LOSS_BOUND:
        sys.exit(f"the largest relative difference is {worst:.1e}, above {LOSS_BOUND:.0e}")


def peaks(path):
    plan, done = event(path, "plan"), event(path, "done")
    arena, process, budget = done["arena_peak_bytes"], done["process_peak_bytes"], done["budget_bytes"]
    print()
    print(f"  {'':8}  {'planned':>12}  {'measured':>12}")
    print(f"  {'arena':8}  {size(done['arena_planned_bytes']):>12}  {size(arena):>12}  "
          f"{'equal to the byte' if arena == done['arena_planned_bytes'] else 'NOT EQUAL'}")
    print(f"  {'process':8}  {size(plan['peak_bytes']):>12}  {size(process):>12}  of a budget of {size(budget)}")
    if arena != done["arena_planned_bytes"] or process > budget:
        sys.exit(1)


def accuracy(path, least):
    with open(path, encoding="utf-8") as file:
        metrics = json.load(file)["metrics"]
    value = next(v for name, v in metrics.items() if "accuracy" in name)
    print(f"Test accuracy: {100 * value:.2f} %")
    if not value >= float(least):
        sys.exit(1)


COMMANDS = {"size": lambda count: print(size(int(count))), "get": get, "limit": limit, "levers": levers, "losses": losses,
            "peaks": peaks, "accuracy": accuracy, "done": lambda path, key: print(event(path, "done")[key])}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
