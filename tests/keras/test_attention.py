"""Attention layers in random configurations, with and without masks, against Keras: outputs, losses, gradients, weights."""

import keras
import numpy as np
import pytest

import compare
import keras_side
import program
import runs

L, ops = keras.layers, keras.ops
N, T, S, C = 5, 7, 6, 6
WORDS = 9


def inputs(kinds):
    """Named inputs: x [T,C], m [S,C], ids [T], words [S] (padded with 0), seen [T,S], some [S]."""
    made = {
        "x": lambda: keras.Input((T, C), name="x"),
        "m": lambda: keras.Input((S, C), name="m"),
        "ids": lambda: keras.Input((T,), dtype="int32", name="ids"),
        "words": lambda: keras.Input((S,), dtype="int32", name="words"),
        "seen": lambda: keras.Input((T, S), dtype="bool", name="seen"),
        "pairs": lambda: keras.Input((3, T, S), dtype="bool", name="pairs"),
        "some": lambda: keras.Input((S,), dtype="bool", name="some"),
        "volume": lambda: keras.Input((3, 4, C), name="volume"),
    }
    return [made[kind]() for kind in kinds]


def padded(rng, length):
    ids = rng.integers(1, WORDS, (N, length)).astype(np.int32)
    for row, used in enumerate(rng.integers(0, length + 1, N)):  # some sentences are empty
        ids[row, used:] = 0
    return ids


def drawn(rng, kind):
    shape = {"x": (T, C), "m": (S, C), "volume": (3, 4, C)}
    if kind in shape:
        return rng.standard_normal((N, *shape[kind])).astype(np.float32)
    if kind in ("ids", "words"):
        return padded(rng, T if kind == "ids" else S)
    return rng.random((N, *{"seen": (T, S), "pairs": (3, T, S), "some": (S,)}[kind])) < 0.6


def embedded(ids):
    return L.Embedding(WORDS, C, mask_zero=True)(ids)


def heads(**named):
    return L.MultiHeadAttention(**{"num_heads": 3, "key_dim": 4, **named})


def grouped(**named):
    return L.GroupQueryAttention(**{"head_dim": 4, "num_query_heads": 6, "num_key_value_heads": 2, **named})


def self_attention(layer, **call):
    return lambda x: layer()(x, x, **call)


