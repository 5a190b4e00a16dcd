"""TensorFlow's compiled functions: those that hold a training step which the engine can run, and all others.

A script's own loop often has its step in a `tf.function`: a GradientTape around `loss_fn(y, model(x))`, then
`optimizer.apply_gradients`. The step's Python function is recorded with symbolic tensors (steps.py), and the engine runs it
from then on. If it cannot be recorded, TensorFlow runs it, and the reason is told.
"""

import functools
import sys
import weakref

import keras
import numpy as np

from plimsoll import errors, fallback, hook, link, sessions

_steps = weakref.WeakKeyDictionary()  # a compiled function -> its Step, or None if it is TensorFlow's to run
_installed = []
_tapes_told = []


def install():
    """Replaces the call of compiled functions. It may be called often."""
    if _installed:
        return
    from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function

    plain = Function.__call__

    def call(self, *arguments, **named):
        step = _step_of(self, arguments, named)
        if step is not None:
            return step(*arguments)
        link.pull_everything()
        made = plain(self, *arguments, **named)
        link.everything_touched()
        return made

    Function.__call__ = call
    _installed.append(plain)
    _watch_tapes()


def _watch_tapes():
    """A GradientTape outside a compiled function is told: what its loop does cannot be seen before it has done it."""
    import tensorflow as tf

    plain = tf.GradientTape.gradient

    def gradient(self, target, sources, *arguments, **named):
        if hook.mode() is not None and not hook.is_inside() and tf.executing_eagerly() and not _tapes_told:
            _tapes_told.append(True)
            reason = "a GradientTape outside a tf.function trains"
            remedy = "with the tape and apply_gradients in a function under @tf.function it can run here"
            if not hook.mode().fallback:
                raise errors.Unsupported(reason, remedies=[remedy])
            fallback.say("this script's loop", "TensorFlow", errors.Unsupported(reason, [remedy]))
        return plain(self, target, sources, *arguments, **named)

    tf.GradientTape.gradient = gradient


def _step_of(function, arguments, named):
    if function in _steps:
        return _steps[function]
    import tensorflow as tf

    if hook.mode() is None or hook.is_inside() or not tf.executing_eagerly() or _is_framework(function):
        return None
    _steps[function] = None
    if _trains(function.python_function):
        try:
            _steps[function] = Step(StepCall(function, arguments, named))
            sessions.at_clear(functools.partial(_free, weakref.ref(function)))
        except errors.Unsupported as reason:
            _refuse(function, reason)
    return _steps[function]


def _free(kept):
    """The function is traced again, if it is called again."""
    function = kept()
    step = _steps.pop(function, None) if function is not None else None  # None: collected, and its step with it
    if step is not None:
        step.close()


def _trains(function, depth=2):
    """Whether a function, or one that it calls by name, has a GradientTape."""
    code = getattr(function, "__code__", None)
    if code is None:
        return False
    if "GradientTape" in code.co_names:
        return True
    called = [function.__globals__.get(name) for name in code.co_names]
    called += [cell.cell_contents for cell in function.__closure__ or () if cell.cell_contents is not function]
    return depth > 0 and any(_trains(getattr(other, "python_function", other), depth - 1) for other in called if callable(other))


def _is_framework(function):
    module = getattr(function.python_function, "__module__", "") or ""
    return module.split(".")[0] in ("keras", "tensorflow", "tensorflow_probability", "plimsoll")


def _refuse(function, reason):
    name = getattr(function.python_function, "__name__", "step")
    if not hook.mode().fallback:
        raise reason
    fallback.say(f"the training step {name}()", "TensorFlow", reason)


