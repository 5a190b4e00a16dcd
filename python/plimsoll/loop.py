"""fit, evaluate and predict of a live Keras model, in Plimsoll's engine.

The loops follow Keras's own, and use its callbacks, its History and its progress bar.
"""

import contextlib
import inspect
import sys

import keras
import numpy as np
from keras.src import tree
from keras.src.callbacks import CallbackList
from keras.src.trainers.data_adapters import array_slicing

from plimsoll import _core, accounts, describe, errors, feed, guard, hook, host_metrics, link, memory, own_step, settings, stepping
from plimsoll.plans import Plan

running_models = {}  # id of a model -> its Run, while it trains


class Run:
    """An engine for one model, made inside the budget."""

    def __init__(self, model, described, options, account=None):
        options = dict(options)
        if account is not None:
            options["reserved_bytes"] = account.reserved
        self.model = model
        self.described = described
        self.schedule = described.schedule
        self.tie = None  # the link to the live model, while it trains
        self.host = None  # metrics that Keras computes
        with described.located():
            self.engine = _core.Engine(described.architecture, described.compiled, options)
        self.plan = Plan(self.engine.plan(), account.lines if account else ())
        self.ports = feed.Ports(described.face, self.engine)
        losses = [f"{name}_loss" for name in self.engine.output_names()] if len(described.face.outputs) > 1 else []
        self._output_losses = {name: [] for name in losses if name in self.engine.metrics()}

    def close(self):
        """Gives the memory back."""
        self.engine = self.tie = None

    def step(self, x, y, weights):
        return self._run(self.engine.step, x, y, weights)

    def test(self, x, y, weights):
        return self._run(self.engine.test, x, y, weights)

    def _run(self, call, x, y, weights):
        if self.host is not None:
            self.host.update(self.predict(x), y, weights)
        return self._noted(call(*self._batch(x, y, weights)))

    def _batch(self, x, y, weights):
        if self.described.quotient is not None:
            weights = np.full(len(tree.flatten(y)[0]), self.described.quotient.factor(tree.flatten(y)[0]), np.float32)
        return self.x(x), self.ports.y(y), self.ports.sample_weight(weights, y)

    def x(self, x):
        front = self.described.front
        return self.ports.x(x if front is None else front(x))

    def _noted(self, logs):
        for name in self._output_losses:
            self._output_losses[name].append(logs[name])
        return logs

    def reset(self):
        """Starts the means of loss and metrics again."""
        self.engine.reset_metrics()
        if self.host is not None:
            self.host.reset()
        for values in self._output_losses.values():
            values.clear()

    def predict(self, x):
        return self.ports.predictions(self.engine.predict(self.x(x)))

    def logs(self):
        """Loss and metrics since reset(). Keras reports the losses of single outputs as plain means over the batches."""
        means = {name: float(np.mean(values)) for name, values in self._output_losses.items() if values}
        host = self.host.logs() if self.host is not None else {}
        return dict(sorted({**self.engine.metrics(), **means, **host}.items()))


def fit(model, x=None, y=None, batch_size=None, epochs=1, verbose="auto", callbacks=None, validation_split=0.0,
        validation_data=None, shuffle=True, class_weight=None, sample_weight=None, initial_epoch=0, steps_per_epoch=None,
        validation_steps=None, validation_batch_size=None, validation_freq=1, **options):
    """Trains a live Keras model inside a memory budget, with the arguments of `model.fit`.

    Further arguments are Plimsoll's options: `budget` ("2GiB": the memory of the whole process), `device`, `precision`,
    `micro_batch`, ... Returns Keras's History; its attribute `plan` is the Plan that was run. Afterwards the model has
    the trained weights and its optimizer the state, as after `model.fit`.

    Raises DoesNotFit before anything is trained if no plan fits the budget, and Unsupported, with every reason, if the
    model uses what Plimsoll does not train.
    """
    arguments = {name: value for name, value in locals().items() if name not in ("model", "options")}
    return prepare_fit(model, **arguments, **options)()


def bind_fit(model, arguments, named):
    """All arguments of a call of `model.fit`, by name."""
    bound = inspect.signature(fit).bind(model, *arguments, **named)
    bound.apply_defaults()
    return {**bound.arguments, **bound.arguments.pop("options")}


def _own_options(a):
    return settings.complete({name: value for name, value in a.items() if name not in inspect.signature(fit).parameters})


