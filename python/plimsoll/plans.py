"""A plan, made before anything runs: where every byte goes."""

import html
import json

from plimsoll import _core, describe, errors, own_step, settings


class Plan:
    """Where every byte of a training run goes, as text, as HTML and as data.

    `data` is the object that `plimsoll plan --json` prints (schema plimsoll.plan/1). Its keys are also attributes:
    plan.fits, plan.peak_bytes, plan.categories. If the plan does not fit, `remedies` says what would make it fit.
    """

    def __init__(self, made, held=()):
        self.text = made["text"]
        self.data = json.loads(made["json"])
        self.remedies = list(made["remedies"])
        self.notes = list(made["notes"])
        self.held = list(held)

    def __getattr__(self, name):
        if name.startswith("_") or name == "data" or name not in self.data:
            raise AttributeError(f"a plan has no '{name}'; it has {', '.join(sorted(self.__dict__.get('data', {})))}")
        return self.data[name]

    def __getitem__(self, name):
        return self.data[name]

    def summary(self):
        """One line: the peak of the process and the budget."""
        from plimsoll.memory import format_bytes

        limit = f" of {format_bytes(self.budget_bytes)}" if self.budget_bytes else ""
        return f"{'fits' if self.fits else 'does not fit'}: {format_bytes(self.peak_bytes)}{limit}, batch {self.batch['effective']}"

    def __str__(self):
        return self.text + "".join(f"  {line}\n" for line in self.held)

    def __repr__(self):
        return str(self)

    def _repr_html_(self):
        return f"<pre style='line-height:1.3'>{html.escape(str(self))}</pre>"


def plan(model, batch_size=32, *, sample_weights=False, input_shape=(), **options):
    """Plans the training of a compiled Keras model, without memory for it and without data.

    `device` may name this machine's processors ("cpu", "gpu") or a GPU elsewhere ("8g", "rtx-4090-24g"). Returns a Plan,
    which prints as the table of `plimsoll plan`.
    """
    if own_step.has_one(model):
        raise errors.Unsupported("a training step of the model's own is planned with its data", [own_step.told(model)],
                                 ["plimsoll.fit(model, x, y): history.plan has the plan", "plimsoll plan SCRIPT.py"])
    described = describe.describe(model)
    chosen = settings.complete(options)
    chosen.update(batch_size=batch_size, sample_weights=sample_weights, input_shape=list(input_shape))
    with described.located():
        return Plan(_core.plan(described.architecture, described.compiled, chosen))
