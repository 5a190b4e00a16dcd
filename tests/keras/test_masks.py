"""Masks: where Keras creates, passes on, merges and drops them, and losses that are means over the unmasked rows."""

import keras
import numpy as np
import pytest

import compare
import program
from one_step import check_step

L = keras.layers
N, STEPS, CHANNELS = 6, 5, 3


def sequence(*layers):
    return lambda: keras.Sequential([keras.Input((STEPS, CHANNELS)), *[make() for make in layers]])


def functional(make):
    def model():
        i = keras.Input((STEPS, CHANNELS))
        return keras.Model(i, make(i))

    return model


def dense(units=CHANNELS, **named):
    return lambda: L.Dense(units, **named)


MODELS = {
    "dense": sequence(L.Masking, dense(4, activation="tanh"), dense(2)),
    "value": sequence(lambda: L.Masking(mask_value=0.5), dense(2)),
    "passed_on": sequence(L.Masking, dense(4), L.LayerNormalization, L.ReLU, lambda: L.Dropout(0.0), dense(2)),
    "time_distributed": sequence(L.Masking, lambda: L.TimeDistributed(L.Dense(4, activation="relu")), dense(2)),
    "of_computed_values": sequence(dense(2, activation="relu"), L.Masking, dense(2)),
    "batch_norm": sequence(L.Masking, dense(4), lambda: L.BatchNormalization(momentum=0.5), dense(2)),
    "group_norm": sequence(L.Masking, dense(4), lambda: L.GroupNormalization(2), dense(2)),
    "lost": sequence(L.Masking, lambda: L.Conv1D(2, 3, padding="same")),
    "penalty": sequence(L.Masking, dense(4, kernel_regularizer=keras.regularizers.L2(0.1)), dense(2)),
    "nested": sequence(L.Masking, sequence(dense(4, activation="relu"), dense(2))),
    "add": functional(lambda i: (lambda m: L.Dense(2)(L.Add()([L.Dense(4)(m), L.Dense(4)(m)])))(L.Masking()(i))),
    "add_of_different": functional(
        lambda i: L.Dense(2)(L.Add()([L.Masking()(i), L.Masking(mask_value=0.5)(L.Activation("relu")(i))]))
    ),
    "add_unmasked": functional(lambda i: L.Dense(2)(L.Add()([L.Masking()(i), L.Dense(CHANNELS)(i)]))),
    "multiply": functional(
        lambda i: L.Dense(2)(L.Multiply()([L.Dense(4)(L.Masking()(i)), L.Dense(4)(L.Masking(mask_value=0.5)(i))]))
    ),
    **{
        f"{merge.__name__.lower()}_{name}": functional(
            lambda i, merge=merge, b=b: L.Dense(2)(merge()([L.Dense(4)(L.Masking()(i)), L.Dense(4)(b(i))]))
        )
        for merge in (L.Maximum, L.Subtract, L.Concatenate)
        for name, b in (("masked", lambda i: L.Masking(mask_value=0.5)(i)), ("unmasked", lambda i: i))
    },
    "minimum_average": functional(
        lambda i: (lambda m, n: L.Dense(2)(L.Average()([L.Minimum()([m, n]), n])))(
            L.Dense(4)(L.Masking()(i)), L.Dense(4)(L.Masking(mask_value=0.5)(i))
        )
    ),
    "concatenate_steps": functional(
        lambda i: L.Dense(2)(L.Concatenate(axis=1)([L.Masking()(i), L.Dense(CHANNELS)(i), L.Masking(mask_value=0.5)(i)]))
    ),
    "multiply_unmasked": functional(lambda i: L.Dense(2)(L.Multiply()([L.Masking()(i), L.Dense(CHANNELS)(i)]))),
}


VECTORS = {
    "vectors": lambda: [L.Masking(), L.Dense(4, activation="tanh"), L.Dense(2)],
    "vectors_value": lambda: [L.Masking(mask_value=0.5), L.Dense(4), L.LayerNormalization(), L.Dense(2)],
    "vectors_batch_norm": lambda: [L.Masking(), L.Dense(4), L.BatchNormalization(momentum=0.5), L.Dense(2)],
    "vectors_lost": lambda: [L.Masking(), L.Dense(4), L.Reshape((2, 2)), L.Conv1D(2, 1)],
}


@pytest.mark.parametrize("name", VECTORS)
def test_samples_of_one_dimension(name, tmp_path, rng):
    """A sample is masked as a whole."""
    model = keras.Sequential([keras.Input((CHANNELS,)), *VECTORS[name]()])
    x = rng.standard_normal((N, CHANNELS)).astype(np.float32)
    x[1], x[4] = 0, 0.5
    check_step(tmp_path, model, x, rng.standard_normal((N,) + model.output_shape[1:]).astype(np.float32), "mse")


def data(rng, model):
    x = rng.standard_normal((N, STEPS, CHANNELS)).astype(np.float32)
    x[rng.random((N, STEPS)) < 0.4] = 0
    x[rng.random((N, STEPS)) < 0.2] = 0.5
    x[0] = 0  # a sample that is masked completely
    return x, rng.standard_normal((N,) + model.output_shape[1:]).astype(np.float32)


@pytest.mark.parametrize("flags", [(), ("--micro-batch", "1"), ("--micro-batch", "4")], ids=["whole", "by_1", "by_4"])
@pytest.mark.parametrize("name", MODELS)
def test_masked_loss(name, flags, tmp_path, rng):
    if flags and name == "batch_norm":
        pytest.skip("BatchNormalization couples samples, so it has no micro-batches")
    model = MODELS[name]()
    check_step(tmp_path, model, *data(rng, model), "mse", flags=flags)


@pytest.mark.parametrize("flags", [(), ("--micro-batch", "4")], ids=["whole", "by_4"])
def test_sample_weights_beside_a_mask(flags, tmp_path, rng):
    model = MODELS["dense"]()
    weight = (0.25 + rng.random(N)).astype(np.float32)
    check_step(tmp_path, model, *data(rng, model), "mse", sample_weight=weight, flags=flags)


def test_labels_beside_a_mask(tmp_path, rng):
    model = sequence(L.Masking, dense(4, activation="softmax"))()
    x, _ = data(rng, model)
    check_step(tmp_path, model, x, rng.integers(0, 4, (N, STEPS)).astype(np.int32), "sparse_categorical_crossentropy")


def test_nothing_counts(tmp_path, rng):
    model = MODELS["penalty"]()
    x, y = data(rng, model)
    check_step(tmp_path, model, np.zeros_like(x), y, "mse", flags=("--micro-batch", "2"))


def test_evaluation_of_a_masked_loss(tmp_path, rng):
    model = MODELS["dense"]()
    model.compile("sgd", "mse")
    x, y = data(rng, model)
    model.save(tmp_path / "model.keras")
    got = program.evaluate(tmp_path / "model.keras", program.arrays(tmp_path, x=x, y=y), batch_size=N)
    compare.close("loss", "evaluate", got["loss"], model.evaluate(x, y, batch_size=N, verbose=0), compare.LOSS)
