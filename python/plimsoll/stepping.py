"""Training steps of the user's own, run by the engine: one engine per program of the step (programs.py).

An engine holds its own copy of each weight that its program reads. After a program has updated weights, the programs that
read them get the new values: before they run in this step, if the step reads them after the update, else after the step.
"""

import functools

import keras
import numpy as np
from keras.src import backend, tree
from keras.src.trainers.data_adapters import data_adapter_utils

from plimsoll import _core, arrays, link, memory, plans
from plimsoll.steps import Batches, Result


def plan(programs, options, account):
    """One Plan per program. Each leaves room for the others, which all stay in memory."""
    alone = [_planned(program, options, account.reserved, account) for program in programs]
    if len(alone) == 1 or not all(each.fits for each in alone):
        return alone
    sizes = [_size(each) for each in alone]
    together = [_planned(p, options, account.reserved + sum(sizes) - size, account) for p, size in zip(programs, sizes, strict=True)]
    if all(each.fits for each in together):
        return together
    sizes = [each.least_bytes - each.data_bytes for each in alone]
    made = []
    for i, program in enumerate(programs):
        made.append(_planned(program, options, account.reserved + sum(sizes) - sizes[i], account))
        sizes[i] = _size(made[i])
    return made


def _size(plan_of_program):
    return plan_of_program.arena_bytes + plan_of_program.overhead_bytes


def _planned(program, options, reserved, account):
    with program.described.located():
        made = _core.plan(program.described.architecture, program.described.compiled, {**options, "reserved_bytes": reserved})
    return plans.Plan(made, account.lines)


class StepPlan:
    """The plans of a step's programs. It is used as the plan of the largest, and says how much all take."""

    def __init__(self, made):
        self.plans = made
        self._largest = max(made, key=lambda each: each.arena_bytes)

    def __getattr__(self, name):
        if name in ("plans", "_largest"):
            raise AttributeError(name)
        return getattr(self._largest, name)

    def __getitem__(self, name):
        return self._largest[name]

    @property
    def fits(self):
        return all(each.fits for each in self.plans)

    @property
    def arena_bytes(self):
        return sum(each.arena_bytes for each in self.plans)

    @property
    def notes(self):
        return list(dict.fromkeys(note for each in self.plans for note in each.notes))

    def summary(self):
        peak = max(each.peak_bytes for each in self.plans)
        limit = f" of {memory.format_bytes(self.budget_bytes)}" if self.budget_bytes else ""
        several = f", {len(self.plans)} updates per step" if len(self.plans) > 1 else ""
        return f"{'fits' if self.fits else 'does not fit'}: {memory.format_bytes(peak)}{limit}, batch {self.batch['effective']}{several}"

    def __str__(self):
        if len(self.plans) == 1:
            return str(self.plans[0])
        return "\n".join(f"Update {i} of {len(self.plans)}\n{each}" for i, each in enumerate(self.plans, 1))

    __repr__ = __str__

    def _repr_html_(self):
        return "".join(each._repr_html_() for each in self.plans)


class Running:
    """One program with its engine."""

    def __init__(self, program, options):
        self.program = program
        described = program.described
        self.schedule = described.schedule
        with described.located():
            self.engine = _core.Engine(described.architecture, described.compiled, options)
        self.weights = {id(v): (get, put, v) for get, put, v in link.match_weights(self.engine, described.variables)}
        self.rate = None
        moved = [v for node in program.nodes if node.is_layer for v in node.what.non_trainable_variables if id(v) in self.weights]
        self.updated = [*program.trained, *moved]

    def run(self, leaves, draws, batch, trains=True):
        """The values of one batch, by steps.Value."""
        given = []
        for name, (kind, *where) in self.program.inputs:
            given.append((name, arrays.plain(leaves[where[0]]) if kind == "data" else draws[where[0]][where[1] * batch : (where[1] + 1) * batch]))
        target = np.zeros((batch, 1), np.float32)
        names = [f"value_{i}" for i in range(len(self.program.values))]
        logs = (self.engine.step if trains else self.engine.test)(given, [(name, target) for name in names], [])
        return {value: logs[self.program.log_name(value)] for value in self.program.values}


