"""A run of several steps on both sides: losses, weights, optimizer state."""

import numpy as np

import compare
import keras_side
import program


def data_of(folder, x, y, name="data"):
    """--data for arrays or dicts of arrays."""
    if isinstance(x, dict) or isinstance(y, dict):
        return program.archive(
            folder,
            f"{name}.npz",
            **(x if isinstance(x, dict) else {"x": x}),
            **(y if isinstance(y, dict) else {"y": y}),
        )
    return program.arrays(folder, prefix=name + "_", x=x, y=y)


def check_weights(where, got, want, variables, bound=compare.RUN_WEIGHT, kind="run "):
    for variable, new, old in zip(variables, got, want, strict=True):
        compare.close(kind + "weight", f"{where}: {variable.path}", new, old, bound)


def check_state(where, got, want, bound=compare.STATE, kind="run "):
    """got, want: optimizer variables by name; a missing or extra one fails. The iteration is exact."""
    assert list(got) == list(want), f"{where}: {list(got)}, expected {list(want)}"
    assert got["iteration"] == want["iteration"], f"{where}: iteration {got['iteration']}, expected {want['iteration']}"
    for name, value in want.items():
        compare.close(kind + "state", f"{where}: {name}", got[name], value, bound)


def check_run(folder, where, model, x, y, batch, flags=(), epochs=1, file=None, few=False, after=None):
    """Trains `model` (compiled) in Keras and its file in Plimsoll over the same batches; returns both results.

    file: a file that is already saved (for example before compile). few: a dozen steps of a tiny network, with tighter bounds.
    after: called with the Keras model after its training."""
    loss_bound, weight_bound, state_bound = (
        (compare.FEW_STEPS,) * 3 if few else (compare.RUN_LOSS, compare.RUN_WEIGHT, compare.STATE)
    )
    kind = "few steps " if few else "run "
    path = file or folder / "model.keras"
    if file is None:
        model.save(path)
    started = keras_side.values(model)
    steps = epochs * -(-keras_side.count(x) // batch)
    trained = program.fit(folder, path, data_of(folder, x, y), *flags, batch_size=batch, epochs=epochs, steps=steps)
    want = keras_side.train(model, x, y, batch, epochs, eager=few)
    if after:
        after(model)
    for step, (a, b) in enumerate(zip(trained.losses, want, strict=True)):
        compare.close(kind + "loss", f"{where}: step {step + 1}", a, b, loss_bound)
    loaded = keras_side.load(trained.saved)
    check_weights(where, keras_side.values(loaded), keras_side.values(model), model.weights, weight_bound, kind)
    check_state(where, keras_side.state(loaded), keras_side.state(model), state_bound, kind)
    moved = [not np.array_equal(a, b) for a, b in zip(started, keras_side.values(model))]
    assert any(moved), f"{where}: nothing was trained"
    for variable, old, new, changed in zip(model.weights, started, keras_side.values(loaded), moved):
        assert changed or np.array_equal(old, new), f"{where}: {variable.path} is frozen and changed"
    return trained, loaded
