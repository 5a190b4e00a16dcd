"""Keras and Plimsoll side by side, on the user's own model and data."""

import itertools
import time

import keras
import numpy as np
from keras.src import tree

from plimsoll import errors, feed, guard, hook, loop, memory, own_step, settings, tensorflow_names


class Check:
    """What check() found. It prints as a table.

    `losses`: a pair (Keras, Plimsoll) per step. `weights`: the largest difference of each weight after the steps, relative
    to the largest change that Keras made to it. `memory` and `seconds`: (Keras, Plimsoll); the memory is the growth of
    the process, the seconds are those of the steps after the first.
    """

    def __init__(self, name, losses, weights, memory_used, seconds, notes):
        self.name = name
        self.losses = losses
        self.weights = weights
        self.memory = memory_used
        self.seconds = seconds
        self.notes = notes

    @property
    def largest_loss_difference(self):
        return max(abs(a - b) / max(abs(a), 1e-12) for a, b in self.losses)

    def __str__(self):
        lines = [f"{self.name}: {len(self.losses)} steps from the same weights", f"{'':24}{'Keras':>14}{'Plimsoll':>14}{'difference':>14}"]
        for i, (ours, theirs) in enumerate(self.losses, 1):
            lines.append(f"{f'loss of step {i}':24}{ours:14.6g}{theirs:14.6g}{abs(ours - theirs) / max(abs(ours), 1e-12):14.1e}")
        if all(self.memory):
            lines.append(f"{'memory taken':24}" + "".join(f"{memory.format_bytes(b):>14}" for b in self.memory))
        if all(self.seconds):
            lines.append(f"{'seconds per step':24}" + "".join(f"{s:14.4g}" for s in self.seconds))
        worst = sorted(self.weights.items(), key=lambda item: -item[1])[:3]
        lines += [f"weight {name}: differs by {value:.1e} of its largest change" for name, value in worst]
        return "\n".join(lines + [f"note: {note}" for note in self.notes])

    __repr__ = __str__


def check(model, x=None, y=None, batch_size=None, sample_weight=None, class_weight=None, steps=3, **options):
    """Trains a few steps in Plimsoll and in Keras, from the same weights on the same batches, and compares them.

    The model is unchanged afterwards. Data are anything that `model.fit` takes; they are not shuffled.
    """
    model._assert_compile_called("check")
    data = feed.Feed(x, y, sample_weight, batch_size, None, False, class_weight)
    batches = [tuple(item[2:]) for item in itertools.islice(data.batches(), steps)]
    data.reset()
    run, tie, _ = loop.start_tied(model, data, None, [], settings.complete(options))
    before = _values(model, tie)
    try:
        ours = _in_plimsoll(run, tie, batches)
        trained = {variable.path: tie.held(variable) for variable in model.weights if tie.holds(variable)}
        del run
        _restore(model, before)
        theirs = _in_keras(model, batches)
        differences = _differences(model.weights, before, trained)
    finally:
        _restore(model, before)
    pairs = list(zip(theirs.losses, ours.losses, strict=True))
    return Check(model.name, pairs, differences, (theirs.bytes, ours.bytes), (theirs.seconds, ours.seconds), _notes(model))


class _Trained:
    def __init__(self, losses, taken, times):
        self.losses = losses
        self.bytes = max(0, taken)
        self.seconds = sorted(times[1:])[len(times[1:]) // 2] if len(times) > 1 else 0


def _measured(batches, one):
    losses, times = [], []
    held, exact = memory.resident_bytes(), memory.reset_peak()
    for batch in batches:
        started = time.perf_counter()
        losses.append(float(one(*batch)))
        times.append(time.perf_counter() - started)
    return _Trained(losses, memory.peak_bytes() - held if exact else 0, times)


def check_step(call, steps=3):
    """The check of a training step that a script wrote itself: some steps on its first batch."""
    engines, tie = call.start()
    if not engines.recorded.values:
        raise errors.Unsupported("check compares what a step returns, and this step returns nothing")
    held = engines.variables()
    before = [(variable, np.array(keras.ops.convert_to_numpy(variable))) for variable in held]
    batches = [call.arguments] * steps

    def ours(*batch):
        with tie:
            tie.before_step()
            made, rows = engines.run(list(batch))
            tie.after_step()
            engines.update_metrics(made, rows)
            return next(iter(guard.numbers(engines.returned(made)).values()))

    def theirs(*batch):
        with hook.keras_alone(), tensorflow_names.drawn_by_keras():
            made = call.function(*map(keras.ops.convert_to_tensor, batch))
        return next(iter(guard.numbers(made).values()))

    try:
        found = _measured(batches, ours)
        found.bytes += engines.plan.arena_bytes
        trained = {variable.path: np.array(keras.ops.convert_to_numpy(variable)) for one in engines.running for variable in one.program.trained}
        _put_back(before)
        expected = _measured(batches, theirs)
        differences = _differences([v for one in engines.running for v in one.program.trained], before, trained)
    finally:
        _put_back(before)
    pairs = list(zip(expected.losses, found.losses, strict=True))
    return Check(f"the training step {call.name}()", pairs, differences, (expected.bytes, found.bytes), (expected.seconds, found.seconds), [])


def _in_plimsoll(run, tie, batches):
    with loop.running(run), tie:
        def one(x, y, weights):
            tie.before_step(run.schedule)
            run.reset()
            run.step(x, y, weights)
            tie.after_step()
            return _loss(run.logs())

        trained = _measured(batches, one)
    trained.bytes += run.plan.arena_bytes  # taken when the engine was made
    return trained


def _loss(logs):
    return logs.get("loss", next(iter(logs.values())))


def _in_keras(model, batches):
    def one(x, y, weights):
        model.reset_metrics()
        if not own_step.has_one(model):
            return _loss(model.train_on_batch(x, y, sample_weight=weights, return_dict=True))
        rows = len(tree.flatten(x)[0])  # train_on_batch() gives a train_step other data than fit()
        history = model.fit(x, y, sample_weight=weights, batch_size=rows, verbose=0, shuffle=False).history
        return _loss({name: values[-1] for name, values in sorted(history.items())})

    with hook.keras_alone():
        return _measured(batches, one)


def _values(model, tie):
    held = {id(variable): variable for variable in (*model.variables, *model.optimizer.variables, *tie.variables)}
    return [(variable, np.array(keras.ops.convert_to_numpy(variable))) for variable in held.values()]


def _put_back(values):
    for variable, value in values:
        variable.assign(value)


def _restore(model, values):
    _put_back(values)
    model.reset_metrics()


def _differences(weights, before, ours):
    start = {id(variable): value for variable, value in before}
    found = {}
    for variable in weights:
        if variable.path not in ours:
            continue
        theirs = np.asarray(keras.ops.convert_to_numpy(variable), np.float64)
        moved = np.abs(theirs - start[id(variable)]).max(initial=0)
        difference = np.abs(theirs - np.asarray(ours[variable.path], np.float64)).max(initial=0)
        found[variable.path] = float(difference / moved) if moved > 0 else float(difference)
    return found


def _notes(model):
    drawn = [layer.name for layer in model._flatten_layers(include_self=False) if hasattr(layer, "seed_generator")]
    if not drawn:
        return []
    return [f"random numbers are not Keras's ({', '.join(drawn[:4])}): losses and weights differ by what was drawn"]
