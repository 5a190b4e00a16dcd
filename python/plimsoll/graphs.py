"""TensorFlow's compiled functions: those that hold a training step which the engine can run, and all others.

A script's own loop often has its step in a `tf.function`: a GradientTape around `loss_fn(y, model(x))`, then
`optimizer.apply_gradients`. The step's Python function is called once with symbols instead of tensors. If it does that
with them and nothing else, the engine runs the step from then on. If it does anything else, TensorFlow runs it, and the
reason is told.
"""

import sys
import weakref

import keras
import numpy as np

from plimsoll import errors, fallback, hook, link

_steps = weakref.WeakKeyDictionary()  # a compiled function -> its Step, or None if it is TensorFlow's to run
_installed = []
_tapes_told = []


class NotThisStep(Exception):
    """The function does something that the engine's step does not do. No argument: it does not train at all."""


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
    try:
        _steps[function] = _recognise(function, arguments, named)
    except (NotThisStep, errors.Unsupported) as reason:
        _steps[function] = None
        if reason.args and reason.args[0]:
            _refuse(function, reason)
    return _steps[function]


def _is_framework(function):
    module = getattr(function.python_function, "__module__", "") or ""
    return module.split(".")[0] in ("keras", "tensorflow", "tensorflow_probability", "plimsoll")


def _refuse(function, reason):
    name = getattr(function.python_function, "__name__", "step")
    if not isinstance(reason, errors.Unsupported):
        reason = errors.Unsupported("the step is more than the engine's step", [str(reason)])
    if not hook.mode().fallback:
        raise reason
    fallback.say(f"the training step {name}()", "TensorFlow", reason)


class Symbol:
    """Stands for a value of the step while its function is read."""

    def __init__(self, what, **parts):
        self.__dict__.update(parts, what=what)

    def _refused(self, *_, **__):
        raise NotThisStep(f"it computes with {self.what} in Python")

    def __getattr__(self, name):
        if name in ("_keras_mask", "_keras_history"):
            raise AttributeError(name)
        raise NotThisStep(f"it uses .{name} of {self.what}")

    __array__ = __tf_tensor__ = __iter__ = __len__ = __bool__ = __float__ = __int__ = __getitem__ = _refused
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __neg__ = __pow__ = _refused
    __lt__ = __gt__ = __le__ = __ge__ = __matmul__ = __abs__ = _refused


class _Reading:
    """What the function has done with the symbols."""

    def __init__(self):
        self.model = self.x = self.loss = self.y = self.optimizer = None
        self.gradients = None

    def call_model(self, model, arguments, named):
        if len(arguments) != 1 or set(named) - {"training"} or not isinstance(arguments[0], Symbol):
            raise NotThisStep(f"it calls '{model.name}' with more than one symbol")
        if self.model is not None:
            raise NotThisStep("it calls models more than once")
        if arguments[0].what != "an argument":
            raise NotThisStep(f"it calls '{model.name}' on {arguments[0].what}")
        if named.get("training") is not True:
            differ = [layer.name for layer in model._flatten_layers(include_self=False, recursive=True) if _trains_otherwise(layer)]
            if differ:
                raise NotThisStep(f"it calls '{model.name}' without training=True, so {', '.join(differ[:3])} would not train")
        self.model, self.x = model, arguments[0].index
        return Symbol("the model's output", of=model)

    def call_loss(self, loss, y_true, y_pred, sample_weight=None):
        if sample_weight is not None or self.loss is not None:
            raise NotThisStep("it uses sample weights or several losses")
        if y_true.what != "an argument" or y_pred.what != "the model's output":
            raise NotThisStep("its loss is not of an argument and the model's output")
        self.loss, self.y = loss, y_true.index
        return Symbol("the loss")

    def gradient(self, target, sources):
        if not isinstance(target, Symbol) or target.what != "the loss":
            raise NotThisStep("it takes the gradient of something else than the loss")
        wanted = self.model.trainable_variables
        if not isinstance(sources, (list, tuple)) or len(sources) != len(wanted) or any(a is not b for a, b in zip(sources, wanted, strict=True)):
            raise NotThisStep("it takes the gradient for other variables than model.trainable_variables")
        self.gradients = [Symbol("a gradient") for _ in sources]
        return list(self.gradients)

    def apply(self, optimizer, gradients, variables):
        if self.gradients is None or len(gradients) != len(self.gradients) or any(a is not b for a, b in zip(gradients, self.gradients, strict=True)):
            raise NotThisStep("it changes the gradients before it applies them")
        if variables is not None and any(a is not b for a, b in zip(variables, self.model.trainable_variables, strict=True)):
            raise NotThisStep("it applies the gradients to other variables")
        if self.optimizer is not None:
            raise NotThisStep("it applies gradients twice")
        self.optimizer = optimizer