def _feeds(model, a):
    """The data of a call of fit: for training, and for validation or None."""
    x, y, sample_weight, validation_data = a["x"], a["y"], a["sample_weight"], a["validation_data"]
    if a["validation_split"] and validation_data is None:
        (x, y, sample_weight), validation_data = array_slicing.train_validation_split(
            (x, y, sample_weight), validation_split=a["validation_split"]
        )
    describe.refuse(model)  # before a data source is touched
    training = feed.Feed(x, y, sample_weight, a["batch_size"], a["steps_per_epoch"], a["shuffle"], a["class_weight"])
    held_out = None
    if validation_data is not None:
        vx, vy, vw = feed.unpack(validation_data)
        held_out = feed.Feed(vx, vy, vw, a["validation_batch_size"] or a["batch_size"], a["validation_steps"])
    return training, held_out


class FitCall:
    """A call of fit that was stopped before it trained, for `plimsoll plan` and `plimsoll check` of a script."""

    def __init__(self, model, arguments, named):
        self.model = model
        self.arguments = bind_fit(model, arguments, named)

    def plan(self):
        model, a = self.model, self.arguments
        model._assert_compile_called("fit")
        training, held_out = _feeds(model, a)
        if own_step.is_needed(model, training.first):
            _, made, options, account = own_step.ask(model, training, held_out, a["callbacks"] or [], _own_options(a))
            return stepping.StepPlan(stepping.plan(made, options, account))
        return _plan_only(*_ask(model, training, held_out, a["callbacks"] or [], _own_options(a)))

    def check(self):
        from plimsoll import checks

        names = ("x", "y", "batch_size", "sample_weight", "class_weight")
        return checks.check(self.model, **{name: self.arguments[name] for name in names})


def _plan_only(described, options, account):
    options = {**options, "reserved_bytes": account.reserved}
    with described.located():
        return Plan(_core.plan(described.architecture, described.compiled, options), account.lines)


def prepare_fit(model, *arguments, **named):
    """Plans a call of fit and takes its memory. Returns a function that trains; nothing is trained before it is called."""
    a = bind_fit(model, arguments, named)
    model._assert_compile_called("fit")
    training, held_out = _feeds(model, a)
    callbacks, verbose = a["callbacks"], a["verbose"]
    if not isinstance(callbacks, CallbackList):
        callbacks = CallbackList(callbacks, add_history=True, add_progbar=verbose != 0, verbose=verbose, epochs=a["epochs"],
                                 steps=training.num_batches, model=model)
    run, tie, testing = start_tied(model, training, held_out, callbacks.callbacks, _own_options(a))

    def train():
        validate = Validation(testing or run, held_out, a["validation_freq"], callbacks) if held_out is not None else None
        exact = memory.reset_peak()
        try:
            with running(run), tie:
                _epochs(run, tie, training, validate, callbacks, a["epochs"], a["initial_epoch"])
        finally:
            for each in (run, tie, testing):
                if each is not None:
                    each.close()
        model.history.plan = run.plan
        if exact:
            _compare_peak(run.plan, model.history)
        return model.history

    train.plan = run.plan
    return train


def _compare_peak(plan, history):
    """Tells if the process held more than the budget: that was taken by code that no plan can know."""
    history.process_peak_bytes = memory.peak_bytes()
    over = history.process_peak_bytes - plan.data.get("budget_bytes", history.process_peak_bytes)
    if over > 0 and plan.device["kind"] == "cpu":
        print(f"plimsoll: the process held {memory.format_bytes(history.process_peak_bytes)} at most, {memory.format_bytes(over)} more than "
              f"the budget; the plan is {memory.format_bytes(plan.peak_bytes)}: callbacks or the data source took the rest", file=sys.stderr)


def _ask(model, training, held_out, callbacks, options):
    """What the planner is asked: the description, its options, and what the process holds."""
    describe.build(model, training.first)
    feeds = [each for each in (training, held_out) if each is not None]
    described = describe.describe(model, x=training.first[0], y=training.first[1], weighted=any(each.has_weights for each in feeds),
                                  even=all(each.is_even for each in feeds))
    with describe.scope_of(model):
        model.optimizer.build(model.trainable_variables)
    account = accounts.Account(model, feeds, getattr(callbacks, "callbacks", callbacks), model.optimizer, options)
    options = {
        **options,
        "batch_size": training.batch_size,
        "samples": training.samples,
        "input_shape": _input_shape(described, training.first),
        "sample_weights": described.quotient is not None or any(each.has_weights for each in feeds),
        "inference_batch_size": held_out.batch_size if held_out else 0,
        "validation_samples": held_out.samples if held_out else 0,
        "refuse_divergence": not any(isinstance(c, keras.callbacks.TerminateOnNaN) for c in callbacks),
    }
    return described, options, account


