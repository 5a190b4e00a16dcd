"""Element-wise functions of keras.ops as layers: arithmetic, comparisons, choices, conversions, activations."""

import keras
import numpy as np
import pytest

from operation_group import check_group

ops = keras.ops
SHAPE = (6, 4)
ROW = np.array([0.5, -1.0, 2.0, 0.25], np.float32)

ARITHMETIC = {
    "add": lambda t: ops.add(t.a, t.b),
    "add_number": lambda t: t.a + 1,
    "add_row": lambda t: t.a + ROW,
    "add_by_name": lambda t: ops.add(x1=t.a, x2=t.b),
    "add_broadcast": lambda t: t.a + ops.sum(t.b, axis=1, keepdims=True),
    "subtract": lambda t: t.a - t.b,
    "subtract_from": lambda t: 1 - t.a,
    "multiply": lambda t: t.a * t.b,
    "multiply_itself": lambda t: t.a * t.a,
    "residual": lambda t: t.a * 0.2 + t.b,
    "divide": lambda t: t.a / t.positive,
    "divide_by": lambda t: t.a / 3,
    "divide_number": lambda t: 2 / t.positive,
    "divide_by_four": lambda t: ops.divide(t.a, 4.0),
    "divide_no_nan": lambda t: ops.divide_no_nan(t.a, ops.relu(t.b)),
    "power": lambda t: ops.power(t.positive, t.a),
    "square": lambda t: t.a**2,
    "cube": lambda t: t.a**3,
    "root": lambda t: t.positive**0.5,
    "exponent": lambda t: 2.0**t.a,
    "negative": lambda t: -t.a,
    "absolute": lambda t: abs(t.a),
    "fmax": lambda t: ops.fmax(t.a, t.b),
    "fmin_nan": lambda t: ops.fmin(ops.stop_gradient(ops.log(t.a)), t.b),
    "maximum": lambda t: ops.maximum(t.a, t.b),
    "maximum_number": lambda t: ops.maximum(t.a, 0.25),
    "minimum": lambda t: ops.minimum(t.a, ROW),
    "mod": lambda t: t.a % 0.75,
    "mod_tensor": lambda t: ops.mod(t.a, t.positive),
    "fmod": lambda t: ops.fmod(t.a, 0.75),
    "floor_divide": lambda t: t.a // 0.5 + t.a,
    "arctan2": lambda t: ops.arctan2(t.a, t.b),
    "hypot": lambda t: ops.hypot(t.a, t.b),
    "heaviside": lambda t: ops.heaviside(t.a, t.b) + t.b,
    "logaddexp": lambda t: ops.logaddexp(t.a, t.b),
    "logaddexp2": lambda t: ops.logaddexp2(t.a, t.b),
    "clip": lambda t: ops.clip(t.a, -0.5, 0.75),
    "where": lambda t: ops.where(t.a > 0, t.a, t.b),
    "where_number": lambda t: ops.where(t.a > t.b, t.a, 0.0),
    "where_two_numbers": lambda t: t.a * ops.where(t.a > 0, 1.5, -1),
    "where_row": lambda t: ops.where(t.a < ROW, ROW, t.a),
    "select": lambda t: ops.select([t.a > 1, t.a > 0], [t.b, t.a * 2], 0.5),
    "stop_gradient": lambda t: t.a * ops.stop_gradient(t.b),
}

FUNCTIONS = {
    **{
        name: lambda t, f=getattr(ops, name): f(t.a)
        for name in (
            "square sin cos sinh cosh tanh arcsinh arctan exp exp2 expm1 sign floor ceil trunc round erf erfc sinc "
            "deg2rad rad2deg negative abs fabs copy conj conjugate real"
        ).split()
        if hasattr(ops, name)
    },
    **{
        f"{name}_positive": lambda t, f=getattr(ops, name): f(t.positive)
        for name in "sqrt rsqrt log log1p log2 log10 reciprocal cbrt".split()
        if hasattr(ops, name)
    },
    **{
        f"{name}_unit": lambda t, f=getattr(ops, name): f(t.unit * 0.9)
        for name in "arcsin arccos arctanh erfinv tan".split()
    },
    "arccosh": lambda t: ops.arccosh(1.1 + t.positive),
    "round_digits": lambda t: ops.round(t.a, 1) + t.a,
    "round_tens": lambda t: ops.round(t.a * 100, -1),
    "nan_to_num": lambda t: ops.nan_to_num(ops.stop_gradient(t.a / ops.relu(t.b)), nan=3.0, posinf=5.0, neginf=-2.0) * t.c,
    "zeros_like": lambda t: ops.zeros_like(t.a) + t.a,
    "ones_like": lambda t: ops.ones_like(t.a) - t.a,
    "full_like": lambda t: ops.full_like(t.a, 2.5) * t.a,
}

