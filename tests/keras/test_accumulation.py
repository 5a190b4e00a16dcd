"""Micro-batches do not change training: 1,000 samples, batch 96, micro-batch 16, a last window of 40 samples (16, 16, 8).

After one step, the gradients agree within MICRO (3e-5) of each tensor's maximum. In the whole run, the error of each of the eleven
SGD steps affects the next ones; RUN_WEIGHT bounds it. Both agree with Keras's full batches."""

import keras
import numpy as np
import pytest

import compare
import keras_side
import models
import program
import runs

SAMPLES, BATCH, MICRO = 1000, 96, 16
STEPS = -(-SAMPLES // BATCH)
OPTIMIZERS = {
    "sgd_weight_decay": lambda: keras.optimizers.SGD(0.05, momentum=0.9, weight_decay=0.01),
    "adam_global_clipnorm": lambda: keras.optimizers.Adam(0.002, global_clipnorm=0.5),
    "adam_clipnorm": lambda: keras.optimizers.Adam(0.002, clipnorm=0.1),
    "sgd_schedule_clipvalue": lambda: keras.optimizers.SGD(
        keras.optimizers.schedules.CosineDecay(0.1, 8), clipvalue=0.05
    ),
}


def network(normalize=False):
    L = keras.layers
    r = keras.regularizers.L2(1e-3)
    x = i = keras.Input((12, 12, 2))
    x = L.Conv2D(8, 3, use_bias=not normalize, kernel_regularizer=r)(x)
    x = L.ReLU()(L.BatchNormalization()(x) if normalize else x)
    x = L.Flatten()(L.MaxPooling2D()(L.Conv2D(12, 3, activation="relu")(x)))
    return keras.Model(i, L.Dense(5, activation="softmax", kernel_regularizer=r)(x), name="accumulation")


def prepared(folder, rng, optimizer, normalize=False, weights=False):
    model = keras_side.randomize(network(normalize))
    model.compile(optimizer, "sparse_categorical_crossentropy")
    model.save(folder / "model.keras")
    x, y = models.labelled(rng, SAMPLES, (12, 12, 2), 5)
    w = rng.random(SAMPLES, np.float32) * 2 if weights else None
    return model, x, y, w, program.arrays(folder, x=x, y=y, sample_weight=w)


@pytest.mark.parametrize("weights", (False, True))
def test_gradients_of_one_window(weights, tmp_path, rng):
    model, x, y, w, data = prepared(tmp_path, rng, keras.optimizers.SGD(1.0), weights=weights)
    before = keras_side.values(model)
    got = {}
    for micro in (BATCH, MICRO, 7):
        trained = program.fit(
            tmp_path,
            tmp_path / "model.keras",
            data,
            name=f"micro{micro}",
            batch_size=BATCH,
            micro_batch=micro,
            epochs=1,
            steps_per_epoch=1,
            steps=1,
        )
        got[micro] = keras_side.values(keras_side.load(trained.saved)), trained.losses[0]
    for micro in (MICRO, 7):
        compare.close("loss", f"micro-batch {micro}", got[micro][1], got[BATCH][1], compare.LOSS)
        for variable, old, whole, cut in zip(model.weights, before, got[BATCH][0], got[micro][0]):
            want, rounding = compare.recovered_gradient(old, whole, 1.0)
            gradient, more = compare.recovered_gradient(old, cut, 1.0)
            compare.close(
                "micro gradient",
                f"micro-batch {micro}: {variable.path}",
                gradient,
                want,
                compare.MICRO,
                allowance=rounding + more,
            )


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_whole_run(name, tmp_path, rng):
    model, x, y, _, data = prepared(tmp_path, rng, OPTIMIZERS[name]())
    cut = program.fit(
        tmp_path, tmp_path / "model.keras", data, name="cut", batch_size=BATCH, micro_batch=MICRO, epochs=1, steps=STEPS
    )
    whole = program.fit(
        tmp_path,
        tmp_path / "model.keras",
        data,
        name="whole",
        batch_size=BATCH,
        micro_batch=BATCH,
        epochs=1,
        steps=STEPS,
    )
    want = keras_side.train(model, x, y, BATCH)
    for trained, where in ((cut, "micro-batches"), (whole, "full batch")):
        for step, (a, b) in enumerate(zip(trained.losses, want, strict=True)):
            compare.close("run loss", f"{name}, {where}: step {step + 1}", a, b, compare.RUN_LOSS)
        loaded = keras_side.load(trained.saved)
        runs.check_weights(f"{name}, {where}", keras_side.values(loaded), keras_side.values(model), model.weights)
        runs.check_state(f"{name}, {where}", keras_side.state(loaded), keras_side.state(model))
    runs.check_weights(
        f"{name}, both here",
        keras_side.values(keras_side.load(cut.saved)),
        keras_side.values(keras_side.load(whole.saved)),
        model.weights,
    )


def test_accumulation_steps_flag(tmp_path, rng):
    """--gradient-accumulation-steps 6 --batch-size 16 is an effective batch of 96."""
    model, x, y, _, data = prepared(tmp_path, rng, keras.optimizers.Adam(0.002))
    trained = program.fit(
        tmp_path,
        tmp_path / "model.keras",
        data,
        batch_size=MICRO,
        gradient_accumulation_steps=BATCH // MICRO,
        epochs=1,
        steps=STEPS,
    )
    keras_side.train(model, x, y, BATCH)
    runs.check_weights(
        "flag", keras_side.values(keras_side.load(trained.saved)), keras_side.values(model), model.weights
    )


def test_batch_norm_refuses_micro_batches(tmp_path, rng):
    _, _, _, _, data = prepared(tmp_path, rng, keras.optimizers.SGD(0.1), normalize=True)
    out = tmp_path / "out.keras"
    ended = program.run(
        "fit",
        tmp_path / "model.keras",
        "--data",
        data,
        "--batch-size",
        BATCH,
        "--micro-batch",
        MICRO,
        "--save",
        out,
        expect=3,
    )
    assert "P302" in ended.stderr and "per-micro-batch" in ended.stderr, ended.stderr
    assert not out.exists()


def test_batch_norm_per_micro_batch_when_allowed(tmp_path, rng):
    """With statistics per micro-batch, one step equals the mean of Keras's gradients over the micro-batches."""
    model, x, y, _, data = prepared(tmp_path, rng, keras.optimizers.SGD(1.0), normalize=True)
    before = keras_side.values(model)
    trained = program.fit(
        tmp_path,
        tmp_path / "model.keras",
        data,
        batch_size=BATCH,
        micro_batch=MICRO,
        batchnorm="per-micro-batch",
        epochs=1,
        steps_per_epoch=1,
        steps=1,
    )
    total = None
    for bx, by in keras_side.batches(x[:BATCH], y[:BATCH], MICRO):
        _, gradients = keras_side.step_gradients(model, bx, by)
        total = gradients if total is None else [a + b for a, b in zip(total, gradients)]
    want = {v.path: g * MICRO / BATCH for v, g in zip(model.trainable_variables, total)}
    after = keras_side.values(keras_side.load(trained.saved))
    for variable, old, new in zip(model.weights, before, after):
        if variable.path in want:
            gradient, rounding = compare.recovered_gradient(old, new, 1.0)
            compare.close(
                "micro gradient", variable.path, gradient, want[variable.path], compare.MICRO, allowance=rounding
            )
        else:  # each micro-batch updates the moving statistics in turn
            compare.close("statistic", variable.path, new, np.array(variable), compare.MICRO)


def test_validation_of_a_loss_that_is_a_sum(tmp_path, rng):
    """Keras adds up such a loss over each batch of validation, so micro-batches must not cut these batches."""
    model = keras_side.randomize(network())
    model.compile(keras.optimizers.SGD(1e-9), keras.losses.SparseCategoricalCrossentropy(reduction="sum"))
    model.save(tmp_path / "model.keras")
    (x, y), (vx, vy) = (models.labelled(rng, n, (12, 12, 2), 5) for n in (48, 40))
    trained = program.fit(
        tmp_path, tmp_path / "model.keras", program.arrays(tmp_path, x=x, y=y), batch_size=24, micro_batch=2, epochs=1,
        validation_data=program.arrays(tmp_path, prefix="v", x=vx, y=vy),
    )  # fmt: skip
    want = model.evaluate(vx, vy, batch_size=24, verbose=0)
    assert np.isclose(trained.of("epoch")[0]["metrics"]["val_loss"], want, rtol=1e-4)