def start(model, training, held_out, callbacks, options):
    """Plans and makes the engine. Nothing is trained yet."""
    run = Run(model, *_ask(model, training, held_out, callbacks, options))
    _find_host_metrics(run, trains=True)
    guard.compare(run, training.first)
    for note in [*run.plan.notes, describe.one_replica(model)]:
        if note:
            print(f"plimsoll: {note}", file=sys.stderr)
    return run


def start_tied(model, training, held_out, callbacks, options):
    """(run, its link to the live model, another run for validation or None)"""
    if own_step.is_needed(model, training.first):
        return own_step.start(model, training, held_out, callbacks, options)
    run = start(model, training, held_out, callbacks, options)
    run.tie = link.Link(run.engine, model, variables=run.described.variables)
    return run, run.tie, None


def _input_shape(described, first):
    """The lengths of one sample, for a single input that is declared with None."""
    model, x = described.face, first[0]
    if len(model.inputs) != 1 or None not in model.inputs[0].shape[1:]:
        return []
    return list(np.shape(tree.flatten(x if described.front is None else described.front(x))[0])[1:])


def _find_host_metrics(run, trains):
    ours = set(run.engine.metrics())
    missing = [name for name in run.model.get_metrics_result() if name not in ours]
    if missing:
        run.host = host_metrics.HostMetrics(run.model, missing, trains)


@contextlib.contextmanager
def running(run):
    """Calls of evaluate and predict on this model inside the block use its engine."""
    if isinstance(run, own_step.StepRun):
        yield
        return
    if id(run.model) in running_models:
        raise errors.UsageError("this model is being trained: fit() cannot be called from its own callbacks")
    running_models[id(run.model)] = run
    try:
        yield
    finally:
        del running_models[id(run.model)]


class Validation:
    """The evaluation at the end of an epoch."""

    def __init__(self, run, data, frequency, callbacks):
        self.run, self.data, self.frequency, self.callbacks = run, data, frequency, callbacks

    def logs(self, epoch):
        if not self.run.model._should_eval(epoch, self.frequency):
            return {}
        return {f"val_{name}": value for name, value in evaluate_with(self.run, self.data, self.callbacks).items()}


def _epochs(run, tie, training, validate, callbacks, epochs, initial_epoch):
    model = run.model
    training.reset()
    model.stop_training = False
    callbacks.on_train_begin()
    logs = None
    for epoch in range(model._initial_epoch or initial_epoch, epochs):
        run.reset()
        callbacks.on_epoch_begin(epoch)
        _after_swap(run, callbacks)
        logs = {}
        with training.catch_stop_iteration():
            for first, last, x, y, weights in training.batches():
                callbacks.on_train_batch_begin(first)
                tie.before_step(run.schedule)
                run.step(x, y, weights)
                tie.after_step()
                logs = run.logs()
                callbacks.on_train_batch_end(last, dict(logs))
                if model.stop_training:
                    break
        logs = dict(_epoch_logs(run, logs))
        if validate:
            tie.before_step(run.schedule)  # a callback may have set weights
            logs.update(validate.logs(epoch))
        callbacks.on_epoch_end(epoch, logs)
        _after_swap(run, callbacks)
        if model.stop_training:
            break
    if epochs > 0:
        tie.pull_all()
        model.optimizer.finalize_variable_values(model.trainable_weights)
    callbacks.on_train_end(logs)


def evaluate_with(run, data, callbacks):
    """Loss and metrics over the data, as a dictionary."""
    data.reset()
    model = run.model
    model.stop_evaluating = False
    callbacks.on_test_begin()
    _refresh(run, callbacks)  # a callback may have set weights: SwapEMAWeights evaluates with others
    run.reset()
    logs = {}
    with data.catch_stop_iteration():
        for first, last, x, y, weights in data.batches():
            callbacks.on_test_batch_begin(first)
            run.test(x, y, weights)
            logs = run.logs()
            callbacks.on_test_batch_end(last, dict(logs))
            if model.stop_evaluating:
                break
    logs = _epoch_logs(run, logs)
    callbacks.on_test_end(logs)
    _after_swap(run, callbacks)
    return logs


