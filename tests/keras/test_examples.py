"""Models in the spirit of the examples at keras.io: each opens, plans exactly, and trains some steps with Keras's losses."""

import pytest

import compare
import examples
import functional_examples
import keras_side
import program
import runs

EPOCHS = 2
EXAMPLES = {**examples.EXAMPLES, **functional_examples.EXAMPLES}


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name, tmp_path, rng):
    example = EXAMPLES[name](rng)
    path = tmp_path / "model.keras"
    example.model.save(path)
    steps = EPOCHS * examples.N // examples.BATCH
    data = runs.data_of(tmp_path, example.x, example.y)
    trained = program.fit(tmp_path, path, data, batch_size=examples.BATCH, epochs=EPOCHS, steps=steps)
    want = keras_side.train(example.model, example.x, example.y, examples.BATCH, EPOCHS, eager=True)
    for step, (a, b) in enumerate(zip(trained.losses, want, strict=True)):
        compare.close("example loss", f"{name}: step {step + 1}", a, b, 10 * compare.RUN_LOSS)
    loaded = keras_side.load(trained.saved)
    assert int(loaded.optimizer.iterations.numpy()) == steps
