"""Functions of keras.ops that move, join, split, index and reduce, used as layers."""

import json

import keras
import numpy as np
import pytest

import program
from one_step import check_step
from operation_group import check_group

L, ops = keras.layers, keras.ops
LINE, IMAGE = (6, 4), (4, 6, 8)

REDUCTIONS = {
    "sum": lambda t: ops.sum(t.a, axis=-1),
    "sum_all": lambda t: ops.sum(t.a, axis=(1, 2)),
    "sum_keepdims": lambda t: ops.sum(t.a, axis=1, keepdims=True),
    "sum_no_axes": lambda t: ops.sum(t.a, axis=()),
    "sum_integers": lambda t: ops.sum(t.ids, axis=1),
    "sum_truths": lambda t: ops.sum(t.a > 0, axis=1),
    "mean": lambda t: ops.mean(t.a, axis=[1, 2], keepdims=True),
    "mean_integers": lambda t: ops.mean(t.ids, axis=-1),
    "max": lambda t: ops.max(t.a, axis=1),
    "max_keepdims": lambda t: ops.max(t.a, axis=(1, 2), keepdims=True),
    "max_initial": lambda t: ops.max(t.a, axis=-1, initial=0.5),
    "max_integers": lambda t: ops.max(t.ids, axis=-1),
    "amax": lambda t: ops.amax(t.a, axis=2),
    "min": lambda t: ops.min(t.a, axis=-2),
    "min_initial": lambda t: ops.min(t.a, axis=-1, initial=-0.5),
    "amin": lambda t: ops.amin(t.a, axis=2),
    "ptp": lambda t: ops.ptp(t.a, axis=1),
    "prod": lambda t: ops.prod(t.a, axis=-1),
    "prod_rows": lambda t: ops.prod(t.a, axis=1, keepdims=True),
    "var": lambda t: ops.var(t.a, axis=-1),
    "std": lambda t: ops.std(t.a, axis=1, keepdims=True),
    "any": lambda t: ops.any(t.a > 1, axis=-1),
    "all": lambda t: ops.all(t.a > -1, axis=1, keepdims=True),
    "all_numbers": lambda t: ops.all(ops.relu(t.a), axis=1),
    "argmax": lambda t: ops.argmax(t.a, axis=-1),
    "argmax_rows": lambda t: ops.argmax(t.a, axis=1, keepdims=True),
    "argmin": lambda t: ops.argmin(t.a, axis=1),
    "logsumexp": lambda t: ops.logsumexp(t.a, axis=-1),
    "logsumexp_all": lambda t: ops.logsumexp(t.a, axis=(1, 2), keepdims=True),
    "count_nonzero": lambda t: ops.count_nonzero(ops.relu(t.a), axis=1),
    "norm": lambda t: ops.norm(t.a, axis=-1),
    "norm_keepdims": lambda t: ops.norm(t.a, axis=1, keepdims=True),
    "norm_one": lambda t: ops.norm(t.a, ord=1, axis=-1),
    "norm_three": lambda t: ops.norm(t.a, ord=3, axis=-1),
    "norm_frobenius": lambda t: ops.norm(t.a, ord="fro", axis=(1, 2)),
    "average": lambda t: ops.average(t.a, axis=1),
    "average_weights": lambda t: ops.average(t.a, axis=-1, weights=np.array([1.0, 2.0, 3.0, 0.5], np.float32)),
    "average_tensor": lambda t: ops.average(t.a, axis=-1, weights=t.positive),
    "moments": lambda t: ops.moments(t.a, axes=[1]),
    "median": lambda t: ops.median(t.a, axis=1),
    "quantile": lambda t: ops.quantile(t.a, 0.3, axis=-1),
    "quantile_both": lambda t: ops.quantile(t.a, 0.8, axis=(1, 2), keepdims=True),
    "trapezoid": lambda t: ops.trapezoid(t.a, dx=0.5, axis=1),
    "nanargmax": lambda t: ops.nanargmax(ops.log(t.a), axis=-1),
    "nanargmin": lambda t: ops.nanargmin(ops.log(t.a), axis=1, keepdims=True),
    "nansum": lambda t: ops.nansum(t.a, axis=-1),
    "nanmean": lambda t: ops.nanmean(t.a, axis=1),
    "nanmax": lambda t: ops.nanmax(t.a, axis=-1),
    "nanvar": lambda t: ops.nanvar(t.a, axis=1, keepdims=True),
}
REDUCTIONS = {k: v for k, v in REDUCTIONS.items() if hasattr(ops, k.split("_")[0]) or k.startswith("count")}