MODELS = {
    # MultiHeadAttention
    "self": (["x"], self_attention(heads)),
    "causal": (["x"], self_attention(heads, use_causal_mask=True)),
    "cross": (["x", "m"], lambda x, m: heads()(x, m)),
    "key": (["x", "m"], lambda x, m: heads()(x, m, L.Dense(4, activation="tanh")(m))),
    "by_name": (["x", "m"], lambda x, m: heads()(value=m, query=x)),
    "value_dim": (["x", "m"], lambda x, m: heads(value_dim=5)(x, m)),
    "output_shape": (["x", "m"], lambda x, m: heads(output_shape=9)(x, m)),
    "output_shapes": (["x"], lambda x: heads(output_shape=(2, 3))(x, x)),
    "no_bias": (["x"], self_attention(lambda: heads(use_bias=False))),
    "gate": (["x", "m"], lambda x, m: heads(use_gate=True)(x, m)),
    "window": (["x"], self_attention(lambda: heads(sliding_window=2), use_causal_mask=True)),
    "window_of_others": (["x", "m"], lambda x, m: heads(sliding_window=3)(x, m)),
    "penalty": (["x"], self_attention(lambda: heads(kernel_regularizer="l2", bias_regularizer="l1"))),
    "constraint": (["x"], self_attention(lambda: heads(kernel_constraint="non_neg"))),
    "masked_self": (["ids"], lambda i: self_attention(heads)(embedded(i))),
    "masked_causal": (["ids"], lambda i: self_attention(heads, use_causal_mask=True)(embedded(i))),
    "masked_cross": (["ids", "words"], lambda i, w: heads()(embedded(i), embedded(w))),
    "masked_values": (["x", "words"], lambda x, w: heads()(x, embedded(w), embedded(w))),
    "masked_queries": (["ids", "m"], lambda i, m: heads()(embedded(i), m)),
    "given_masks": (["x", "m", "some"], lambda x, m, s: heads()(x, m, value_mask=s)),
    "given_query_mask": (["ids", "m", "seen"], lambda i, m, s: heads()(embedded(i), m, query_mask=s[:, :, 0])),
    "given_key_mask": (["x", "m", "some"], lambda x, m, s: heads()(x, m, m, key_mask=s)),
    "attention_mask": (["x", "m", "seen"], lambda x, m, s: heads()(x, m, attention_mask=s)),
    "mask_of_heads": (["x", "m", "pairs"], lambda x, m, s: heads()(x, m, attention_mask=s)),
    "mask_of_rows": (["x", "m", "some"], lambda x, m, s: heads()(x, m, attention_mask=s[:, None, :])),
    "constant_mask": (["x"], lambda x: heads()(x, x, attention_mask=np.tri(T, T, 1, dtype=bool)[None])),
    "both_masks": (["ids", "words", "seen"], lambda i, w, s: heads()(embedded(i), embedded(w), attention_mask=s)),
    "scores": (["x"], lambda x: L.Flatten()(heads()(x, x, return_attention_scores=True)[1])),
    "both_outputs": (
        ["ids"],  # Keras gives the scores of other sequences a wrong shape
        lambda i: (lambda e: (lambda a, s: L.Concatenate()([L.Flatten()(a), L.Flatten()(s)]))(
            *heads()(e, e, return_attention_scores=True)
        ))(embedded(i)),
    ),
    "scores_of_window": (
        ["x"],
        lambda x: L.Flatten()(heads(sliding_window=2)(x, x, return_attention_scores=True, use_causal_mask=True)[1]),
    ),
    "volume": (["volume"], lambda v: heads()(v, v)),
    "one_axis": (["volume"], lambda v: heads(attention_axes=2)(v, v)),
    "first_axis": (["volume"], lambda v: heads(attention_axes=(1,))(v, v)),
    "axes": (["volume"], lambda v: heads(attention_axes=(1, 2))(v, v)),
    "shared": (["x"], lambda x: (lambda layer: layer(layer(x, x), x, use_causal_mask=True))(heads())),
    # MultiHeadAttention removes the masks of its inputs: what Keras runs later does not see them.
    "mask_removed": (["ids"], lambda i: (lambda e: L.Add()([e, heads()(e, e)]))(embedded(i))),
    "mask_seen_before": (["ids"], lambda i: (lambda e: L.Add()([L.Dense(C)(e), heads()(e, e)]))(embedded(i))),
    "block": (
        ["ids"],
        lambda i: (
            lambda e: (
                lambda a: L.LayerNormalization()(L.Add()([a, L.Dense(C)(L.Dense(9, activation="gelu")(a))]))
            )(L.LayerNormalization()(L.Add()([e, heads()(e, e, use_causal_mask=True)])))
        )(embedded(i)),
    ),
    # GroupQueryAttention
    "grouped": (["x"], self_attention(grouped)),
    "grouped_cross": (["x", "m"], lambda x, m: grouped()(x, m)),
    "grouped_causal": (["x"], self_attention(grouped, use_causal_mask=True)),
    "grouped_masked": (["ids", "words"], lambda i, w: grouped()(embedded(i), embedded(w))),
    "grouped_gate": (["x"], self_attention(lambda: grouped(use_gate=True, use_bias=False))),
    "grouped_window": (["x"], self_attention(lambda: grouped(sliding_window=3))),
    "grouped_scores": (["x"], lambda x: L.Flatten()(grouped()(x, x, return_attention_scores=True)[1])),
    "grouped_mask": (["x", "m", "seen"], lambda x, m, s: grouped()(x, m, attention_mask=s)),
    "grouped_keeps_mask": (["ids"], lambda i: (lambda e: L.Add()([e, grouped()(e, e)]))(embedded(i))),
    # Attention
    "dot": (["x", "m"], lambda x, m: L.Attention()([x, m])),
    "dot_key": (["x", "m"], lambda x, m: L.Attention()([x, L.Dense(4)(m), L.Dense(C)(m)])),
    "dot_scale": (["x", "m"], lambda x, m: L.Attention(use_scale=True)([x, m])),
    "dot_causal": (["x", "m"], lambda x, m: L.Attention()([x, m], use_causal_mask=True)),
    "dot_masked": (["ids", "words"], lambda i, w: L.Attention()([embedded(i), embedded(w)])),
    "dot_masked_causal": (["ids"], lambda i: (lambda e: L.Attention()([e, e], use_causal_mask=True))(embedded(i))),
    "dot_given": (["x", "m", "some"], lambda x, m, s: L.Attention()([x, m], mask=[None, s])),
    "dot_scores": (["x", "words"], lambda x, w: L.Attention()([x, embedded(w)], return_attention_scores=True)[1]),
    "concat": (["x", "m"], lambda x, m: L.Attention(score_mode="concat")([x, m])),
    "concat_scale": (["x", "words"], lambda x, w: L.Attention(score_mode="concat", use_scale=True)([x, embedded(w)])),
    "additive": (["x", "m"], lambda x, m: L.AdditiveAttention()([x, m])),
    "additive_plain": (["x", "m"], lambda x, m: L.AdditiveAttention(use_scale=False)([x, m])),
    "additive_masked": (["ids", "words"], lambda i, w: L.AdditiveAttention()([embedded(i), embedded(w)])),
    "additive_causal": (["x"], lambda x: L.AdditiveAttention()([x, x, x], use_causal_mask=True)),
}