def _refresh(run, callbacks):
    """Brings an engine up to date with the live weights before it evaluates or predicts."""
    _after_swap(run, callbacks)
    if isinstance(run, own_step.StepRun):
        own_step.put_weights(run)
    elif run.tie is not None:
        run.tie.before_step(run.schedule)
    elif not all(isinstance(each, (keras.callbacks.History, keras.callbacks.ProgbarLogger)) for each in callbacks.callbacks):
        link.put_all(run.engine, run.described.variables)


def _after_swap(run, callbacks):
    """SwapEMAWeights exchanges TensorFlow's own variables, which are not watched."""
    swaps = getattr(keras.callbacks, "SwapEMAWeights", ())
    if run.tie is not None and any(isinstance(each, swaps) for each in callbacks.callbacks):
        run.tie.touched()


def _epoch_logs(run, logs):
    """Of a step of the user's own, Keras reports the metrics' results where they have the names of what the step returned."""
    return dict(run.model._get_metrics_result_or_logs(logs)) if isinstance(run, own_step.StepRun) else logs


def _inference(model, data, options):
    """A run that only evaluates and predicts, with the live model's weights. A model that trains uses its own."""
    if id(model) in running_models:
        run = running_models[id(model)]
        run.tie.before_step(run.schedule)  # what a callback has assigned
        return run
    if getattr(model, "compiled", False) and data.first[1] is not None:
        describe.build(model, data.first)
    if not model.built:
        describe.build_calls(model, data.first[0])
    described = describe.describe(model, trains=False, x=data.first[0], y=data.first[1], weighted=data.has_weights,
                                  even=data.is_even)
    account = accounts.Account(model, [data], [], getattr(model, "optimizer", None), options)
    options = {**options, "trains": False, "inference_batch_size": data.batch_size, "batch_size": data.batch_size,
               "validation_samples": data.samples, "sample_weights": described.quotient is not None or data.has_weights,
               "input_shape": _input_shape(described, data.first)}
    run = Run(model, described, options, account)
    link.put_all(run.engine, described.variables)
    if data.first[1] is not None:
        _find_host_metrics(run, trains=False)
    guard.compare(run, data.first)
    return run


def _callbacks(model, callbacks, verbose, steps):
    if isinstance(callbacks, CallbackList):
        return callbacks
    return CallbackList(callbacks, add_progbar=verbose != 0, verbose=verbose, epochs=1, steps=steps, model=model)


def evaluate(model, x=None, y=None, batch_size=None, verbose="auto", sample_weight=None, steps=None, callbacks=None,
             return_dict=False, **options):
    """Evaluates a live Keras model inside a memory budget, with the arguments of `model.evaluate`."""
    return prepare_evaluate(model, x, y, batch_size, verbose, sample_weight, steps, callbacks, return_dict, **options)()


def prepare_evaluate(model, x=None, y=None, batch_size=None, verbose="auto", sample_weight=None, steps=None, callbacks=None,
                     return_dict=False, **options):
    model._assert_compile_called("evaluate")
    options = settings.complete(options)
    data = feed.Feed(x, y, sample_weight, batch_size, steps)
    if own_step.is_needed(model, data.first):
        run = own_step.evaluation(model, data, options)
        own_step.put_weights(run)
    else:
        run = _inference(model, data, options)

    def compute():
        logs = evaluate_with(run, data, _callbacks(model, callbacks, verbose, data.num_batches))
        return logs if return_dict else model._flatten_metrics_in_order(logs)

    return compute


def predict(model, x, batch_size=None, verbose="auto", steps=None, callbacks=None, **options):
    """Predicts with a live Keras model inside a memory budget, with the arguments of `model.predict`."""
    return prepare_predict(model, x, batch_size, verbose, steps, callbacks, **options)()


def prepare_predict(model, x, batch_size=None, verbose="auto", steps=None, callbacks=None, **options):
    options = settings.complete(options)
    data = feed.Feed(x, None, None, batch_size, steps)
    run = _inference(model, data, options)
    callbacks = _callbacks(model, callbacks, verbose, data.num_batches)
    return lambda: _predict_with(run, data, callbacks)


def _predict_with(run, data, callbacks):
    data.reset()
    model, outputs = run.model, []
    model.stop_predicting = False
    callbacks.on_predict_begin()
    _refresh(run, callbacks)
    with data.catch_stop_iteration():
        for first, last, rows, _, _ in data.batches():
            callbacks.on_predict_batch_begin(first)
            outputs.append(run.predict(rows))
            callbacks.on_predict_batch_end(last, {"outputs": outputs[-1]})
            if model.stop_predicting:
                break
    callbacks.on_predict_end()
    return tree.map_structure(lambda *parts: np.concatenate(parts), *outputs)


hook.prepare()
