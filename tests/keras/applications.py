"""The models of keras.applications, and what Plimsoll still lacks for each of them.

    python tests/keras/applications.py [NAME ...]      a table: opens or not, how long planning takes, what is missing

Run as `applications.py --step FILE X Y OUT`, it computes one step of a saved model in Keras (float32) and writes the loss and the
norm of every gradient; test_applications.py runs this with oneDNN on, to see how far Keras agrees with itself.
"""

import inspect
import os
import sys
import tempfile
import time

if __name__ == "__main__":
    os.environ.update(KERAS_BACKEND="tensorflow", CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="3")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import keras
import numpy as np

import keras_side
import program

# Every function of keras.applications that makes a model; never a list written by hand.
NAMES = sorted(
    name for name, f in vars(keras.applications).items() if inspect.isfunction(f) and "weights" in inspect.signature(f).parameters
)
# The training step uses the smallest image whose last feature maps still have several pixels: some models refuse less.
SMALL, LARGER = 64, 96
LARGER_NAMES = ("Xception", "InceptionV3", "InceptionResNetV2", "NASNetLarge", "NASNetMobile")
CLASSES = 10
COMPILED = {"optimizer": "adam", "loss": "sparse_categorical_crossentropy"}


def build(name, **named):
    keras.backend.clear_session()
    return getattr(keras.applications, name)(weights=None, **named)


def own_size_json(name, folder):
    """The architecture at the model's own input size, as a file."""
    path = folder / f"{name}.json"
    path.write_text(build(name).to_json())
    return path


def small(name):
    """The model at a small input size, without random layers, and with weights that leave no gradient invisibly small."""
    size = LARGER if name in LARGER_NAMES else SMALL
    model = build(name, classes=CLASSES, input_shape=(size, size, 3))
    for layer in model._flatten_layers():
        for rate in ("rate", "drop_path_rate"):
            if hasattr(layer, rate):
                setattr(layer, rate, 0.0)
        if isinstance(layer, keras.layers.Normalization) and layer.input_mean is None:
            layer.adapt_mean.assign(np.linspace(0.4, 0.5, 3))
            layer.adapt_variance.assign(np.linspace(0.04, 0.06, 3))
            layer.finalize_state()
        if type(layer).__name__ == "LayerScale":  # starts at 1e-6, which would hide its whole branch
            layer.gamma.assign(np.linspace(0.2, 0.4, layer.gamma.shape[0]))
    return model


def data(model, rng, batch):
    rescales = any(isinstance(layer, keras.layers.Rescaling) for layer in model.layers)
    x = rng.random((batch,) + model.input_shape[1:], np.float32) * (255 if rescales else 1)
    return x.astype(np.float32), rng.integers(0, CLASSES, batch).astype(np.int32)


def step(model, x, y):
    """(loss, norm of each gradient in float64) of one step in Keras."""
    loss, gradients = keras_side.step_gradients(model, x, y)
    return loss, np.array([np.linalg.norm(g.astype(np.float64)) for g in gradients])


def missing(name, folder):
    """(seconds of `plan`, the lines of its error that name what is not supported) at the model's own input size."""
    path = own_size_json(name, folder)
    begin = time.monotonic()
    ended = program.run("plan", path, *program.options(batch_size=1, budget="1TiB", **COMPILED), expect=None)
    seconds = time.monotonic() - begin
    lines = [line.strip() for line in ended.stderr.splitlines() if line.startswith("  ")]
    return seconds, ended.code, lines or ended.stderr.splitlines()


def main(names):
    import pathlib

    with tempfile.TemporaryDirectory() as folder:
        for name in names or NAMES:
            seconds, code, lines = missing(name, pathlib.Path(folder))
            print(f"{name:<20} {'opens' if code == 0 else 'refused'}   {seconds:6.2f} s", flush=True)
            for line in lines[:12] if code else ():
                print(f"    {line}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--step"]:
        saved, x, y, out = sys.argv[2:]
        loss, norms = step(keras.saving.load_model(saved), np.load(x), np.load(y))
        np.savez(out, loss=loss, norms=norms)
    else:
        main(sys.argv[1:])