LOGIC = {
    "less": lambda t: t.a < t.b,
    "less_equal": lambda t: ops.less_equal(t.a, 0.5),
    "greater": lambda t: t.a > 0,
    "greater_equal": lambda t: t.a >= ROW,
    "equal": lambda t: ops.equal(ops.floor(t.a), ops.floor(t.b)),
    "not_equal": lambda t: ops.not_equal(ops.floor(t.a), 0),
    "and": lambda t: ops.logical_and(t.a > 0, t.b > 0),
    "and_of_numbers": lambda t: ops.logical_and(ops.relu(t.a), t.b > 0),
    "or": lambda t: ops.logical_or(t.a > 0, t.b > 0),
    "xor": lambda t: ops.logical_xor(t.a > 0, t.b > 0),
    "not": lambda t: ops.logical_not(t.a > 0),
    "isnan": lambda t: ops.isnan(ops.log(t.a)),
    "isinf": lambda t: ops.isinf(1 / ops.relu(t.a)),
    "isfinite": lambda t: ops.isfinite(1 / ops.relu(t.a)),
    "isclose": lambda t: ops.isclose(t.a, t.b, atol=0.5),
    "signbit": lambda t: ops.signbit(t.a),
    "isin": lambda t: ops.isin(ops.floor(t.a), [0.0, -2.0]),
    "cast_truth": lambda t: ops.cast(t.a > 0, "float32") * t.b,
    "saturate_cast": lambda t: ops.saturate_cast(-ops.abs(t.a) * 1e10, "int32"),  # Keras wraps round above
    "cast_to_truth": lambda t: ops.cast(ops.relu(t.a), "bool"),
    "cast_to_integer": lambda t: ops.cast(t.a * 3, "int32"),
    "truth_times_number": lambda t: (t.a > 0) * 2,
    "truth_times_float": lambda t: (t.a > 0) * t.b,
    "integers": lambda t: (t.ids + 1) * 2 - 3,
    "integers_divided": lambda t: t.ids / 4,
    "integers_floored": lambda t: t.ids // 2 + t.ids % 3,
    "integers_compared": lambda t: ops.cast(t.ids >= 3, "int32") + ops.cast(ops.equal(t.ids, 2), "int32"),
    "integers_chosen": lambda t: ops.where(t.ids > 2, t.ids, -1),
    "integers_clipped": lambda t: ops.clip(t.ids, 1, 4),
    "integers_squared": lambda t: ops.square(t.ids) + ops.abs(t.ids - 3),
    "digitize": lambda t: ops.digitize(t.a, np.array([-1.0, 0.0, 0.5], np.float32)),
}

ACTIVATIONS = {
    **{
        name: lambda t, f=getattr(ops, name): f(t.a)
        for name in (
            "relu relu6 sigmoid sparse_sigmoid softplus softsign soft_shrink sparse_plus silu squareplus log_sigmoid "
            "leaky_relu hard_sigmoid hard_silu elu selu gelu celu glu tanh_shrink hard_tanh hard_shrink softmax"
        ).split()
    },
    "soft_shrink_at": lambda t: ops.soft_shrink(t.a, threshold=0.2),
    "hard_shrink_at": lambda t: ops.hard_shrink(t.a, threshold=0.2),
    "threshold": lambda t: ops.threshold(t.a, 0.3, -1.0),
    "leaky": lambda t: ops.leaky_relu(t.a, negative_slope=0.4),
    "elu_alpha": lambda t: ops.elu(t.a, alpha=0.5),
    "celu_alpha": lambda t: ops.celu(t.a, alpha=0.5),
    "gelu_exact": lambda t: ops.gelu(t.a, approximate=False),
    "squareplus_b": lambda t: ops.squareplus(t.a, b=1),
    "glu_rows": lambda t: ops.glu(t.a, axis=1),
    "activation_relu": lambda t: keras.activations.relu(t.a),
    "activation_relu_options": lambda t: keras.activations.relu(t.a, negative_slope=0.25, max_value=1.0, threshold=0.5),
    "activation_gelu": lambda t: keras.activations.gelu(t.a),
    "activation_softmax": lambda t: keras.activations.softmax(t.a),
}

GROUPS = {"arithmetic": ARITHMETIC, "functions": FUNCTIONS, "logic": LOGIC, "activations": ACTIVATIONS}


@pytest.mark.parametrize("group", GROUPS)
def test_elementwise(group, tmp_path, rng):
    check_group(tmp_path, rng, GROUPS[group], SHAPE)
