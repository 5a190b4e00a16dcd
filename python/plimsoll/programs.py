"""A recorded training step as the programs that the engine runs for it, in order: one per update of an optimizer.

Each program is a Functional model whose inputs are the step's data and random numbers, and whose outputs are numbers per
sample: those of the loss that it trains for, and those of other values that the step reports.
"""

import json

import keras
import numpy as np
from keras.src import tree

from plimsoll import assemble, describe, errors, objective, split, steps, trace
from plimsoll.recorder import Refused, TracedVariable

KerasTensor = keras.KerasTensor


class Program:
    """`described`: what the engine gets. `trained`: the variables that it updates. `needs`: id of a variable -> after how many
    updates of this step it must have its value. `inputs`: pairs of a name and where the numbers come from. `outputs`: the
    steps.Value of each output, the loss first."""

    def __init__(self, described, update, nodes, values, inputs, needs):
        self.described, self.update, self.values, self.inputs, self.needs = described, update, values, inputs, needs
        self.nodes = nodes
        self.trained = update.variables if update else []

    @property
    def optimizer(self):
        return self.update.optimizer if self.update else None

    def log_name(self, value):
        """The engine's name of a value; None if the program does not compute it."""
        if value is self.values[0]:
            return "loss" if value.regularized or len(self.values) == 1 else "value_0_loss"
        return next((f"value_{i}_loss" for i, other in enumerate(self.values) if other is value), None)


def make(recordings, roots, who):
    """The programs of a step. `roots`: the models whose layers it uses; None: those that it calls."""
    first, second = recordings
    _compare(first, second, who)
    used = _used(first.recorder, [value.rows for value in (*first.losses, *first.values.values())])
    trace.generalise(first, second, who, used)

    def build():
        nodes = split.split(first, used)
        drafts = _drafts(first, nodes)
        _check_layers(first, nodes, drafts)
        if any(draft.update is not None and draft.values[0].kind == "sum" for draft in drafts):
            objective.warn_of_sum(who)
        return [_written(first, nodes, draft, roots or first.recorder.models, who) for draft in drafts]

    return trace.guarded(who, build)


def _compare(first, second, who):
    a, b = first.recorder, second.recorder
    same = len(a.updates) == len(b.updates) and len(a.metrics) == len(b.metrics) and len(a.draws_made) == len(b.draws_made)
    same = same and all(x.optimizer is y.optimizer and x.clip == y.clip for x, y in zip(a.updates, b.updates, strict=True))
    same = same and all(x[0] is y[0] for x, y in zip(a.metrics, b.metrics, strict=True))
    if not same or len(tree.flatten(first.returned)) != len(tree.flatten(second.returned)):
        raise errors.Unsupported("it cannot be traced", [f"{who}: it does something else each time it is called"])
    first.weights = trace.guarded(who, lambda: [_weight(x[2], y[2]) for x, y in zip(a.metrics, b.metrics, strict=True)])
    for x, y in zip(tree.flatten(first.returned), tree.flatten(second.returned), strict=True):
        if not isinstance(x, (KerasTensor, steps.Result)) and _weight(x, y) is not None and not _is_number(x):
            raise errors.Unsupported("it cannot be traced", [f"{who}: it returns something that is no number: {type(x).__name__}"])


def _is_number(value):
    return isinstance(value, (int, float, np.generic)) or keras.ops.is_tensor(value)


def _weight(a, b):
    """A number of both traces: itself, or the count of samples."""
    if a is None or isinstance(a, KerasTensor):
        return a
    a, b = (float(np.asarray(keras.ops.convert_to_numpy(n))) for n in (a, b))
    if a == b:
        return a
    times = trace.times(int(a), int(b))
    if not times:
        raise Refused("it reports a number that is another one each time it is called")
    return steps.Batches(times)


def _used(recorder, outputs):
    used, waiting = set(), list(outputs)
    while waiting:
        node, _ = recorder.place(waiting.pop())
        if node is None or id(node) in used:
            continue
        used.add(id(node))
        waiting += [t for t in tree.flatten((node.args, node.kwargs)) if isinstance(t, KerasTensor) and not isinstance(t, TracedVariable)]
    return used


class _Draft:
    """The nodes, values and weights of a program before it is written."""

    def __init__(self, step, nodes, update, values):
        self.step, self.all, self.update, self.values = step, nodes, update, list(values)
        self.find()

    def find(self):
        used = _used(self.step.recorder, [value.rows for value in self.values])
        self.nodes = [node for node in self.all if id(node) in used]
        self.needs = {}
        for node in self.nodes:
            for variable in _read(node):
                wanted = sum(any(v is variable for v in update.variables) for update in self.step.recorder.updates[: node.version])
                if self.needs.setdefault(id(variable), wanted) != wanted:
                    raise Refused(f"it computes with '{variable.path}' before and after its update")

    def with_value(self, value):
        return _Draft(self.step, self.all, self.update, [*self.values, value])


