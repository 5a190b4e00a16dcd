"""The options that Plimsoll adds to Keras's arguments, and where their defaults come from."""

import contextlib
import contextvars
import os

from plimsoll import errors, frameworks

# An option's name -> the types it takes. They are the options of the C++ interface with the same names.
OPTIONS = {
    "budget": (str, int),
    "device": (str,),
    "precision": (str,),
    "micro_batch": (int,),
    "batchnorm": (str,),
    "allow": (list, tuple),
    "forbid": (list, tuple),
    "float32_layers": (list, tuple),
    "host_budget": (str, int),
    "memory_growth": (bool,),
    "tf32": (bool,),
    "threads": (int,),
    "seed": (int,),
}
_ENVIRONMENT = ("budget", "device", "precision", "host_budget", "threads")
_everywhere = {}  # of install(): for all threads
_defaults = contextvars.ContextVar("plimsoll_defaults", default={})


def checked(given):
    """The options that are not None, in the types of the library."""
    chosen = {}
    for name, value in given.items():
        if name not in OPTIONS:
            raise TypeError(f"unexpected argument '{name}'; Plimsoll's own arguments are {', '.join(OPTIONS)}")
        if value is None:
            continue
        if not isinstance(value, OPTIONS[name]) or (isinstance(value, bool) and bool not in OPTIONS[name]):
            raise errors.UsageError(f"{name}={value!r}: expected {' or '.join(t.__name__ for t in OPTIONS[name])}")
        chosen[name] = list(value) if isinstance(value, (list, tuple)) else value
        if name.endswith("budget"):
            chosen[name] = str(value)
    return chosen


def complete(given):
    """Adds the defaults of live(), of the environment (PLIMSOLL_BUDGET, ...), and of what the framework was told."""
    chosen = {}
    for name in _ENVIRONMENT:
        value = os.environ.get(f"PLIMSOLL_{name.upper()}")
        if value:
            chosen[name] = int(value) if OPTIONS[name] == (int,) else value
    return {**frameworks.options(), **checked(chosen), **_everywhere, **_defaults.get(), **checked(given)}


@contextlib.contextmanager
def defaults(given):
    token = _defaults.set({**_defaults.get(), **checked(given)})
    try:
        yield
    finally:
        _defaults.reset(token)


def set_defaults(given):
    """The defaults of the process, instead of earlier ones."""
    chosen = checked(given)
    _everywhere.clear()
    _everywhere.update(chosen)