MOVES = {
    "reshape": lambda t: ops.reshape(t.a, (-1, 24, 8)),
    "reshape_flat": lambda t: ops.reshape(t.a, (-1, 192)),
    "transpose": lambda t: ops.transpose(t.a, (0, 2, 1, 3)),
    "transpose_all": lambda t: ops.transpose(t.a, (0, 3, 1, 2)),
    "transpose_negative": lambda t: ops.transpose(t.a, (0, -1, 2, 1)),
    "swapaxes": lambda t: ops.swapaxes(t.a, 1, -1),
    "moveaxis": lambda t: ops.moveaxis(t.a, -1, 1),
    "moveaxis_two": lambda t: ops.moveaxis(t.a, (1, 2), (3, 1)),
    "expand_dims": lambda t: ops.expand_dims(t.a, -1),
    "expand_dims_two": lambda t: ops.expand_dims(t.a, (1, 3)),
    "squeeze": lambda t: ops.squeeze(t.a[:, :1, :, :1]),
    "squeeze_axis": lambda t: ops.squeeze(t.a[:, :1, :, :1], axis=-1),
    "flip": lambda t: ops.flip(t.a, axis=1),
    "flip_two": lambda t: ops.flip(t.a, axis=(1, -1)),
    "fliplr": lambda t: ops.fliplr(t.a),
    "rot90": lambda t: ops.rot90(t.a, axes=(1, 2)),
    "rot90_thrice": lambda t: ops.rot90(t.a, k=3, axes=(1, 2)),
    "rot90_twice": lambda t: ops.rot90(t.a[:, :, 1:5], k=2, axes=(1, 2)),
    "roll": lambda t: ops.roll(t.a, 2, axis=1),
    "roll_back": lambda t: ops.roll(t.a, -3, axis=2),
    "roll_two": lambda t: ops.roll(t.a, (1, 2), axis=(1, 2)),
    "tile": lambda t: ops.tile(t.a, (1, 2, 1, 3)),
    "tile_last": lambda t: ops.tile(t.a, 2),
    "repeat": lambda t: ops.repeat(t.a, 2, axis=1),
    "repeat_last": lambda t: ops.repeat(t.a, 3, axis=-1),
    "repeat_list": lambda t: ops.repeat(t.a, [2, 0, 1, 3], axis=1),
    "extract_sequences": lambda t: ops.extract_sequences(t.a, 3, 2),
    "pad": lambda t: ops.pad(t.a, ((0, 0), (1, 2), (0, 0), (3, 0))),
    "pad_value": lambda t: ops.pad(t.a, ((0, 0), (1, 2), (0, 1), (0, 0)), constant_values=2.5),
    "pad_reflect": lambda t: ops.pad(t.a, ((0, 0), (1, 2), (2, 1), (0, 0)), mode="reflect"),
    "pad_symmetric": lambda t: ops.pad(t.a, ((0, 0), (1, 2), (2, 1), (0, 0)), mode="symmetric"),
    "depth_to_space": lambda t: ops.depth_to_space(t.a, 2),
    "space_to_depth": lambda t: ops.space_to_depth(t.a, 2),
    "pixel_shuffle": lambda t: ops.reshape(
        ops.transpose(ops.reshape(t.a, (-1, 4, 6, 2, 2, 2)), (0, 1, 3, 2, 4, 5)), (-1, 8, 12, 2)
    ),
    "concatenate": lambda t: ops.concatenate([t.a, t.b], axis=-1),
    "concatenate_rows": lambda t: ops.concatenate([t.a, t.b, t.a], axis=1),
    "concatenate_kinds": lambda t: ops.concatenate([t.a, ops.cast(t.b > 0, "int32")], axis=2),
    "append": lambda t: ops.append(t.a, t.b, axis=2),
    "stack": lambda t: ops.stack([t.a, t.b], axis=1),
    "stack_last": lambda t: ops.stack([t.a, t.b, t.a], axis=-1),
    "hstack": lambda t: ops.hstack([t.a, t.b]),
    "dstack": lambda t: ops.dstack([t.a, t.b]),
    "split": lambda t: ops.split(t.a, 2, axis=1),
    "split_at": lambda t: ops.split(t.a, [1, 4], axis=2),
    "array_split": lambda t: ops.array_split(t.a, 3, axis=1),
    "hsplit": lambda t: ops.hsplit(t.a, 2),
    "dsplit": lambda t: ops.dsplit(t.a, 3),
    "unstack": lambda t: ops.unstack(t.a, axis=1),
    "unstack_last": lambda t: ops.unstack(t.a, axis=-1)[2],
}
MOVES = {k: v for k, v in MOVES.items() if any(hasattr(ops, p) for p in (k, k.split("_")[0])) or k == "pixel_shuffle"}