def model_of(name):
    kinds, make = MODELS[name]
    tensors = inputs(kinds)
    output = make(*tensors)
    model = keras.Model(tensors, output)
    return kinds, model if model.trainable_variables else keras.Model(tensors, L.Dense(3)(output))


def gradients(model, x, y):
    import tensorflow as tf

    with tf.GradientTape() as tape:
        loss = model.compute_loss(x, y, model(x, training=True))
    return float(loss), [
        None if g is None else np.array(tf.convert_to_tensor(g)) for g in tape.gradient(loss, model.trainable_variables)
    ]


@pytest.mark.parametrize("name", MODELS)
def test_attention(name, tmp_path, rng):
    kinds, model = model_of(name)
    keras_side.randomize(model)
    x = {kind: drawn(rng, kind) for kind in kinds}
    y = rng.standard_normal((N, *model.output_shape[1:])).astype(np.float32)
    model.compile(keras.optimizers.SGD(1.0), "mse")
    loss, want = gradients(model, x, y)
    top = max(compare.largest(g) for g in want if g is not None)
    rate = 2.0 ** -round(np.log2(top))
    model.compile(keras.optimizers.SGD(rate), "mse")
    path = tmp_path / "model.keras"
    model.save(path)
    before = keras_side.values(model)

    only = program.archive(tmp_path, "only.npz", **x) if len(x) > 1 else program.arrays(tmp_path, **x)
    outputs = program.predict(tmp_path, path, only, batch_size=N)
    compare.close("output", name, outputs, np.array(model(x, training=False)), compare.OUTPUT)

    data = program.archive(tmp_path, **x, **{model.output_names[0]: y})
    if len(x) == 1:
        data = program.arrays(tmp_path, x=next(iter(x.values())), y=y)
    trained = program.fit(tmp_path, path, data, batch_size=N, epochs=1, steps=1)
    compare.close("loss", name, trained.losses[0], loss, compare.LOSS)
    after = keras_side.values(keras_side.load(trained.saved))
    by_variable = {id(v): g for v, g in zip(model.trainable_variables, want)}
    for variable, old, new in zip(model.weights, before, after, strict=True):
        g = by_variable.get(id(variable))
        where = f"{name}: {variable.path}"
        if g is None:
            assert np.array_equal(old, new), where
            continue
        if variable.constraint is not None:
            stepped = np.array(variable.constraint(keras.ops.convert_to_tensor(old - rate * g)))
            compare.close("constrained weight", where, new, stepped, compare.GRADIENT, scale=1.0)
            continue
        got, rounding = compare.recovered_gradient(old, new, rate)
        # The bias of the keys has no gradient: all scores of a query move by the same amount.
        scale = max(compare.largest(g), 0.1 * top)
        compare.close("gradient", where, got, g, compare.GRADIENT, scale=scale, allowance=rounding)


