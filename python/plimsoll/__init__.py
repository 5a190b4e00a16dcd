"""Plimsoll trains Keras models inside a memory budget.

    import plimsoll
    history = plimsoll.fit(model, x, y, batch_size=64, epochs=3, budget="2GiB")
    print(plimsoll.plan(model, batch_size=64, device="8g"))

Importing this module imports neither Keras nor a framework. docs/python.md describes everything.
"""

from plimsoll import native
from plimsoll.errors import DataError, DoesNotFit, PlimsollError, SystemFailure, Unsupported, UsageError

__all__ = ["fit", "evaluate", "predict", "check", "plan", "live", "install", "uninstall", "Plan", "PlimsollError", "DoesNotFit", "Unsupported", "UsageError", "DataError",
           "SystemFailure", "__version__"]

native.load()

# Names whose modules import Keras, which takes seconds: they are imported when they are first used.
_LATER = {"fit": "loop", "evaluate": "loop", "predict": "loop", "plan": "plans", "Plan": "plans", "check": "checks", "live": "hook", "install": "hook",
          "uninstall": "hook"}


def __getattr__(name):
    import importlib

    if name == "__version__":
        return importlib.import_module("plimsoll._core").version
    if name not in _LATER:
        raise AttributeError(f"module 'plimsoll' has no attribute '{name}'")
    value = getattr(importlib.import_module(f"plimsoll.{_LATER[name]}"), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted(__all__)
