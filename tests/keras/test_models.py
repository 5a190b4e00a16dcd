"""A dozen small models, float32: the loss of each of 20 steps, weights and optimizer state after them, evaluation."""

import keras
import numpy as np
import pytest

import compare
import keras_side
import models
import philox
import program
import runs

STEPS = 20
SMALL = models.small_models(keras)


@pytest.mark.parametrize("name", SMALL)
def test_twenty_steps(name, tmp_path, rng):
    s = SMALL[name](rng, STEPS)
    file = tmp_path / "model.keras"
    if not s.in_file:
        s.model.save(file)
    s.model.compile(**s.compile)
    if s.in_file:
        s.model.save(file)
    _, loaded = runs.check_run(tmp_path, name, s.model, s.x, s.y, s.batch, s.flags, file=file)
    check_evaluation(tmp_path, name, s, loaded)


def check_evaluation(folder, name, s, loaded):
    """Compares the evaluation of the trained file with Keras's."""
    shape = s.flags if "--input-shape" in s.flags else ()  # the trained file contains what the other flags set
    got = program.evaluate(folder / "out.keras", runs.data_of(folder, s.x, s.y), *shape, batch_size=3 * s.batch)
    # Use eager mode: in a traced graph, Keras does not know the batch size, and averages the loss of each output over batches, not samples.
    loaded.run_eagerly = True
    want = {
        k: float(v)
        for k, v in loaded.evaluate(
            s.x, keras_side.lone(s.y), batch_size=3 * s.batch, verbose=0, return_dict=True
        ).items()
    }
    compare.close("evaluate loss", name, got["loss"], want.pop("loss"), compare.LOSS)
    assert set(got["metrics"]) == set(want)
    for metric, value in want.items():
        compare.close("metric", f"{name}: {metric}", got["metrics"][metric], value, compare.LOSS)


def dropout_network(masks):
    """The same network with Dropout layers, or with their masks as further inputs."""
    L, inputs = keras.layers, []

    def drop(x, rate):
        if not masks:
            return L.Dropout(rate)(x)
        inputs.append(keras.Input(x.shape[1:]))
        return L.Multiply()([x, inputs[-1]])

    i = keras.Input((10, 10, 3))
    x = drop(L.Conv2D(6, 3, activation="relu", name="conv")(i), 0.25)
    x = drop(L.Dense(16, activation="relu", name="hidden")(L.Flatten()(L.MaxPooling2D()(x))), 0.5)
    return keras.Model([i] + inputs, L.Dense(4, activation="softmax", name="head")(x), name="dropout")


def dropout_calls(model):
    """The counter word of each Dropout: its number among the layer calls, without inputs (the model is a chain)."""
    called = [layer for layer in model.layers if not isinstance(layer, keras.layers.InputLayer)]
    return [k for k, layer in enumerate(called) if isinstance(layer, keras.layers.Dropout)]


@pytest.mark.parametrize("micro", (None, 3))
def test_dropout_with_injected_masks(micro, tmp_path, rng):
    seed, batch, rates = 0x1234567890, 8, (0.25, 0.5)
    model, oracle = dropout_network(False), dropout_network(True)
    oracle.set_weights(model.get_weights())
    settings = dict(loss="sparse_categorical_crossentropy")
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), **settings)
    oracle.compile(keras.optimizers.SGD(0.05, momentum=0.9), **settings)
    x, y = models.labelled(rng, batch * STEPS - 3, (10, 10, 3), 4)
    model.save(tmp_path / "model.keras")
    trained = program.fit(
        tmp_path,
        tmp_path / "model.keras",
        runs.data_of(tmp_path, x, y),
        batch_size=batch,
        micro_batch=micro,
        seed=seed,
        epochs=1,
        steps=STEPS,
    )
    losses = []
    for step, (bx, by) in enumerate(keras_side.batches(x, y, batch)):
        shapes = [tuple(t.shape[1:]) for t in oracle.inputs[1:]]
        masks = [
            philox.mask(seed, step, call, len(bx), shape, rate)  # steps are the optimizer's iterations, starting at 0
            for call, shape, rate in zip(dropout_calls(model), shapes, rates, strict=True)
        ]
        losses.append(float(oracle.train_on_batch([bx] + masks, by)))
    for step, (a, b) in enumerate(zip(trained.losses, losses, strict=True)):
        compare.close("run loss", f"dropout: step {step + 1}", a, b, compare.RUN_LOSS)
    runs.check_weights(
        "dropout", keras_side.values(keras_side.load(trained.saved)), keras_side.values(oracle), model.weights
    )


def test_dropout_is_off_outside_training(tmp_path, rng):
    model = dropout_network(False)
    model.compile("sgd", "sparse_categorical_crossentropy")
    model.save(tmp_path / "model.keras")
    x, _ = models.labelled(rng, 9, (10, 10, 3), 4)
    got = program.predict(tmp_path, tmp_path / "model.keras", program.arrays(tmp_path, x=x), batch_size=4)
    compare.close("output", "dropout", got, np.array(model(x, training=False)), compare.OUTPUT)


def test_philox_is_philox():
    philox.self_test()
