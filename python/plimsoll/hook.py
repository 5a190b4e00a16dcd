"""Brings Plimsoll under Keras's own fit, evaluate and predict.

The methods of keras.Model are replaced as soon as Keras has been imported, whoever imports it and in whatever way. The
replacements do what Keras does, unless live() or install() is in effect or the model is being trained by Plimsoll.
"""

import contextlib
import contextvars
import functools
import importlib.abc
import importlib.util
import sys


_TARGET = "keras.src.models.model"
_METHODS = ("fit", "evaluate", "predict")


class Mode:
    """What live calls do. `stop_at_fit(call)` replaces the first call of fit (plan and check of scripts)."""

    def __init__(self, fallback=True, stop_at_fit=None):
        self.fallback = fallback
        self.stop_at_fit = stop_at_fit


_mode = contextvars.ContextVar("plimsoll_mode", default=None)
_everywhere = None  # the Mode of install()


def mode():
    return _mode.get() or _everywhere


@contextlib.contextmanager
def live(fallback=True, **options):
    """Inside the block, `model.fit`, `model.evaluate` and `model.predict` run in Plimsoll with these options.

    What Plimsoll does not train runs in Keras, after a message with every reason, unless `fallback` is False: then
    Unsupported is raised. A model that does not fit the budget raises DoesNotFit in both cases.
    """
    from plimsoll import settings

    prepare()
    token = _mode.set(Mode(fallback))
    try:
        with settings.defaults(options):
            yield
    finally:
        _mode.reset(token)


def install(fallback=True, stop_at_fit=None, **options):
    """As live(), for the rest of the process and for all of its threads."""
    global _everywhere
    from plimsoll import settings

    prepare()
    settings.set_defaults(options)
    _everywhere = Mode(fallback, stop_at_fit)


def uninstall():
    """Ends install()."""
    global _everywhere
    from plimsoll import settings

    settings.set_defaults({})
    _everywhere = None


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != _TARGET:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            _replace(module.Model)

        spec.loader.exec_module = exec_module
        return spec


def prepare():
    """Replaces the methods now, or when Keras is imported. It may be called often."""
    if _TARGET in sys.modules:
        _replace(sys.modules[_TARGET].Model)
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _replace(model_class):
    for name in _METHODS:
        method = getattr(model_class, name)
        if not hasattr(method, "_plimsoll_keras"):
            setattr(model_class, name, _replacement(name, method))
    if "tensorflow" in sys.modules:
        from plimsoll import graphs

        graphs.install()


def _replacement(name, keras_method):
    @functools.wraps(keras_method)
    def method(self, *arguments, **named):
        if _inside.get():
            return keras_method(self, *arguments, **named)
        from plimsoll import loop

        if name != "fit" and id(self) in loop.running_models:
            return getattr(loop, name)(self, *arguments, **named)
        current = mode()
        if current is None:
            return keras_method(self, *arguments, **named)
        return _ours(name, keras_method, current, self, arguments, named)

    method._plimsoll_keras = keras_method
    return method


_inside = contextvars.ContextVar("plimsoll_inside", default=False)


@contextlib.contextmanager
def keras_alone():
    """Inside the block Keras's methods are Keras's own."""
    token = _inside.set(True)
    try:
        yield
    finally:
        _inside.reset(token)


def is_inside():
    return _inside.get()


def _ours(name, keras_method, current, model, arguments, named):
    from plimsoll import fallback, loop

    if name == "fit" and current.stop_at_fit is not None:
        return current.stop_at_fit(loop.FitCall(model, arguments, named))
    kept = fallback.Kept(arguments, named)
    try:
        ready = getattr(loop, f"prepare_{name}")(model, *kept.arguments, **kept.named)
    except fallback.REASONS as reasons:
        if not current.fallback:
            raise
        fallback.say(f"{name}() of '{model.name}'", "Keras", reasons)
        arguments, named = kept.again()
    else:
        if name == "fit":
            print(f"plimsoll: fit() of '{model.name}' {ready.plan.summary()}", file=sys.stderr, flush=True)
        return ready()
    with keras_alone():
        return keras_method(model, *arguments, **named)


