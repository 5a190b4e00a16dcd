"""`plimsoll run`, `plan` and `check` of a Keras script that is not changed."""

import argparse
import os
import pathlib
import runpy
import sys

from plimsoll import errors, hook

_USAGE = {
    "run": "runs a Keras script; its fit, evaluate and predict run in Plimsoll, inside the budget",
    "plan": "runs a Keras script up to its first fit, and prints the plan of that fit",
    "check": "runs a Keras script up to its first fit; trains a few steps of it in Keras and in Plimsoll, and compares them",
}
# These flags are Plimsoll's after the script's name too. All others are the script's there.
_ANYWHERE = ("--budget", "--host-budget", "--no-fallback")


def main(verb, arguments):
    """The exit status of `plimsoll VERB ARGUMENTS`."""
    own, script, rest = _divide(verb, arguments)
    path = pathlib.Path(script)
    if not path.is_file():
        print(f"error P202: {script}: there is no such file", file=sys.stderr)
        return 2
    options = {name: value for name, value in vars(own).items() if name != "no_fallback" and value is not None}
    _keep_gpu()
    sys.argv = [script, *rest]
    sys.path.insert(0, str(path.resolve().parent))
    try:
        hook.install(fallback=not own.no_fallback, stop_at_fit={"plan": _plan, "check": _check}.get(verb), **options)
        runpy.run_path(script, run_name="__main__")
    except errors.PlimsollError as error:
        print(f"error {error}", file=sys.stderr)
        return int(error.code[1])
    if verb != "run":
        print(f"plimsoll: {script} ended without a call of fit", file=sys.stderr)
        return 2
    return 0


def _divide(verb, arguments):
    """Plimsoll's flags, the script, and the script's own arguments."""
    parser = argparse.ArgumentParser(prog=f"plimsoll {verb}", description=_USAGE[verb], allow_abbrev=False,
                                     usage=f"plimsoll {verb} [FLAG...] SCRIPT.py [ARGUMENT...] [--budget SIZE]",
                                     epilog=f"example: plimsoll {verb} train.py --epochs 3 --budget 2GiB")
    parser.add_argument("--budget", metavar="SIZE", help="memory of the whole process from the call of fit on: 512MiB, 2GiB")
    parser.add_argument("--host-budget", metavar="SIZE", help="on a GPU: host memory for offloaded values")
    parser.add_argument("--device", help="auto, cpu, gpu, gpu:1; for plan also a GPU elsewhere: 8g, rtx-4090-24g")
    parser.add_argument("--precision", choices=("float32", "mixed_bfloat16", "mixed_float16"))
    parser.add_argument("--micro-batch", type=int, metavar="N")
    parser.add_argument("--batchnorm", choices=("exact", "per-micro-batch"))
    parser.add_argument("--allow", type=lambda text: text.split(","), metavar="LEVERS")
    parser.add_argument("--forbid", type=lambda text: text.split(","), metavar="LEVERS")
    parser.add_argument("--threads", type=int, metavar="N")
    parser.add_argument("--seed", type=int, metavar="N", help="of dropout; the script's own seeds set everything else")
    parser.add_argument("--no-fallback", action="store_true", help="end with status 2 where Plimsoll cannot run a call")
    at = next((i for i, text in enumerate(arguments) if text.endswith(".py")), None)
    if at is None:
        parser.parse_args(arguments)  # --help
        parser.error("the following arguments are required: SCRIPT.py")
    before, script, after = arguments[:at], arguments[at], arguments[at + 1 :]
    theirs, ours = [], []
    while after:
        text = after.pop(0)
        if text == "--":
            theirs += after
            break
        name = text.split("=", 1)[0]
        if name not in _ANYWHERE:
            theirs.append(text)
            continue
        ours.append(text)
        if name != "--no-fallback" and "=" not in text and after:
            ours.append(after.pop(0))
    return parser.parse_args([*before, *ours]), script, theirs


def _keep_gpu():
    """JAX would take three quarters of a GPU with its first array."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def _plan(call):
    plan = call.plan()
    print(plan, end="", flush=True)
    raise SystemExit(0 if plan.fits else 3)


def _check(call):
    print(call.check(), flush=True)
    raise SystemExit(0)
