"""A training step written in Python, recorded: gradients of losses, optimizers that apply them, metrics that are updated.

The step's function is called with symbolic tensors (trace.py). A GradientTape returns stand-ins for gradients, an optimizer
notes which of them it gets for which variables, and a metric notes the value that it is given. Random numbers that the
step draws itself are inputs: they are drawn by Keras, in the step's order, when the step runs.
"""

import contextlib

import keras
from keras.src import tree
from keras.src.layers.layer import Layer

from plimsoll import errors, objective, trace
from plimsoll.recorder import Recorder, Refused, substituted

KerasTensor = keras.KerasTensor


class Gradient:
    """Stands for the gradient of one variable. It can be clipped and applied; everything else is refused."""

    def __init__(self, of, variable, clip=None):
        self.__dict__.update(of=of, variable=variable, clip=clip)

    def _refused(self, *_, **__):
        raise Refused("it changes the gradients before it applies them")

    def __getattr__(self, name):
        if name.startswith("__") or name == "_keras_history":
            raise AttributeError(name)
        self._refused()

    __array__ = __tf_tensor__ = __iter__ = __len__ = __bool__ = __float__ = __int__ = __getitem__ = _refused
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __neg__ = __pow__ = _refused


class Norm(Gradient):
    """Stands for the norm of all gradients, which nobody may read."""


class Target:
    """A call of GradientTape.gradient(): the loss, the variables, and how many updates came before it."""

    def __init__(self, tensor, variables):
        self.tensor, self.variables = tensor, variables


class Update:
    """A call of an optimizer: `variables` go along the gradients of `target`, clipped as `clip` says."""

    def __init__(self, optimizer, target, variables, clip):
        self.optimizer, self.target, self.variables, self.clip = optimizer, target, variables, clip


class Result:
    """Stands for the result of a metric."""

    def __init__(self, metric):
        self.metric = metric