INDEXING = {
    "slice_rows": lambda t: t.a[:, 1:],
    "slice_both": lambda t: t.a[:, 1:5, ::2],
    "slice_back": lambda t: t.a[:, ::-1, 1:-1],
    "slice_back_by_two": lambda t: t.a[:, 4:0:-2],
    "index": lambda t: t.a[:, 0],
    "index_last": lambda t: t.a[:, -1, 2],
    "ellipsis": lambda t: t.a[..., 1],
    "new_dimension": lambda t: t.a[:, None, :, 2:],
    "new_last": lambda t: t.a[..., None, ::-1],
    "part": lambda t: t.a[:, 2:4],
    "take": lambda t: ops.take(t.a, [0, 2, 2], axis=1),
    "take_negative": lambda t: ops.take(t.a, np.array([[-1, 0], [2, 1]]), axis=-1),
    "take_one": lambda t: ops.take(t.a, 3, axis=1),
    "take_from_table": lambda t: ops.take(np.arange(14, dtype="float32").reshape(7, 2), t.ids, axis=0) * t.a[:, :1, :1],
    "take_along_axis": lambda t: ops.take_along_axis(t.a, ops.argsort(t.b, axis=1), axis=1),
    "take_along_ids": lambda t: ops.take_along_axis(t.a, t.ids[:, :, None] % 3, axis=2),
    "one_hot": lambda t: ops.one_hot(t.ids, 7),
    "one_hot_axis": lambda t: ops.one_hot(t.ids, 5, axis=1),
    "one_hot_weighted": lambda t: ops.one_hot(t.ids, 4) * t.a,
    "one_hot_integers": lambda t: ops.one_hot(t.ids, 7, dtype="int32"),
    "multi_hot": lambda t: ops.multi_hot(t.ids, 7),
    "top_k": lambda t: ops.top_k(t.a, 2),
    "in_top_k": lambda t: ops.in_top_k(t.ids[:, 0] % 4, t.a[:, 0], 2),
    "sort": lambda t: ops.sort(t.a, axis=1),
    "sort_last": lambda t: ops.sort(t.a),
    "argsort": lambda t: ops.argsort(t.a, axis=1),
    "nancumsum": lambda t: ops.nancumsum(ops.log(t.positive - 0.4), axis=1),
    "nancumprod": lambda t: ops.nancumprod(t.a, axis=-1),
    "cumsum": lambda t: ops.cumsum(t.a, axis=1),
    "cumsum_last": lambda t: ops.cumsum(t.a, axis=-1),
    "cumsum_integers": lambda t: ops.cumsum(t.ids, axis=1),
    "cumprod": lambda t: ops.cumprod(t.a, axis=1),
    "diff": lambda t: ops.diff(t.a, axis=1),
    "diff_twice": lambda t: ops.diff(t.a, n=2, axis=1),
    "tril": lambda t: ops.tril(t.a),
    "triu": lambda t: ops.triu(t.a, k=1),
    "diagonal": lambda t: ops.diagonal(t.a, axis1=1, axis2=2),
    "diagonal_offset": lambda t: ops.diagonal(t.a, offset=-2, axis1=1, axis2=2),
    "trace": lambda t: ops.trace(t.a, axis1=1, axis2=2),
}

GROUPS = {
    "reductions": (REDUCTIONS, LINE),
    "moves": (MOVES, IMAGE),
    "indexing": (INDEXING, LINE),
}


@pytest.mark.parametrize("group", GROUPS)
def test_shape(group, tmp_path, rng):
    cases, shape = GROUPS[group]
    check_group(tmp_path, rng, cases, shape)


PATTERNS = {
    "b h w c -> b c (h w)": {},
    "b (h p) (w q) c -> b (h w) (p q c)": {"p": 2, "q": 3},
    "b h (w q) c -> b (c q) h w": {"w": 2},
}


def test_rearrange(tmp_path, rng):
    """Keras 3.15.1 can use it as a layer only if the batch is known."""
    x = keras.Input(batch_shape=(5, *IMAGE), name="x")
    made = [ops.rearrange(L.Dense(8)(x), pattern, **sizes) for pattern, sizes in PATTERNS.items()]
    model = keras.Model(x, L.Concatenate()([L.Flatten()(ops.tanh(one)) for one in made]), name="patterns")
    inputs = rng.standard_normal((5, *IMAGE)).astype(np.float32)
    check_step(tmp_path, model, inputs, rng.standard_normal(model.output_shape).astype(np.float32), "mse")


def test_a_plan_names_slow_kernels(tmp_path):
    """No slow path is taken in silence: sorting is far from what the CPU's memory allows, a product is not."""
    x = keras.Input((64, 512), name="x")
    sorted_rows = L.Dense(2, name="out")(L.Flatten()(L.Dense(512, name="product")(ops.sort(x))))
    keras.Model(x, sorted_rows).save(tmp_path / "model.keras")
    flags = ("--batch-size", 64, "--optimizer", "sgd", "--loss", "mse", "--device", "cpu")
    slow = json.loads(program.run("plan", tmp_path / "model.keras", *flags, "--json").stdout)["slow_kernels"]
    assert [one["op"] for one in slow] == ["sort"] and slow[0]["seconds"] >= 4 * slow[0]["limit_seconds"]
    told = program.run("plan", tmp_path / "model.keras", *flags)
    assert "slow kernel: sort of " in told.stdout + told.stderr