class StepCall:
    """The first call of a training step that a script wrote itself."""

    def __init__(self, function, arguments, named):
        from plimsoll import feed

        self.function = function.python_function
        self.name = getattr(self.function, "__name__", "step")
        self.arguments = [self._array(a) for a in arguments]
        if named or len({len(a) for a in self.arguments}) != 1:
            raise errors.Unsupported("its training step cannot be traced", [f"{self._who()}: its arguments are not the tensors of one batch"])
        self.sample = feed.Sample(self.arguments, None)
        self._build()

    def _who(self):
        from plimsoll import describe

        return f"{self.name}(){describe.where(self.function)}"

    def _array(self, argument):
        import tensorflow as tf

        if not isinstance(argument, (tf.Tensor, np.ndarray)) or not argument.shape:
            raise errors.Unsupported("its training step cannot be traced", [f"{self._who()}: an argument is a {type(argument).__name__}, and no batch"])
        return np.asarray(argument)

    def _build(self):
        """Builds a model that has no weights yet: tracing must not make them."""
        from plimsoll import describe

        cells = [cell.cell_contents for cell in self.function.__closure__ or ()]
        named = [self.function.__globals__.get(name) for name in self.function.__code__.co_names]
        for model in [one for one in (*cells, *named) if isinstance(one, keras.Model) and not one.built]:
            try:
                with hook.keras_alone():
                    describe.build_calls(model, self.arguments[0])
            except Exception as reason:
                raise errors.Unsupported("its training step cannot be traced", [
                    f"{self._who()}: '{model.name}' is not built before the first step"], ["keras.Input in the model"]) from reason

    def _ask(self):
        from plimsoll import accounts, own_step, programs, settings, steps

        specs = [own_step.spec_of(a) for a in self.arguments]
        recordings = steps.record(self.function, specs, self._who(), fixed=self.sample.batch_size)
        recorded, made = recordings[0], programs.make(recordings, None, self._who())
        if made[0].update is None:
            raise errors.Unsupported("its training step cannot be traced", [f"{self._who()}: it applies no gradients"])
        for program in made:
            program.optimizer.build(program.trained)
        options = {**settings.complete({}), "batch_size": self.sample.batch_size}
        models = own_step.Held(recorded.recorder.models, [program.optimizer for program in made])
        return recorded, made, options, accounts.Account(models, [self.sample], [], models.optimizers, options)

    def plan(self):
        from plimsoll import stepping

        _, made, options, account = self._ask()
        return stepping.StepPlan(stepping.plan(made, options, account))

    def start(self):
        """Plans, makes the engines, and compares them with the function itself."""
        from plimsoll import guard, stepping

        recorded, made, options, account = self._ask()
        variables = [v for model in recorded.recorder.models for v in model.variables]
        compared = guard.StepGuard(recorded, made, lambda data: self.function(*data), self.arguments, variables)
        engines = stepping.Engines(recorded, made, options, account)
        tie = stepping.StepLink(engines)
        compared.compare(engines, tie)
        return engines, tie

    def check(self):
        from plimsoll import checks

        return checks.check_step(self)


class Step:
    """A training step of a script, run by the engine."""

    def __init__(self, call):
        if hook.mode().stop_at_fit is not None:
            hook.mode().stop_at_fit(call)
        self.engines, self.tie = call.start()
        self.tie.__enter__()  # until the process ends: the loop has no end that could be seen
        model = next(iter(self.engines.recorded.recorder.models), None)
        of = f" of '{model.name}'" if model is not None else ""
        print(f"plimsoll: the training step{of} {self.engines.plan.summary()}", file=sys.stderr)

    def __call__(self, *arguments):
        import tensorflow as tf

        if not self.tie.is_active:  # another engine has trained this model
            self.tie.__enter__()
        self.tie.before_step()
        values, batch = self.engines.run(list(arguments))
        self.tie.after_step()
        self.engines.update_metrics(values, batch)
        return self.engines.returned(values, lambda number: tf.constant(number, tf.float32))

    def close(self):
        """Brings the live weights up to date, and gives the memory back."""
        self.tie.__exit__()
        self.tie.close()
        self.engines.close()
