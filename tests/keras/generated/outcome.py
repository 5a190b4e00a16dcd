"""Runs one drawn case on both sides. The outcome is `works`, `refused` with the program's reasons, or `wrong` with what differs."""

import dataclasses
import re
import traceback

import keras
import numpy as np

import compare
import keras_side
import one_step
import program
import runs


@dataclasses.dataclass
class Outcome:
    kind: str
    name: str
    text: str
    status: str
    reasons: tuple = ()


def reasons_of(message):
    """The lines of a P205 error, without names of layers and without numbers; () if the message is another error."""
    if "error P205" not in message:
        return ()
    lines = message.split("error P205", 1)[1].splitlines()[1:]
    found = []
    for line in lines:
        if not line.startswith("  ") or line.lstrip().startswith("try:"):
            break
        line = re.sub(r"^(layer '[^']*'|optimizer|loss|metric)[^:]*?(\(\w+\))?(, \w+ \(\w+\))*(: |$)", "", line.strip(), count=1)
        line = re.sub(r"layer '[^']*'", "a layer", line)
        found.append(re.sub(r"-?\d+(\.\d+)?(e-?\d+)?", "N", line) or "the class")
    return tuple(dict.fromkeys(found))


def check_layer(folder, case):
    if not case.random:
        one_step.check_step(folder, case.model, case.x, case.y, "mse")
        return
    # Random numbers differ from Keras's: outputs of inference are compared, and training must run as planned.
    keras_side.randomize(case.model)
    case.model.compile(keras.optimizers.SGD(0.01), "mse")
    path = folder / "model.keras"
    case.model.save(path)
    got = program.predict(folder, path, program.arrays(folder, prefix="only_", x=case.x), batch_size=len(case.x))
    compare.close("output", case.name, got, np.array(case.model(case.x, training=False)), compare.OUTPUT)
    data = program.arrays(folder, x=case.x, y=case.y)
    trained = program.fit(folder, path, data, batch_size=len(case.x), epochs=1, steps=1)
    assert np.all(np.isfinite(trained.losses)), f"{case.name}: the loss is not finite"
    keras_side.load(trained.saved)


def check_loss(folder, case):
    one_step.check_step(folder, case.model, case.x, case.y, case.made)


def check_metric(folder, case):
    model, batch = keras_side.randomize(case.model), 5  # the last batch has two samples
    model.compile("sgd", case.loss, metrics=[case.made], run_eagerly=True)
    path = folder / "model.keras"
    model.save(path)
    want = model.evaluate(case.x, case.y, batch_size=batch, verbose=0, return_dict=True)
    got = program.evaluate(path, program.arrays(folder, x=case.x, y=case.y), batch_size=batch)
    if got.get("skipped_metrics"):
        raise program.Failed("error P205:\n  skipped with a warning")
    for key in want.keys() - {"loss"}:
        value = np.array(want[key], np.float64)
        compare.close("metric", case.name, np.array(got["metrics"][key], np.float64), value, compare.LOSS, scale=max(1e-3, compare.largest(value)))
    assert set(got["metrics"]) == set(want) - {"loss"}


def check_optimizer(folder, case):
    model = keras_side.randomize(case.model)
    model.compile(case.made, "mse")
    runs.check_run(folder, case.name, model, case.x, case.y, batch=4, epochs=2, few=True)


CHECKS = {"layers": check_layer, "losses": check_loss, "metrics": check_metric, "optimizers": check_optimizer}


def run(kind, case, folder):
    folder.mkdir(parents=True, exist_ok=True)
    try:
        CHECKS[kind](folder, case)
    except program.Failed as e:
        reasons = reasons_of(str(e))
        if reasons:
            return Outcome(kind, case.name, case.text, "refused", reasons)
        return Outcome(kind, case.name, case.text, "wrong", (str(e),))
    except AssertionError as e:
        if re.search(r"largest magnitude (nan|\S+e\+[23]\d)", str(e)):  # Keras's own gradient is unset memory
            return Outcome(kind, case.name, case.text, "refused", ("Keras's own result is not a number",))
        return Outcome(kind, case.name, case.text, "wrong", (str(e),))
    except Exception:  # neither side should raise anything else
        return Outcome(kind, case.name, case.text, "wrong", (traceback.format_exc(limit=3),))
    return Outcome(kind, case.name, case.text, "works")