def _trains_otherwise(layer):
    """Whether a layer of Keras computes something else in training: it draws numbers or uses the batch's statistics."""
    statistics = (keras.layers.BatchNormalization, keras.layers.SpectralNormalization)
    return isinstance(layer, statistics) or getattr(layer, "seed_generator", None) is not None


class _Patches:
    """While the function is read, these calls note symbols instead of computing."""

    def __init__(self, reading):
        import tensorflow as tf

        self.reading = reading
        self.undo = []
        patches = (
            (keras.Model, "__call__", self._model),
            (keras.losses.Loss, "__call__", self._loss),
            (tf.GradientTape, "gradient", self._gradient),
            (tf.GradientTape, "__enter__", lambda plain: lambda tape: tape),
            (tf.GradientTape, "__exit__", lambda plain: lambda tape, *exception: None),
            (keras.optimizers.Optimizer, "apply_gradients", self._apply_gradients),
            (keras.optimizers.Optimizer, "apply", self._apply),
        )
        for owner, name, make in patches:
            own = owner.__dict__.get(name)
            plain = getattr(owner, name)
            setattr(owner, name, make(plain))
            self.undo.append((owner, name, own))

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        for owner, name, own in reversed(self.undo):
            delattr(owner, name) if own is None else setattr(owner, name, own)

    def _model(self, plain):
        def call(model, *arguments, **named):
            if any(isinstance(a, Symbol) for a in (*arguments, *named.values())):
                return self.reading.call_model(model, arguments, named)
            return plain(model, *arguments, **named)

        return call

    def _loss(self, plain):
        def call(loss, *arguments, **named):
            if all(isinstance(a, Symbol) for a in arguments):
                return self.reading.call_loss(loss, *arguments, **named)
            return plain(loss, *arguments, **named)

        return call

    def _gradient(self, plain):
        return lambda tape, target, sources, *rest, **named: self.reading.gradient(target, sources)

    def _apply_gradients(self, plain):
        def apply_gradients(optimizer, grads_and_vars, **named):
            pairs = list(grads_and_vars)
            self.reading.apply(optimizer, [gradient for gradient, _ in pairs], [variable for _, variable in pairs])

        return apply_gradients

    def _apply(self, plain):
        return lambda optimizer, grads, trainable_variables=None: self.reading.apply(optimizer, list(grads), trainable_variables)


def _recognise(function, arguments, named):
    import tensorflow as tf

    if named or len(arguments) < 2 or not all(isinstance(a, (tf.Tensor, np.ndarray)) for a in arguments):
        raise NotThisStep()
    reading = _Reading()
    symbols = [Symbol("an argument", index=i) for i in range(len(arguments))]
    try:
        with _Patches(reading):
            made = function.python_function(*symbols)
    except NotThisStep as reason:
        raise reason if reading.gradients is not None or _has_tape(function) else NotThisStep() from None
    except Exception as other:  # code that cannot take symbols
        raise NotThisStep(f"it does more than that: {other}" if _has_tape(function) else "") from None
    if reading.optimizer is None:
        raise NotThisStep("it applies no gradients" if _has_tape(function) else "")
    if not (made is None or isinstance(made, Symbol) and made.what == "the loss"):
        raise NotThisStep("it returns something else than the loss")
    return Step(reading, arguments, returns=made is not None)


def _has_tape(function):
    return "GradientTape" in getattr(getattr(function.python_function, "__code__", None), "co_names", ())


class Step:
    """A training step of a script, run by the engine."""

    def __init__(self, reading, arguments, returns):
        from plimsoll import loop

        self.reading, self.returns = reading, returns
        if reading.model.losses:
            raise NotThisStep("its loss leaves the model's regularization out")
        x, y = self._batch(arguments)
        call = loop.StepCall(reading.model, reading.loss, reading.optimizer, x, y)
        if hook.mode().stop_at_fit is not None:
            hook.mode().stop_at_fit(call)
        self.run = call.start()
        self.tie = link.Link(self.run.engine, reading.model, reading.optimizer)
        self.tie.__enter__()  # until the process ends: the loop has no end that could be seen
        print(f"plimsoll: the training step of '{reading.model.name}' {self.run.plan.summary()}", file=sys.stderr)

    def _batch(self, arguments):
        return np.asarray(arguments[self.reading.x]), np.asarray(arguments[self.reading.y])

    def __call__(self, *arguments):
        import tensorflow as tf

        if not self.tie.is_active:  # another engine has trained this model
            self.tie.__enter__()
        self.tie.before_step(self.run.schedule)
        x, y = self._batch(arguments)
        loss = self.run.step(x, y, None)["loss"]
        self.tie.after_step()
        return tf.constant(loss, tf.float32) if self.returns else None