def _read(node):
    if node.is_layer:
        return node.what.weights
    return [leaf.variable for leaf in tree.flatten((node.args, node.kwargs)) if isinstance(leaf, TracedVariable)]


def _drafts(step, nodes):
    updates = step.recorder.updates
    for i, update in enumerate(updates):
        for other in updates[:i]:
            twice = [v.path for v in update.variables if any(v is w for w in other.variables)]
            if twice:
                raise Refused(f"it updates '{twice[0]}' twice in one step")
    drafts = [_Draft(step, nodes, update, [loss]) for update, loss in zip(updates, step.losses, strict=True)]
    if not drafts:
        return [_Draft(step, nodes, None, sorted(dict.fromkeys(step.values.values()), key=lambda value: not value.regularized))]
    for value in dict.fromkeys(step.values.values()):
        if value not in step.losses:
            _place(drafts, value)
    return drafts


def _place(drafts, value):
    """Adds a value to the program that computes most of it already."""
    best = None
    for i, draft in enumerate(drafts):
        try:
            added = draft.with_value(value)
        except Refused:
            continue
        late = any(wanted and not any(_updates(other, key) for other in drafts[:i]) for key, wanted in added.needs.items())
        more = len(added.nodes) - len(draft.nodes)
        if not late and (best is None or more < best[0]):
            best = (more, i, added)
    if best is None:
        raise Refused("it reports a value that is computed with weights from before and after an update")
    drafts[best[1]] = best[2]


def _updates(draft, key):
    return draft.update is not None and any(id(v) == key for v in draft.update.variables)


def _check_layers(step, nodes, drafts):
    """Refuses what would be drawn or moved more than once: each program computes its own calls of layers."""
    if not step.recorder.trains:
        return
    for node in step.nodes:
        if not node.is_layer or not steps.changes_in_training(node.what):
            continue
        layer = node.what
        calls = [one for one in step.nodes if one.is_layer and one.what is layer]
        holding = [draft for draft in drafts if any(one is node for one in draft.nodes)]
        if _has_statistics(layer):
            trained = all(any(v is w for w in draft.update.variables) for draft in holding for v in layer.trainable_variables)
            if layer.trainable and (not trained or len(holding) != 1 or len(calls) != 1):
                raise Refused(f"'{layer.name}' moves its statistics in a step that does not train it alone")
        elif len(holding) > 1:
            raise Refused(f"the random numbers of '{layer.name}' are used by several updates")


def _has_statistics(layer):
    kinds = (keras.layers.BatchNormalization, keras.layers.SpectralNormalization)
    return any(isinstance(one, kinds) for one in (layer, *layer._flatten_layers(include_self=False, recursive=True)))


class _Writer(assemble.Writer):
    """Writes one program: its weights alone, of which it trains some."""

    def __init__(self, traced, who, draft):
        super().__init__(traced, who)
        self._trained = {id(v) for v in draft.update.variables} if draft.update else None
        self._reads = {id(v) for node in draft.nodes if not node.is_layer for v in _read(node)}

    def _trains(self, variable):
        return bool(variable.trainable) if self._trained is None else id(variable) in self._trained

    def _frozen(self, layer):
        if self._trained is None:
            return {}
        trained = [id(v) in self._trained for v in layer.trainable_variables]
        if any(trained) and not all(trained):
            self.refuse(f"it trains some weights of '{layer.name}' only")
        return {} if any(trained) or not trained else {"trainable": False}

    def _weights_entry(self, name, layer, variables):
        if any(id(v) in self._reads for v in variables):
            super()._weights_entry(name, layer, variables)

    def program(self, name, roots, inputs, outputs):
        for tensor, in_name in inputs:
            self._entries[in_name] = assemble._input_layer(in_name, tensor)
            self._places[id(tensor)] = [in_name, 0, 0]
        used = {id(node) for node in self.traced.nodes}
        seen = set()
        for root in roots:
            self._list_weights(root, used, (), seen)
        for node in self.traced.nodes:
            if node.what not in ("Draw", "Regularization"):
                self._node(node)
        return self._functional(name, [tensor for tensor, _ in inputs], [self._end(tensor, out) for tensor, out in outputs])


