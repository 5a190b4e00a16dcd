"""Who has the newer weights: the engine's memory or the live Keras model.

The engine trains. The live model's variables follow when somebody looks: a variable that is read takes its value from
the engine first, and a variable that is assigned is written to the engine before the next step. So callbacks see the
weights of this batch, and nothing is copied for those that do not look.

Reading in Python is not enough. A compiled function of TensorFlow reads its variables without asking Python, and inside a
JAX trace or a stateless scope a value must not be replaced. So everything is brought up to date before a public method
of a model, or a compiled function, runs.
"""

import contextlib
import functools
import sys

import keras
import numpy as np
from keras.src import backend

from plimsoll import arrays, errors

# evaluate() and predict() of a model that trains run in its engine (hook.py).
_ENTRIES = ("__call__", "train_on_batch", "test_on_batch", "predict_on_batch", "save", "save_weights", "get_weights", "set_weights",
            "load_weights", "export")
_active = []  # the links of fits that are running


class Link:
    """Ties an engine to a live model while they train."""

    def __init__(self, engine, model, optimizer=None, variables=None):
        self.engine = engine
        self.optimizer = optimizer or model.optimizer
        self._rate = None
        self._iterations = self.optimizer.iterations
        self._tie([*pair(engine, list(model.weights) if variables is None else variables, self.optimizer),
                   (self._get_iterations, self._put_iterations, self._iterations)])

    def _tie(self, pairs):
        """`pairs`: (get, put, variable) of everything that the engine holds."""
        self.pulls = 0
        self._busy = False
        self._steps = 0  # counts the engine's steps
        self._reached = {}  # id of a variable -> the step whose value it has
        self._written = set()  # ids of variables that the host assigned
        self._by_id = {id(variable): (get, put, variable) for get, put, variable in pairs}

    @property
    def is_active(self):
        return self in _active

    def __enter__(self):
        for other in list(_active):
            if other._by_id.keys() & self._by_id.keys():
                other.__exit__()  # this engine takes the variables over
        for _, _, variable in self._by_id.values():
            _watch(variable, self)
        self.touched()
        _active.append(self)
        _patch()
        return self

    def __exit__(self, *exception):
        if not self.is_active:
            return  # another engine has taken over
        try:
            self.pull_all()
        finally:
            _active.remove(self)
            _unpatch()
            for _, _, variable in self._by_id.values():
                _unwatch(variable)

    def close(self):
        """Lets the engine go. A traceback that a notebook keeps may hold this object for long."""
        self.engine = None
        self._by_id = {}

    def _get_iterations(self):
        return np.array(self.engine.iterations())

    def _put_iterations(self, value):
        self.engine.set_iterations(int(value))

    def before_step(self, schedule=None):
        """Writes to the engine what the host has assigned since the last step."""
        with self._quiet():
            for key in self._written:
                _, put, variable = self._by_id[key]
                value = np.asarray(backend.convert_to_numpy(variable))
                put(np.require(value, requirements="C") if value.dtype.kind != "V" else value.astype(np.float32))
            self._written.clear()
            self._set_rate(schedule)

    def _set_rate(self, schedule):
        rate = self.optimizer._learning_rate
        if schedule is not None:
            rate = schedule(self.engine.iterations())
        elif not isinstance(rate, backend.Variable):
            return  # the engine computes Keras's own schedules
        value = float(backend.convert_to_numpy(rate))
        if value != self._rate:
            self.engine.set_learning_rate(value)
            self._rate = value

    def after_step(self):
        self._steps += 1

    def held(self, variable):
        """The engine's value of a variable."""
        return self._by_id[id(variable)][0]()

    def holds(self, variable):
        return id(variable) in self._by_id

    @property
    def variables(self):
        return [variable for _, _, variable in self._by_id.values()]

    def is_stale(self, variable):
        return self._reached.get(id(variable), 0) < self._steps and id(variable) not in self._written

    def pull(self, variable):
        if self._busy or not self.is_stale(variable):
            return
        get, _, _ = self._by_id[id(variable)]
        with self._quiet():
            value = get()
            variable._direct_assign(variable._convert_to_tensor(value, dtype=variable.dtype))
        self._reached[id(variable)] = self._steps
        self.pulls += 1

    def pull_all(self):
        for _, _, variable in self._by_id.values():
            self.pull(variable)

    def assigned(self, variable):
        if not self._busy:
            self._written.add(id(variable))

    def touched(self):
        """Code that cannot be watched may have assigned any variable."""
        if not self._busy:
            self.pull_all()
            self._written = set(self._by_id)

    @contextlib.contextmanager
    def _quiet(self):
        before, self._busy = self._busy, True
        try:
            yield
        finally:
            self._busy = before