def plain_heads(**named):
    """Without biases: that of the keys has a gradient of 0, whose moments are rounding noise."""
    return heads(num_heads=2, use_bias=False, **named)


def gpt(words=11, length=8, width=8):
    ids = keras.Input((length,), dtype="int32")
    positions = ops.cumsum(ops.ones_like(ids), axis=1) - 1
    x = L.Embedding(words, width)(ids) + L.Embedding(length, width)(positions)
    for _ in range(2):
        h = L.LayerNormalization()(x)
        x = x + plain_heads()(h, h, use_causal_mask=True)
        h = L.LayerNormalization()(x)
        x = L.Add()([x, L.Dense(width)(L.Dense(2 * width, activation="gelu")(h))])
    return keras.Model(ids, L.Dense(words)(L.LayerNormalization()(x)))


def bert(words=11, length=8, width=8):
    ids = keras.Input((length,), dtype="int32")
    e = L.Embedding(words, width, mask_zero=True)(ids)
    positions = keras.ops.arange(length)
    mask = ops.not_equal(ids, 0)
    x = L.LayerNormalization()(e + L.Embedding(length, width)(ops.zeros_like(ids) + positions))
    for _ in range(2):
        a = plain_heads()(x, x, attention_mask=mask[:, None, :])
        x = L.LayerNormalization()(L.Add()([x, a]))
        x = L.LayerNormalization()(L.Add()([x, L.Dense(width)(L.Dense(2 * width, activation="gelu")(x))]))
    return keras.Model(ids, L.Dense(3)(L.Dense(width, activation="tanh")(x[:, 0])))


def vit(size=8, patch=4, width=8):
    image = keras.Input((size, size, 3))
    count = (size // patch) ** 2
    x = L.Reshape((count, width))(L.Conv2D(width, patch, strides=patch)(image))
    x = x + L.Embedding(count, width)(ops.zeros((1, count), "int32") + ops.cast(x[:, :, 0] * 0, "int32") + ops.arange(count))
    for _ in range(2):
        h = L.LayerNormalization(epsilon=1e-6)(x)
        x = L.Add()([x, plain_heads()(h, h)])
        h = L.LayerNormalization(epsilon=1e-6)(x)
        x = L.Add()([x, L.Dense(width)(L.Dense(2 * width, activation="gelu")(h))])
    return keras.Model(image, L.Dense(4)(L.GlobalAveragePooling1D()(L.LayerNormalization()(x))))


def swin(size=8, window=4, width=8):
    image = keras.Input((size, size, 3))
    x = L.Conv2D(width, 1)(image)
    for shift in (0, window // 2):
        h = L.LayerNormalization()(x)
        if shift:
            h = ops.roll(h, (-shift, -shift), axis=(1, 2))
        side = size // window
        h = ops.reshape(h, (-1, side, window, side, window, width))
        h = ops.reshape(ops.transpose(h, (0, 1, 3, 2, 4, 5)), (-1, side * side, window * window, width))
        h = plain_heads(attention_axes=2)(h, h)
        h = ops.transpose(ops.reshape(h, (-1, side, side, window, window, width)), (0, 1, 3, 2, 4, 5))
        h = ops.reshape(h, (-1, size, size, width))
        if shift:
            h = ops.roll(h, (shift, shift), axis=(1, 2))
        x = L.Add()([x, h])
        x = L.Add()([x, L.Dense(width)(L.Dense(2 * width, activation="gelu")(L.LayerNormalization()(x)))])
    return keras.Model(image, L.Dense(4)(L.GlobalAveragePooling2D()(x)))


@pytest.mark.parametrize("make", [gpt, bert, vit, swin], ids=lambda f: f.__name__)
def test_transformers_are_trained_as_in_keras(make, tmp_path, rng):
    model = keras_side.randomize(make())
    count = 18
    if model.input.dtype == "int32":
        x = rng.integers(1, 11, (count, 8)).astype(np.int32)
        if make is bert:
            x[:, 6:] = 0
    else:
        x = rng.standard_normal((count, *model.input_shape[1:])).astype(np.float32)
    classes = model.output_shape[-1]
    y = rng.integers(0, classes, (count, *model.output_shape[1:-1])).astype(np.int32)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-3), loss)
    runs.check_run(tmp_path, make.__name__, model, x, y, 6, epochs=2)


