"""fit and evaluate of a model that has a train_step, a test_step or a compute_loss of its own."""

import sys

import keras
import numpy as np
from keras.src import tree
from keras.src.trainers.data_adapters import data_adapter_utils

from plimsoll import accounts, describe, errors, guard, link, programs, stepping, steps
from plimsoll.trace import Spec

_METHODS = ("train_step", "test_step", "compute_loss", "compute_metrics")


def has_one(model):
    """Whether a method of a training step is the user's."""
    return not describe.is_keras(type(model)) and any(not describe.is_keras(getattr(type(model), name)) for name in _METHODS)


def is_needed(model, first):
    """Whether the model is trained by its step as a whole. Beside its own methods, add_loss() in its layers makes it so."""
    if has_one(model):
        return True
    if keras.backend.backend() != "tensorflow" or not describe.has_own_code(model) or first[1] is None:
        return False
    adds = [layer for layer in model._flatten_layers(recursive=True) if not describe.is_keras(type(layer)) and _calls_add_loss(type(layer))]
    return bool(adds)


def _calls_add_loss(layer_class):
    return any("add_loss" in getattr(getattr(method, "__code__", None), "co_names", ()) for one in layer_class.__mro__
               if not describe.is_keras(one) for method in vars(one).values())


def told(model):
    """'Model.train_step() is written in Python (file.py:12)', of the first such method."""
    name = next((name for name in _METHODS if not describe.is_keras(getattr(type(model), name))), "call")
    return f"{type(model).__name__}.{name}() is written in Python{describe.where(getattr(type(model), name))}"


def _refuse_backend(model):
    if keras.backend.backend() != "tensorflow":
        reason = told(model) if has_one(model) else "it calls add_loss()"
        raise errors.Unsupported("this model has a training step of its own", [
            f"{reason}: on Keras's backend {keras.backend.backend()} it is not traced, on TensorFlow it can be"])


class StepRun:
    """A step of a model in the engine, for the loops of fit() and evaluate()."""

    schedule = None
    tie = None

    def __init__(self, model, engines):
        self.model, self.engines, self.plan = model, engines, engines.plan
        self._logs = {}

    def step(self, x, y, weights):
        values, batch = self.engines.run(data_adapter_utils.pack_x_y_sample_weight(x, y, weights))
        self.engines.update_metrics(values, batch)
        self._logs = self.engines.returned(values)

    test = step

    def close(self):
        self.tie = None
        self.engines.close()

    def reset(self):
        self.model.reset_metrics()

    def logs(self):
        """What the step has returned, and the results of the metrics, as numbers."""
        logs = {}
        for name, value in self._logs.items():
            logs.update(value if isinstance(value, dict) else {name: value})
        return {name: float(np.asarray(value)) for name, value in sorted(logs.items())}


def _data(feed):
    return data_adapter_utils.pack_x_y_sample_weight(*feed.first)


def _recorded(model, name, feed):
    """A method of the model as programs of the engine."""
    method = getattr(model, name)
    own = next((each for each in (name, "compute_loss", "compute_metrics") if not describe.is_keras(getattr(type(model), each))), name)
    who = f"{type(model).__name__}.{own}(){describe.where(getattr(type(model), own))}"
    data = _data(feed)
    specs = tree.map_structure(spec_of, data)
    recordings = steps.record(method, [specs], who, trains=name == "train_step", fixed=feed.fixed_size)
    if not isinstance(recordings[0].returned, dict):
        raise errors.Unsupported("its training step cannot be traced", [f"{who}: it does not return a dictionary"])
    made = programs.make(recordings, [model], who)
    if name == "train_step" and made[0].update is None:
        raise errors.Unsupported("its training step cannot be traced", [f"{who}: it applies no gradients"])
    return recordings[0], made


def spec_of(array):
    array = np.asarray(array)
    if array.dtype.kind not in "fiub":
        raise errors.Unsupported("its training step cannot be traced", [f"its data have the dtype {array.dtype}"])
    return Spec(array.shape[1:], "float32" if array.dtype.kind == "f" else str(array.dtype))


def _build(model, feed):
    """Builds layers and metrics, as far as the model can be called."""
    if getattr(model, "_compile_loss", None) is not None or getattr(model, "_compile_metrics", None) is not None or not _is_built(model):
        try:
            describe.build(model, feed.first)
        except Exception:  # noqa: BLE001 - a model whose train_step does not call it cannot be called here
            if not _is_built(model):
                raise errors.Unsupported("its training step cannot be traced", [
                    f"the layers of '{model.name}' are not built before its first step; {told(model)}"], ["keras.Input in its layers"]) from None


def _is_built(model):
    return all(layer.built for layer in model._flatten_layers(include_self=False))


def ask(model, training, held_out, callbacks, options):
    """(recorded step, programs, options, account) for training."""
    _refuse_backend(model)
    _build(model, training)
    recorded, made = _recorded(model, "train_step", training)
    for program in made:
        with describe.scope_of(model):
            program.optimizer.build(program.trained)
    feeds = [each for each in (training, held_out) if each is not None]
    account = accounts.Account(model, feeds, callbacks, _Several([program.optimizer for program in made]), options)
    options = {**options, "batch_size": training.batch_size, "samples": training.samples, "sample_weights": False,
               "refuse_divergence": not any(isinstance(c, keras.callbacks.TerminateOnNaN) for c in callbacks)}
    return recorded, made, options, account


class Held:
    """The weights of several models and the variables of several optimizers, to be counted."""

    def __init__(self, models, optimizers):
        self.weights = list({id(v): v for model in models for v in model.weights}.values())
        self.optimizers = _Several(optimizers)


class _Several:
    def __init__(self, optimizers):
        self.variables = [variable for optimizer in optimizers for variable in optimizer.variables]


def start(model, training, held_out, callbacks, options):
    """(run, link, run for validation or None), compared with the model's own step."""
    recorded, made, options, account = ask(model, training, held_out, callbacks, options)
    compared = guard.StepGuard(recorded, made, model.train_step, _data(training), model.variables)
    engines = stepping.Engines(recorded, made, options, account)
    run, tie = StepRun(model, engines), stepping.StepLink(engines)
    compared.compare(engines, tie)
    run.tie = tie
    for note in [*engines.plan.notes, describe.one_replica(model)]:
        if note:
            print(f"plimsoll: {note}", file=sys.stderr)
    return run, tie, None if held_out is None else evaluation(model, held_out, options, account)


def evaluation(model, feed, options, account=None):
    """A run of the model's test_step."""
    if account is None:
        _refuse_backend(model)
        _build(model, feed)
    recorded, made = _recorded(model, "test_step", feed)
    account = account or accounts.Account(model, [feed], [], None, options)
    options = {**options, "batch_size": feed.batch_size, "inference_batch_size": feed.batch_size, "validation_samples": feed.samples}
    return StepRun(model, stepping.Engines(recorded, made, options, account, trains=False))


def put_weights(run):
    """Brings a run of test_step up to date with the live weights."""
    for one in run.engines.running:
        link.put_all(one.engine, one.program.described.variables)
