"""How close the two sides must be. `close` checks a bound and records the worst ratio to it.

All bounds are relative to the largest magnitude of the compared tensor, because an element near zero is the difference of
large terms and has their rounding error.

OUTPUT, GRADIENT 1e-5   one layer, float32: both sides sum the same few hundred products in another order, which moves
                        a sum by some sqrt(n) to n units of 2^-24 (6e-8) of its largest partial sum.
ZERO 1e-6               a tensor whose true gradient is zero (a bias before BatchNorm) contains the rounding error of a sum
                        that cancels: at most this share of the model's largest gradient.
LOSS 1e-5               a mean of such values; also each of the first losses of a small model.
FEW_STEPS 1e-5          a dozen steps of one tiny network, where nothing amplifies rounding: losses, weights, moments.
RUN_LOSS 1e-5,          20 steps of a small model in float32: the rounding of a step affects the next ones, and a ReLU input
RUN_WEIGHT 1e-4,        near 0 may change its sign. self_agreement.py prints how far Keras is from itself (oneDNN on and off):
STATE 3e-4              losses 3e-7, weights 6e-6, moments 3e-5 at worst; the bounds are at least ten times that.
OLDEST 1e-3             training continued in Keras 3.0.0 on JAX: five steps there differ by 2e-4 from the same steps in the newest
                        Keras on TensorFlow, which differ by 3e-7 from float64.
FLOAT64_WEIGHT 1e-6     whole large models in float64 after 20 steps of Adam; Keras agrees with itself to 4e-9.
MICRO 3e-5              one window split into micro-batches against the whole batch (other order of additions).
"""

import numpy as np

OUTPUT = GRADIENT = LOSS = 1e-5
FEW_STEPS = 1e-5
ZERO = 1e-6
RUN_LOSS = 1e-5
RUN_WEIGHT = 1e-4
STATE = 3e-4
OLDEST = 1e-3
FLOAT64_WEIGHT = 1e-6
MICRO = 3e-5
HALF_ULP = 2.0**-24

worst = {}  # kind -> (ratio to the bound, where)


def difference(got, want):
    """Largest |got - want|, in float64."""
    return float(np.max(np.abs(np.asarray(got, np.float64) - np.asarray(want, np.float64)), initial=0))


def largest(values):
    return float(np.max(np.abs(np.asarray(values, np.float64)), initial=0))


def close(kind, where, got, want, bound, scale=None, allowance=0.0):
    """|got - want| <= bound * scale + allowance everywhere; scale is max|want| unless given."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape, f"{where}: shape {got.shape}, expected {want.shape}"
    assert np.all(np.isfinite(got)), f"{where}: not finite"
    scale = largest(want) if scale is None else scale
    limit = bound * scale + allowance
    d = difference(got, want)
    ratio = d / limit if limit > 0 else (0.0 if d == 0 else np.inf)
    if ratio > worst.get(kind, (-1, ""))[0]:
        worst[kind] = (ratio, where)
    if ratio > 1:
        index = np.unravel_index(np.argmax(np.abs(got.astype(np.float64) - want.astype(np.float64))), got.shape)
        raise AssertionError(
            f"{kind} of {where}: differs by {d:.3g}, allowed {limit:.3g} (largest magnitude {scale:.3g}); "
            f"worst at {tuple(map(int, index))}: {got[index]!r}, expected {want[index]!r}"
        )


def recovered_gradient(before, after, rate):
    """The gradient of one plain SGD step, and the rounding error from subtracting the stored weights.

    after = round(before - rate * g). The rate is a power of two, so this is the only rounding: half a unit of the larger one.
    """
    g = (np.asarray(before, np.float64) - np.asarray(after, np.float64)) / rate
    return g, HALF_ULP * max(largest(before), largest(after)) / rate


def report():
    return [f"  {kind:<18} {ratio:8.3f} of its bound   {where}" for kind, (ratio, where) in sorted(worst.items())]