class _Nodes:
    def __init__(self, nodes, recorder):
        self.nodes, self.recorder = nodes, recorder


def _written(step, nodes, draft, roots, who):
    update, recorder = draft.update, step.recorder
    if update is not None:
        describe.refuse_optimizer(update.optimizer)
        if not draft.values[0].regularized and any(v.regularizer is not None for v in update.variables):
            raise Refused("its loss leaves the regularizers of the weights out: sum(self.losses) has them")
    if any(value.regularized for value in draft.values[1:]):
        raise Refused("it reports a value with the regularizers' losses that it does not train for")
    writer = _Writer(_Nodes(draft.nodes, recorder), who, draft)
    inputs = _inputs(step, draft)
    outputs = [(value.rows, f"value_{i}") for i, value in enumerate(draft.values)]
    architecture = writer.program("step", roots, [(tensor, name) for tensor, name, _ in inputs], outputs)
    if update is not None:
        _check_order(writer, update)
    compiled, schedule = _compiled(draft)
    writer.face = None
    described = describe.Described(None, architecture, compiled, schedule, writer)
    return Program(described, update, draft.nodes, draft.values, [(name, source) for _, name, source in inputs], draft.needs)


def _inputs(step, draft):
    """(tensor, name, source) of the data and draws that the nodes read. A source: ("data", leaf) or ("draw", number, part)."""
    read = {id(t) for node in draft.nodes for t in tree.flatten((node.args, node.kwargs)) if isinstance(t, KerasTensor)}
    read |= {id(value.rows) for value in draft.values}
    inputs = [(t, f"data_{i}", ("data", i)) for i, t in enumerate(tree.flatten(step.inputs)) if id(t) in read]
    for node in draft.nodes:
        if node.what == "Draw":
            number, part = node.config["draw"], node.config.get("part", 0)
            inputs.append((node.outputs, f"draw_{number}_{part}", ("draw", number, part)))
    if not inputs:
        raise Refused("its loss does not depend on its data")
    return inputs


def _check_order(writer, update):
    ours = [v for v in writer.variables if writer._trains(v)]
    theirs = update.variables
    if len(ours) == len(theirs) and all(a is b for a, b in zip(ours, theirs, strict=True)):
        return
    unused = [v.path for v in theirs if all(v is not other for other in ours)]
    writer.refuse(f"its loss does not depend on these weights: {', '.join(unused[:5])}" if unused
                  else "it lists the weights in another order than their layers")


def _compiled(draft):
    weights = [1.0 if i == 0 else 0.0 for i in range(len(draft.values))]
    compiled = {"optimizer": None, "loss": [_mean(value) for value in draft.values], "loss_weights": weights, "metrics": None,
                "weighted_metrics": None}
    if len(draft.values) == 1:
        compiled.update(loss=compiled["loss"][0], loss_weights=None)
    if draft.update is None:
        return compiled, None
    with describe.without_tensorflow():
        compiled["optimizer"] = json.loads(json.dumps(keras.saving.serialize_keras_object(draft.update.optimizer), default=describe._number))
    schedule = describe.own_schedule(draft.update.optimizer)
    config = compiled["optimizer"]["config"]
    if schedule is not None:
        config["learning_rate"] = 1e-3  # set before each step
    if draft.update.clip is not None:
        how, bound = draft.update.clip
        if any(config.get(key) is not None for key in ("clipnorm", "global_clipnorm", "clipvalue")):
            raise Refused("it clips gradients, and its optimizer clips them too")
        config[how] = bound
    return compiled, schedule


def _mean(value):
    """The loss whose rows are the prediction."""
    tensors = {name: assemble._tensor([None, 1], "float32", [name, 0, 0]) for name in ("y_true", "y_pred")}
    copied = {"module": "keras.src.ops.numpy", "class_name": "Copy", "registered_name": None, "name": "rows", "config": {"name": "rows"},
              "inbound_nodes": [{"args": [tensors["y_pred"]], "kwargs": {}}]}
    layers = [assemble._input_layer(name, KerasTensor((None, 1), dtype="float32")) for name in tensors]
    model = {"module": "keras", "class_name": "Functional", "registered_name": None, "config": {
        "name": "loss", "trainable": True, "layers": [*layers, copied], "input_layers": [[name, 0, 0] for name in tensors],
        "output_layers": [["rows", 0, 0]]}}
    return {"module": trace.TRACED, "class_name": "TracedLoss", "registered_name": None, "config": {
        "model": model, "target": [1], "integers": False, "labels": False, "name": "loss",
        "reduction": "sum" if value.kind == "sum" else "sum_over_batch_size"}}
