"""A traced model is compared with the real call, on samples of the first batch, before anything is trained."""

import keras
import numpy as np
from keras.src import tree

from plimsoll import errors, hook, link, stepping, tensorflow_names

_SAMPLES = 4


def compare(run, first):
    """Raises Unsupported if the engine predicts something else than Keras. Random numbers cannot be compared."""
    described = run.described
    if not described.traced or described.draws or run.tie is not None:
        return
    x = tree.map_structure(lambda a: None if a is None else np.asarray(a)[:_SAMPLES], first[0])
    link.put_all(run.engine, described.variables)
    with hook.keras_alone():
        theirs = tree.flatten(run.model(tree.map_structure(_input, x), training=False))
    for a, b in zip(tree.flatten(run.predict(x)), theirs, strict=True):
        expected = np.asarray(keras.ops.convert_to_numpy(b), np.float64)
        close = a.shape == expected.shape and np.allclose(a, expected, rtol=2e-2, atol=2e-2 * (np.abs(expected).max(initial=0) + 1e-6))
        if not close:
            raise errors.Unsupported("this model computes something else than its trace", [_told(a, expected)],
                                     ["report this model: its trace should have been right, or refused"])


def _input(array):
    return array.astype(np.float32) if array.dtype.kind == "f" else array


def _told(ours, expected):
    if ours.shape != expected.shape:
        return f"its predictions have the shape {expected.shape}, those of the trace {ours.shape}"
    return f"its predictions differ by {np.abs(ours - expected).max():.2g} of {np.abs(expected).max():.2g}"


_MOST = 1 << 16  # elements of a variable that are compared


class StepGuard:
    """A training step is run once by its own framework, on some samples, and once by the engine. Everything is put back after each."""

    def __init__(self, recorded, programs, step, data, variables):
        self._recorded, self._programs = recorded, programs
        samples = recorded.recorder.fixed or _SAMPLES
        self._data = tree.map_structure(lambda a: _input(np.asarray(a)[:samples]), data)
        self._random = any(node.is_layer and getattr(one, "seed_generator", None) is not None for program in programs for node in program.nodes
                           if node.is_layer for one in (node.what, *node.what._flatten_layers(include_self=False, recursive=True)))
        self._variables = stepping.variables_of(recorded, programs, variables)
        if not self._random:
            self._theirs = self._put_back(lambda: self._in_framework(step))

    def _put_back(self, call):
        values = [np.array(keras.ops.convert_to_numpy(v)) for v in self._variables]
        try:
            return call()
        finally:
            for variable, value in zip(self._variables, values, strict=True):
                variable.assign(value)

    def _trained(self):
        return [v for program in self._programs for v in program.trained]

    def _in_framework(self, step):
        before = [_sample(v) for v in self._trained()]
        with hook.keras_alone(), tensorflow_names.drawn_by_keras():
            made = step(tree.map_structure(keras.ops.convert_to_tensor, self._data))
        return numbers(made), before, [_sample(v) for v in self._trained()]

    def compare(self, engines, tie):
        """Raises Unsupported if the engine's step does something else than the framework's."""
        if self._random:
            return

        def ours():
            with tie:
                tie.before_step()
                values, batch = engines.run(self._data)
                engines.update_metrics(values, batch)
                return numbers(engines.returned(values)), [_sample(tie.held(v)) for v in self._trained()]

        found, after = self._put_back(ours)
        expected, before, theirs = self._theirs
        wrong = [f"{name}: {value:.6g}, by the framework {expected[name]:.6g}" for name, value in found.items()
                 if not np.isclose(value, expected[name], rtol=2e-2, atol=1e-5)]
        moved = np.sqrt(sum(np.square(a - b).sum() for a, b in zip(theirs, before, strict=True)))
        apart = np.sqrt(sum(np.square(a - b).sum() for a, b in zip(theirs, after, strict=True)))
        if not apart <= 0.1 * moved + 1e-9:
            wrong.append(f"its weights move by {moved:.3g} per step, and here by other numbers ({apart:.3g} apart)")
        if wrong:
            raise errors.Unsupported("this training step computes something else than its trace", wrong,
                                     ["report this step: its trace should have been right, or refused"])


def numbers(made):
    if not isinstance(made, dict):
        made = {f"result {i}": leaf for i, leaf in enumerate(tree.flatten(made), 1)}
    return {name: float(np.asarray(value)) for name, value in made.items() if np.ndim(value) == 0 and not isinstance(value, (dict, type(None)))}


def _sample(variable):
    flat = np.asarray(keras.ops.convert_to_numpy(variable), np.float64).reshape(-1)
    return flat[:: max(1, len(flat) // _MOST)].copy()