class Engines:
    """The engines of a step, made inside one budget, and its calls."""

    def __init__(self, recorded, programs, options, account, trains=True):
        self.recorded, self.programs, self.trains = recorded, programs, trains
        options = {**options, "trains": trains}
        self.plan = StepPlan(plan(programs, options, account))
        sizes = [_size(each) for each in self.plan.plans]
        self.running = []
        for i, program in enumerate(programs):
            held = memory.resident_bytes()
            self.running.append(Running(program, {**options, "reserved_bytes": account.reserved + sum(sizes) - sizes[i]}))
            sizes[i] = max(0, sizes[i] - max(0, memory.resident_bytes() - held))  # what is not resident yet

    def run(self, data):
        """Runs the step on a batch. Returns the numbers of its values, by the id of their tensors."""
        leaves = [None if a is None else np.asarray(backend.convert_to_numpy(a)) for a in tree.flatten(data)]
        batch = len(next(a for a in leaves if a is not None))
        draws = [draw(batch) for draw in self.recorded.recorder.draws_made]
        found = {}
        late = []
        for i, one in enumerate(self.running):
            found.update(one.run(leaves, draws, batch, self.trains))
            for j, other in enumerate(self.running):
                if other is not one:
                    late += self._give(one, other, j > i)
        for get, put in late:
            put(get())
        return {key: found[value] for key, value in self.recorded.values.items()}, batch

    def _give(self, one, other, later):
        """Gives the weights that a program has updated to another. Returns those that it must not have in this step."""
        late = []
        for variable in one.updated:
            if id(variable) not in other.weights:
                continue
            get, put = one.weights[id(variable)][0], other.weights[id(variable)][1]
            if later and other.program.needs.get(id(variable), 0):
                put(get())
            else:
                late.append((get, put))
        return late

    def close(self):
        """Gives the memory of all programs back."""
        self.running = []

    def variables(self):
        return variables_of(self.recorded, self.programs)

    def owner(self, variable):
        """The program whose value of a weight is the step's."""
        return next((one for one in self.running if any(v is variable for v in one.updated)),
                    next(one for one in self.running if id(variable) in one.weights))

    def update_metrics(self, values, batch):
        """Updates the live metrics, as the step's own code would."""
        recorder = self.recorded.recorder
        for (metric, tensor, _), weight in zip(recorder.metrics, self.recorded.weights, strict=True):
            if isinstance(weight, keras.KerasTensor):  # the sum of values times weights, and that of the weights
                total, weight = values[id(tensor)], values[id(weight)]
                keras.metrics.Mean.update_state(metric, total / weight if weight else 0.0, sample_weight=weight)
                continue
            weight = weight.times * batch if isinstance(weight, Batches) else weight
            if id(tensor) in values and tensor.shape:
                weight = batch * (tensor.shape[0] // recorder.batch) * (1 if weight is None else weight)
            keras.metrics.Mean.update_state(metric, values.get(id(tensor), tensor), sample_weight=weight)

    def returned(self, values, number=float):
        """What the step returns."""
        def made(leaf):
            if isinstance(leaf, Result):
                return leaf.metric.result()
            return number(values[id(leaf)]) if id(leaf) in values else leaf

        return tree.map_structure(made, self.recorded.returned)


def variables_of(recorded, programs, others=()):
    """Everything that a step changes: weights, optimizers, metrics, generators of random numbers."""
    known = {id(v): v for v in others}
    for program in programs:
        known.update((id(v), v) for v in (*program.described.variables, *(program.optimizer.variables if program.optimizer else ())))
    for draw in recorded.recorder.draws_made:
        known.update((id(v), v) for v in draw.variables)
    for metric, _, _ in recorded.recorder.metrics:
        known.update((id(v), v) for v in metric.variables)
    return list(known.values())


class StepLink(link.Link):
    """Ties the engines of a step to the live variables."""

    def __init__(self, engines):
        self.engines = engines
        pairs = []
        for one in engines.running:
            pairs += [(get, put, v) for get, put, v in link.pair(one.engine, one.program.described.variables, one.program.optimizer)
                      if id(v) not in one.weights]
            count = one.program.optimizer.iterations
            pairs.append((lambda e=one.engine: np.array(e.iterations()), lambda n, e=one.engine: e.set_iterations(int(n)), count))
        variables = {key: v for one in engines.running for key, (_, _, v) in one.weights.items()}
        for key, variable in variables.items():
            holders = [one.weights[key][1] for one in engines.running if key in one.weights]
            pairs.append((engines.owner(variable).weights[key][0], functools.partial(_put_all, holders), variable))
        self._tie(pairs)

    def close(self):
        self.engines = None
        self._by_id = {}

    def _set_rate(self, schedule):
        for one in self.engines.running:
            rate = one.program.optimizer._learning_rate
            if one.schedule is not None:
                rate = one.schedule(one.engine.iterations())
            elif not isinstance(rate, keras.Variable):
                continue
            value = float(backend.convert_to_numpy(rate))
            if value != one.rate:
                one.engine.set_learning_rate(value)
                one.rate = value


def _put_all(holders, value):
    for put in holders:
        put(value)