class StepRecorder(Recorder):
    """Records a step. `version` counts the updates so far: a variable that is read has the value after these."""

    step = True

    def __init__(self, batch, trains):
        super().__init__(batch)
        self.scope.collect_losses = True
        self.trains = trains
        self.phase = trains
        self.updates = []  # Update
        self.metrics = []  # (metric, value, weight), as update_state() was called
        self.draws_made = []  # Draw
        self.models = []  # that the step calls, in order
        self.adds_regularization = None  # the marker, once the step has asked for it

    @property
    def version(self):
        return len(self.updates)

    def inlines(self, layer, training):
        """Whether a layer of Keras is called in the other phase than the engine's, and computes something else there."""
        return bool(training) != self.trains and changes_in_training(layer)

    def enter(self, layer, call, args, kwargs):
        if isinstance(layer, keras.Model) and all(layer is not model for model in self.models):
            self.models.append(layer)
        with substituted(layer, self):
            return call(*args, **kwargs)

    def record(self, what, config, args, kwargs, outputs, batched=None):
        before = len(self.nodes)
        made = super().record(what, config, args, kwargs, outputs, batched)
        for node in self.nodes[before:]:
            node.version = self.version
        return made

    def _key(self, what, config, args, kwargs):
        if isinstance(what, Layer) and changes_in_training(what):
            return None  # each call draws numbers, or moves statistics
        key = super()._key(what, config, args, kwargs)
        return key and f"{self.version} {key}"

    def drawn(self, name, plain, arguments):
        """Numbers of Keras's: an input of the step."""
        if any(isinstance(leaf, KerasTensor) for leaf in tree.flatten(arguments)):
            raise Refused(f"it calls keras.random.{name}() with numbers that it has computed")
        shape = tuple(int(d) for d in arguments["shape"])
        if self.fixed and shape[:1] == (self.fixed,):
            shape = (self.batch, *shape[1:])
        if not shape or shape[0] % self.batch:
            raise Refused(f"it draws {name} numbers of shape {list(shape)}, whose first dimension is not the batch")
        dtype = arguments.get("dtype") or ("int32" if name == "randint" else keras.config.floatx())
        draw = Draw(plain, arguments, shape[0] // self.batch, shape[1:])
        self.draws_made.append(draw)
        draw.tensor = KerasTensor(shape, dtype=keras.backend.standardize_dtype(dtype))
        self.record("Draw", {"draw": len(self.draws_made) - 1}, (), {}, draw.tensor, batched=True)
        return draw.tensor

    def add_loss(self, layer, loss):
        if self.scope.layers:
            return
        for one in tree.flatten(loss):
            if not isinstance(one, KerasTensor):
                raise Refused("it calls add_loss() with something that is no tensor")
            self.scope.losses.append(one)
            layer._loss_ids.add(id(one))

    def regularization(self, layer):
        """What stands for the losses that the engine adds itself: of weights' regularizers."""
        if not any(variable.regularizer is not None for variable in layer.trainable_weights):
            return []
        if self.adds_regularization is None:
            self.adds_regularization = self.source("Regularization", {}, (), "float32")
        return [self.adds_regularization]


class Draw:
    """Random numbers of Keras's for `times` batches, to be drawn each time the step runs."""

    def __init__(self, plain, arguments, times, shape):
        self.plain, self.times, self.shape = plain, times, shape
        self._arguments = dict(arguments)

    @property
    def variables(self):
        """The state of its generator."""
        seed = self._arguments.get("seed")
        if seed is None:
            seed = keras.src.random.seed_generator.global_seed_generator()
        return [seed.state] if isinstance(seed, keras.random.SeedGenerator) else []

    def __call__(self, batch):
        made = self.plain(**{**self._arguments, "shape": (self.times * batch, *self.shape)})
        return keras.ops.convert_to_numpy(made)


def changes_in_training(layer):
    """Whether a layer of Keras computes something else in training: it draws numbers or uses the batch's statistics."""
    statistics = (keras.layers.BatchNormalization, keras.layers.SpectralNormalization)
    return any(isinstance(one, statistics) or getattr(one, "seed_generator", None) is not None
               for one in (layer, *layer._flatten_layers(include_self=False, recursive=True)))


class _Patches:
    def __init__(self):
        self._undo = []

    def put(self, owner, name, made):
        self._undo.append((owner, name, owner.__dict__.get(name)))
        setattr(owner, name, made)

    def undo(self):
        for owner, name, own in reversed(self._undo):
            delattr(owner, name) if own is None else setattr(owner, name, own)


@contextlib.contextmanager
def _stepping(recorder):
    patches = _Patches()
    try:
        _patch_tape(patches, recorder)
        optimizer = keras.optimizers.Optimizer
        patches.put(optimizer, "apply_gradients", lambda self, pairs, **_: _apply(recorder, self, *_unzipped(pairs)))
        patches.put(optimizer, "apply", lambda self, grads, trainable_variables=None: _apply(recorder, self, grads, trainable_variables))
        patches.put(Layer, "_get_regularization_losses", lambda self: recorder.regularization(self))
        _patch_metrics(patches, recorder)
        yield
    finally:
        patches.undo()


def _patch_tape(patches, recorder):
    import tensorflow as tf
    from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function

    tape = tf.GradientTape
    patches.put(tape, "__enter__", lambda self: self)
    patches.put(tape, "__exit__", lambda self, *exception: None)
    patches.put(tape, "watch", lambda self, tensor: None)
    patches.put(tape, "gradient", lambda self, target, sources, *_, **__: _gradient(target, sources))
    patches.put(Function, "__call__", lambda self, *arguments, **named: self.python_function(*arguments, **named))
    patches.put(tf, "clip_by_global_norm", _clip_all(tf.clip_by_global_norm))
    patches.put(tf, "clip_by_norm", _clip_one("clipnorm", tf.clip_by_norm))
    patches.put(tf, "clip_by_value", _clip_value(tf.clip_by_value))


def _gradient(target, sources):
    if isinstance(target, (list, tuple)):
        target = sum(target[1:], target[0])
    variables = tree.flatten(sources)
    if not isinstance(target, KerasTensor):
        raise Refused("it takes the gradient of something that does not depend on its data")
    if not all(isinstance(v, keras.Variable) for v in variables):
        raise Refused("it takes the gradient for something else than variables")
    made = Target(target, variables)
    return tree.map_structure(lambda variable: Gradient(made, variable), sources)


def _clip_all(plain):
    def clip_by_global_norm(t_list, clip_norm, *rest, **named):
        if not any(isinstance(g, Gradient) for g in t_list):
            return plain(t_list, clip_norm, *rest, **named)
        return [_clipped(g, "global_clipnorm", clip_norm) for g in t_list], Norm(None, None)

    return clip_by_global_norm


def _clip_one(how, plain):
    def clip(t, clip_norm, *rest, **named):
        return _clipped(t, how, clip_norm) if isinstance(t, Gradient) else plain(t, clip_norm, *rest, **named)

    return clip


def _clip_value(plain):
    def clip_by_value(t, clip_value_min, clip_value_max, *rest, **named):
        if not isinstance(t, Gradient):
            return plain(t, clip_value_min, clip_value_max, *rest, **named)
        if clip_value_min != -clip_value_max:
            t._refused()
        return _clipped(t, "clipvalue", clip_value_max)

    return clip_by_value


def _clipped(gradient, how, bound):
    if not isinstance(gradient, Gradient) or gradient.clip is not None or not isinstance(bound, (int, float)):
        gradient._refused()
    return Gradient(gradient.of, gradient.variable, (how, float(bound)))


def _unzipped(pairs):
    pairs = list(pairs)
    return [gradient for gradient, _ in pairs], [variable for _, variable in pairs]


def _apply(recorder, optimizer, gradients, variables):
    gradients = list(gradients)
    if not gradients or not all(isinstance(g, Gradient) for g in gradients):
        raise Refused("it applies something that is no gradient of this step")
    if any(g.of is not gradients[0].of for g in gradients):
        raise Refused("it applies gradients of several losses in one update")
    if any(g.clip != gradients[0].clip for g in gradients):
        raise Refused("it clips some gradients only")
    if variables is not None and any(a.variable is not b for a, b in zip(gradients, variables, strict=True)):
        raise Refused("it applies the gradient of one variable to another")
    if len(gradients) != len(gradients[0].of.variables):
        raise Refused("it applies some of the gradients only")
    if any(update.optimizer is optimizer for update in recorder.updates):
        raise Refused("an optimizer makes several updates in one step")
    recorder.updates.append(Update(optimizer, gradients[0].of, [g.variable for g in gradients], gradients[0].clip))


def _patch_metrics(patches, recorder):
    metric_class = keras.metrics.Metric
    for one in _subclasses(metric_class):
        if one.__module__ == "keras.src.trainers.compile_utils":
            continue  # it asks the metrics inside
        if "result" in one.__dict__:
            patches.put(one, "result", lambda self: Result(self))
    patches.put(keras.metrics.Mean, "update_state", lambda self, values, sample_weight=None: _noted(recorder, self, values, sample_weight))
    for one in (metric_class, keras.metrics.Sum):
        patches.put(one, "update_state", _refuse_update)
    patches.put(metric_class, "reset_state", _refuse_update)


def _subclasses(one):
    yield one
    for each in one.__subclasses__():
        yield from _subclasses(each)


def _refuse_update(self, *_, **__):
    raise Refused(f"it updates the metric '{self.name}' ({type(self).__name__}), which is no mean")


def _noted(recorder, metric, values, sample_weight):
    if isinstance(sample_weight, KerasTensor):
        if not isinstance(values, KerasTensor) or tuple(values.shape) != tuple(sample_weight.shape):
            raise Refused(f"it updates the metric '{metric.name}' with weights of another shape than its values")
        weights = keras.ops.cast(sample_weight, "float32")
        values, sample_weight = keras.ops.sum(values * weights), keras.ops.sum(weights)
    recorder.metrics.append((metric, values, sample_weight))


class Step:
    """A recorded step. `values`: what is computed beside the losses. `returned`: what it returns."""

    def __init__(self, recorder, inputs, returned):
        self.recorder, self.inputs, self.returned = recorder, inputs, returned
        self.losses, self.values = [], {}
        self.weights = []  # of each update of a metric: None, a number, Batches, or a tensor: then its value is a sum

    @property
    def nodes(self):
        return self.recorder.nodes


class Batches:
    """In the place of a number: the samples of so many batches."""

    def __init__(self, times):
        self.times = times


class Value:
    """A number of the step as numbers per sample, of which it is the mean or the sum."""

    def __init__(self, tensor, rows, kind, regularized):
        self.tensor, self.rows, self.kind, self.regularized = tensor, rows, kind, regularized


def record(function, specs, who, trains=True, fixed=None):
    """Calls function(*symbolic tensors) for two sizes of the batch, and returns both recordings.

    `fixed`: the size of every batch, if it is known. A step that cannot be recorded may have this number in its code.
    """
    try:
        return trace.guarded(who, lambda: [_record(function, specs, batch, trains) for batch in trace.BATCHES])
    except errors.Unsupported:
        if not fixed or fixed < 2:
            raise
        return trace.guarded(who, lambda: [_record(function, specs, batch, trains, fixed) for batch in trace.BATCHES])


def _record(function, specs, batch, trains, fixed=None):
    recorder = StepRecorder(batch, trains)
    recorder.fixed = fixed
    inputs = tree.map_structure(lambda s: KerasTensor((batch, *s.shape), dtype=s.dtype), specs)
    for tensor in tree.flatten(inputs):
        recorder.input(tensor)
    with trace.recording(recorder), _stepping(recorder):
        step = Step(recorder, inputs, function(*inputs))
        _take_apart(step)
    return step


def _take_apart(step):
    recorder = step.recorder
    for update in recorder.updates:
        step.losses.append(_value(recorder, update.target.tensor, "sum"))
    for _, value, weight in recorder.metrics:
        _add_value(step, value)
        _add_value(step, weight)
    for leaf in tree.flatten(step.returned):
        if isinstance(leaf, KerasTensor) and leaf.shape:
            raise Refused(f"it returns a tensor of shape [batch, {', '.join(map(str, leaf.shape[1:]))}], and not one number")
        _add_value(step, leaf)


def _add_value(step, tensor):
    if not isinstance(tensor, KerasTensor) or id(tensor) in step.values:
        return
    value = next((loss for loss in step.losses if loss.tensor is tensor and not tensor.shape), None)
    step.values[id(tensor)] = value or _value(step.recorder, tensor, "mean", tracked=True)


def _value(recorder, tensor, whole, tracked=False):
    """`whole`: what a tensor that is not one number stands for, "mean" or "sum" over all of it."""
    if not recorder.batched(tensor):
        raise Refused("a loss or a result does not depend on its data")
    kept, regularized = _without_regularization(recorder, tensor)
    if kept.shape:
        kept = keras.ops.mean(kept) if whole == "mean" else keras.ops.sum(kept)
    rows, kind = objective.per_sample(recorder, kept)
    rows = keras.ops.cast(keras.ops.stop_gradient(rows) if tracked else rows, "float32")
    rows = objective.folded(recorder, rows, kind)
    return Value(tensor, keras.ops.reshape(rows, (recorder.batch, 1)), kind, regularized)


def _without_regularization(recorder, tensor):
    """Takes the marker of the regularizers out of a sum."""
    marker = recorder.adds_regularization
    node, _ = recorder.place(tensor)
    if marker is None or node is None or isinstance(node.what, str) or type(node.what).__name__ != "Add":
        return tensor, False
    a, b = node.args
    if a is marker or b is marker:
        return (b if a is marker else a), True
    if isinstance(a, KerasTensor):
        kept, found = _without_regularization(recorder, a)
        if found:
            return kept + b, True
    return tensor, False