def test_dropout_of_weights_runs_as_planned(tmp_path, rng):
    """Random numbers differ from Keras's: outputs of inference are compared, and a rate of nearly 0 against none."""
    x = rng.standard_normal((N, T, C)).astype(np.float32)
    y = rng.standard_normal((N, T, C)).astype(np.float32)
    losses = []
    for rate in (0.0, 1e-7, 0.5):
        keras.utils.set_random_seed(2)
        i = keras.Input((T, C))
        model = keras_side.randomize(keras.Model(i, heads(dropout=rate)(i, i, use_causal_mask=True)))
        model.compile(keras.optimizers.SGD(0.25), "mse")
        model.save(tmp_path / "model.keras")
        data = program.arrays(tmp_path, x=x, y=y)
        trained = program.fit(tmp_path, tmp_path / "model.keras", data, batch_size=N, epochs=2, steps=2)
        losses.append(trained.losses)
        got = program.predict(tmp_path, tmp_path / "model.keras", program.arrays(tmp_path, x=x), batch_size=N)
        compare.close("output", "dropout", got, np.array(model(x, training=False)), compare.OUTPUT)
    compare.close("loss", "without and nearly without dropout", losses[1], losses[0], 1e-5)
    assert abs(losses[2][0] - losses[0][0]) > 1e-3 * losses[0][0]


def test_memory_of_attention_is_linear_in_the_positions(tmp_path):
    """Twice the positions take at most 2.1 times the arena; T x T floats of one head would take 1 GiB."""
    bytes_of = {}
    for length in (2048, 4096, 8192, 16384):
        i = keras.Input((length, 16))
        model = keras.Model(i, L.Dense(1)(heads(num_heads=2, key_dim=8)(i, i, use_causal_mask=True)))
        model.compile("sgd", "mse")
        model.save(tmp_path / "model.keras")
        bytes_of[length] = program.plan(tmp_path / "model.keras", batch_size=1)["arena_bytes"]
    for length in (2048, 4096, 8192):
        assert bytes_of[2 * length] < 2.1 * bytes_of[length], bytes_of
    assert bytes_of[16384] < 64 << 20, bytes_of


def test_memory_grows_with_the_positions_not_with_their_square(tmp_path):
    """A block of a GPT: no value has one element per pair of positions, forward or backward."""
    i = keras.Input((None,), dtype="int32")
    words = L.Embedding(100, 32)(i)
    normal = L.LayerNormalization()(words)
    words = L.Add()([words, L.MultiHeadAttention(2, 16)(normal, normal, use_causal_mask=True)])
    model = keras.Model(i, L.Dense(1)(L.GlobalAveragePooling1D()(words)))
    model.compile("adam", "mse")
    model.save(tmp_path / "model.keras")
    arena = {
        steps: program.plan(tmp_path / "model.keras", input_shape=steps, batch_size=1)["arena_bytes"]
        for steps in (4096, 16384)
    }
    assert 3 < arena[16384] / arena[4096] < 4.1, arena
    assert arena[16384] < 16384**2 / 4, arena  # far below even one byte per pair
