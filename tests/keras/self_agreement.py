"""How far Keras agrees with itself: each small model over 20 steps with TensorFlow's oneDNN off and on, float32.

    python tests/keras/self_agreement.py        one line per model: worst relative difference of losses, weights, optimizer state

Two orders of addition in Keras differ by as much as Keras and any other correct program; the bounds in compare.py depend on this.
"""

import os
import subprocess
import sys
import tempfile

import numpy as np


def one(path):
    os.environ.update(KERAS_BACKEND="tensorflow", CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="3")
    import keras
    import keras_side
    import models

    out = {}
    for name, make in models.small_models(keras).items():
        keras.backend.clear_session()
        keras.utils.set_random_seed(1)
        s = make(np.random.default_rng(7), 20)
        s.model.compile(**s.compile)
        out[f"{name}|losses"] = keras_side.train(s.model, s.x, s.y, s.batch)
        for k, value in enumerate(keras_side.values(s.model)):
            out[f"{name}|weights|{k}"] = value
        for k, value in keras_side.state(s.model).items():
            out[f"{name}|state|{k}"] = value
    np.savez(path, **out)


def main():
    with tempfile.TemporaryDirectory() as folder:
        for switch in "01":
            subprocess.run(
                [sys.executable, __file__, f"{folder}/{switch}.npz"],
                check=True,
                env={**os.environ, "TF_ENABLE_ONEDNN_OPTS": switch},
            )
        off, on = np.load(f"{folder}/0.npz"), np.load(f"{folder}/1.npz")
        worst = {}
        for key in off.files:
            name, kind = key.split("|")[:2]
            a, b = np.atleast_1d(off[key]).astype(np.float64), np.atleast_1d(on[key]).astype(np.float64)
            apart = (
                np.max(np.abs(a - b) / np.abs(a))
                if kind == "losses"
                else np.max(np.abs(a - b)) / max(np.max(np.abs(a)), 1e-30)
            )
            worst.setdefault(name, {})[kind] = max(worst.get(name, {}).get(kind, 0), apart)
    for name, kinds in worst.items():
        print(f"{name:<18}" + "".join(f"{kind} {value:8.1e}   " for kind, value in kinds.items()))


if __name__ == "__main__":
    one(sys.argv[1]) if len(sys.argv) > 1 else main()