def state_of(optimizer):
    """The optimizer's variables after the iteration and the learning rate."""
    first = (optimizer.iterations, getattr(optimizer, "_learning_rate", None))
    return [variable for variable in optimizer.variables if all(variable is not other for other in first)]


def pair(engine, variables, optimizer):
    """(get, put, variable) for every weight and optimizer variable that the engine holds."""
    pairs = match_weights(engine, variables)
    held, live = engine.optimizer_variables(), state_of(optimizer)
    if len(held) != len(live):
        raise _mismatch("optimizer variables", [name for name, _, _ in held], [variable.path for variable in live])
    for (name, shape, _), variable in zip(held, live, strict=True):
        if not name:
            continue  # it never changes
        if tuple(shape) != tuple(variable.shape):
            raise _mismatch(f"shape of {name}", [shape], [tuple(variable.shape)])
        pairs.append((functools.partial(engine.optimizer_variable, name), functools.partial(engine.set_optimizer_variable, name), variable))
    return pairs


def put_all(engine, variables):
    """Writes the live variables to the engine."""
    for _, put, variable in match_weights(engine, variables):
        put(np.require(backend.convert_to_numpy(variable), requirements="C"))


def match_weights(engine, live):
    """(get, put, variable) for every weight; `live`: the variables in the engine's order."""
    held = engine.weights()
    if len(held) != len(live):
        raise _mismatch("weights", [name for name, _, _ in held], [variable.path for variable in live])
    pairs = []
    for (name, shape, _), variable in zip(held, live, strict=True):
        if tuple(shape) != tuple(variable.shape) or not name.rsplit("/", 1)[-1].startswith(variable.path.rsplit("/", 1)[-1]):
            raise _mismatch(f"weight {name}", [f"{name} {tuple(shape)}"], [f"{variable.path} {tuple(variable.shape)}"])
        pairs.append((functools.partial(engine.weight, name), functools.partial(engine.set_weight, name), variable))
    return pairs


def _mismatch(what, ours, theirs):
    return errors.Unsupported(
        f"the {what} of the live model are not those that Plimsoll makes of its configuration",
        [f"Plimsoll: {len(ours)}: {', '.join(map(str, ours[:8]))}", f"Keras: {len(theirs)}: {', '.join(map(str, theirs[:8]))}"],
        ["report this model: it should have been paired"],
    )


def _watch(variable, link):
    variable.__class__ = _watched_class(type(variable))
    variable._plimsoll_link = link


def _unwatch(variable):
    variable.__class__ = type(variable)._plimsoll_plain
    del variable._plimsoll_link


@functools.lru_cache(maxsize=None)
def _watched_class(plain):
    class Watched(plain):
        _plimsoll_plain = plain

        @property
        def value(self):
            if not backend.in_stateless_scope():
                self._plimsoll_link.pull(self)
            return plain.value.fget(self)

        def numpy(self):
            if not backend.in_stateless_scope():
                self._plimsoll_link.pull(self)
            return plain.numpy(self)

        def assign(self, value):
            made = plain.assign(self, value)
            if not backend.in_stateless_scope():
                self._plimsoll_link.assigned(self)
            return made

    Watched.__name__, Watched.__qualname__, Watched.__module__ = plain.__name__, plain.__qualname__, plain.__module__
    return Watched


def pull_everything():
    """Brings all live models up to date, unless a trace or a stateless scope is in progress."""
    if backend.in_stateless_scope() or any(link._busy for link in _active):
        return
    for link in list(_active):
        link.pull_all()


def everything_touched():
    for link in _active:
        link.touched()


_undo = []


def _patch():
    if _undo:
        return
    for name in _ENTRIES:
        _wrap(keras.Model, name, _before(getattr(keras.Model, name)))
    if "tensorflow" in sys.modules:
        from plimsoll import graphs

        graphs.install()  # compiled functions


def _wrap(owner, name, wrapper):
    own = owner.__dict__.get(name)
    setattr(owner, name, wrapper)
    _undo.append((owner, name, own))


def _before(method):
    @functools.wraps(method)
    def entry(self, *arguments, **named):
        pull_everything()
        return method(self, *arguments, **named)

    return entry


def _unpatch():
    if _active:
        return
    while _undo:
        owner, name, own = _undo.pop()
        if own is None:
            delattr(owner, name)
        else:
            setattr(owner, name, own)
