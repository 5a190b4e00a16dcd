"""Plimsoll's errors as Python exceptions.

Every exception has `code` ("P301"), `what` (one line), `facts` and `remedies` (lists of lines). docs/errors has a page
per code.
"""

import functools
import re
import sys


class PlimsollError(Exception):
    """An error of Plimsoll: what is wrong, facts, and what to do."""

    code = "P101"

    def __init__(self, what, facts=(), remedies=(), code=None):
        self.what = what
        self.facts = list(facts)
        self.remedies = list(remedies)
        if code:
            self.code = code
        super().__init__(str(self))

    def __str__(self):
        lines = [f"{self.code}: {self.what}"]
        lines += [f"  {fact}" for fact in self.facts]
        lines += [("  try: " if i == 0 else "       ") + remedy for i, remedy in enumerate(self.remedies)]
        return "\n".join(lines)

    def __reduce__(self):
        return _restore, (self.code, self.what, self.facts, self.remedies)


class DoesNotFit(PlimsollError, MemoryError):
    """The model does not fit the budget, or the machine has no memory left. Nothing was trained.

    Where TensorFlow, PyTorch or JAX is loaded, `except` clauses for their own out-of-memory errors catch it too.
    """

    code = "P301"


class Unsupported(PlimsollError, NotImplementedError):
    """The model, its compilation or the call uses what Plimsoll does not do. `facts` lists all of it."""

    code = "P205"


class UsageError(PlimsollError, ValueError):
    """An argument, a model or a file is not valid."""

    code = "P201"


class DataError(PlimsollError, ValueError):
    """The data do not match the model, or have elements that are not finite."""

    code = "P402"


class SystemFailure(PlimsollError, OSError):
    """The machine failed: a disk is full, a library is missing, a device is lost."""

    code = "P605"


_DOES_NOT_FIT = (301, 302, 604)
_FAMILIES = {2: UsageError, 3: DoesNotFit, 4: DataError, 6: SystemFailure}


def _kind(number):
    if number in _DOES_NOT_FIT:
        return _does_not_fit()
    return Unsupported if number == 205 else _FAMILIES.get(number // 100, PlimsollError)


def _framework_errors():
    """The out-of-memory errors of the frameworks that are loaded."""
    found = []
    for module, path in (
        ("tensorflow", "errors.ResourceExhaustedError"),
        ("torch", "OutOfMemoryError"),
        ("jax", "errors.JaxRuntimeError"),
    ):
        if module not in sys.modules:
            continue
        try:
            found.append(functools.reduce(getattr, path.split("."), sys.modules[module]))
        except AttributeError:  # another version of the framework, or one that is still being imported
            continue
    return tuple(found)


@functools.lru_cache(maxsize=None)
def _mixed(bases):
    def init(self, what, facts=(), remedies=(), code=None):
        self.what, self.facts, self.remedies = what, list(facts), list(remedies)
        self.code = code or DoesNotFit.code
        # What TensorFlow's errors hold: its own constructor wants a node of a graph.
        self._message, self._op, self._node_def, self._error_code, self._experimental_payloads = str(self), None, None, 8, {}
        Exception.__init__(self, str(self))

    def text(self):
        return PlimsollError.__str__(self)

    members = {"__init__": init, "__str__": text, "__module__": __name__, "__doc__": DoesNotFit.__doc__}
    return type("DoesNotFit", bases, members)


def _does_not_fit():
    others = _framework_errors()
    try:
        return _mixed((DoesNotFit, *others)) if others else DoesNotFit
    except TypeError:  # the classes cannot be combined
        return DoesNotFit


def _in_python_words(text):
    """The C++ interface's names, as Python's arguments: options.budget = "2GiB" -> budget="2GiB"."""
    text = re.sub(r'\boptions\.(\w+) = ("[^"]*"|\{[^}]*\}|[^\s,;]+)', lambda m: f"{m[1]}={_list(m[2])}", text)
    text = re.sub(r"\b(?:options|Options::|FitOptions::)\.?(\w+)", r"\1", text)
    text = re.sub(r"\b(optimizers|losses|layers)::(\w+)\(\{\.(\w+) = ([^}]*)\}\)", r"keras.\1.\2(\3=\4)", text)
    text = re.sub(r"\b(optimizers|losses|layers)::", r"keras.\1.", text)
    text = re.sub(r"Description::compile\(\{\.loss = \.\.\.\}\)", "model.compile(loss=...)", text)
    return text.replace("Batch::", "")


def _list(text):
    return f"[{text[1:-1]}]" if text.startswith("{") else text


def _restore(code, what, facts, remedies):
    return _kind(int(code[1:]))(what, facts, remedies, code)


def from_core(number, what, facts, remedies):
    """Makes the exception of an error of the C++ library."""
    words = _in_python_words
    return _kind(number)(words(what), map(words, facts), map(words, remedies), f"P{number}")
