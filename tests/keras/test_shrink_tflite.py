"""plimsoll shrink quantize: the .tflite files in TensorFlow's own interpreter, on its reference kernels."""

import json
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from tensorflow.lite.python import schema_py_generated as schema

from program import PROGRAM, run


def plimsoll(*args):
    return run(*args, expect=None)


REFERENCE = tf.lite.experimental.OpResolverType.BUILTIN_REF
SAMPLES = 24


# TensorFlow's other kernels, also without delegates: the reference has no ELU, and computes tanh and sigmoid of integers
# with fixed-point polynomials that are some units off, where these have a table, as we do.
OPTIMIZED = tf.lite.experimental.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
resolver = REFERENCE


@pytest.fixture
def optimized(request, monkeypatch):
    if request.node.callspec.params["name"] in ("elu", "tanh", "dense_of_steps", "lstm", "gru", "bidirectional", "simple_rnn", "silu"):
        monkeypatch.setattr(sys.modules[__name__], "resolver", OPTIMIZED)


def interpreter(path):
    made = tf.lite.Interpreter(model_path=str(path), experimental_op_resolver_type=resolver)
    made.allocate_tensors()
    return made


def run_lite(path, *inputs):
    """The first output for each sample, as the file has it."""
    lite = interpreter(path)
    wanted = lite.get_input_details()
    results = []
    for i in range(len(inputs[0])):
        for detail, x in zip(wanted, inputs):
            lite.set_tensor(detail["index"], x[i : i + 1].astype(detail["dtype"]))
        lite.invoke()
        results.append(lite.get_tensor(lite.get_output_details()[0]["index"])[0].copy())
    return np.stack(results)


def quantize(tmp_path, model, *flags, x=None, name="model"):
    model.save(tmp_path / f"{name}.keras")
    args = ["shrink", "quantize", tmp_path / f"{name}.keras", "--json", "-o", tmp_path / f"{name}.tflite", *flags]
    if x is not None:
        np.save(tmp_path / "x.npy", x)
        args += ["--data", tmp_path / "x.npy"]
    done = plimsoll(*args)
    assert done.code == 0, done.stderr
    return tmp_path / f"{name}.tflite", json.loads(done.stdout)


def predict(tmp_path, path, x):
    np.save(tmp_path / "x.npy", x)
    done = plimsoll("predict", path, "--data", tmp_path / "x.npy", "--output", tmp_path / "y.npy", "--quiet")
    assert done.code == 0, done.stderr
    return np.load(tmp_path / "y.npy")


def randomized(model, seed=3):
    """Gives statistics and offsets values, so that folding them can go wrong."""
    rng = np.random.default_rng(seed)
    for v in model.variables:
        if "variance" in v.path:
            v.assign(rng.uniform(0.5, 2.0, v.shape))
        elif any(n in v.path for n in ("bias", "beta", "mean")):
            v.assign(rng.normal(0, 0.3, v.shape))
        elif "gamma" in v.path:
            v.assign(rng.uniform(0.5, 1.5, v.shape))
    return model


def image(*body, shape=(12, 11, 3)):
    return randomized(keras.Sequential([keras.Input(shape), *body]))


def functional(make, shape):
    x = keras.Input(shape)
    return randomized(keras.Model(x, make(x)))


def residual(x):
    y = layers.Conv2D(8, 3, padding="same")(x)
    y = layers.ReLU()(layers.BatchNormalization()(y))
    z = layers.BatchNormalization()(layers.Conv2D(8, 3, padding="same")(y))
    y = layers.ReLU()(layers.Add()([y, z]))
    return layers.Dense(5, activation="softmax")(layers.GlobalAveragePooling2D()(y))


def dense_block(x):
    for _ in range(3):
        y = layers.Conv2D(4, 3, padding="same", activation="relu")(layers.BatchNormalization()(x))
        x = layers.Concatenate()([x, y])
    return layers.Dense(4)(layers.Flatten()(layers.AveragePooling2D(2)(x)))


def transformer(x):
    y = layers.MultiHeadAttention(2, 4)(x, x)
    x = layers.LayerNormalization()(x + y)
    y = layers.Dense(8)(layers.Dense(16, activation="gelu")(x))
    x = layers.LayerNormalization()(x + y)
    return layers.Dense(3, activation="softmax")(layers.GlobalAveragePooling1D()(x))


# Single layers and small models; the second value is the input's shape.
FLOATS = {
    "dense": (lambda: image(layers.Dense(6, activation="relu"), shape=(7,)), (7,)),
    "dense_of_steps": (lambda: image(layers.Dense(6, activation="tanh"), shape=(5, 7)), (5, 7)),
    "conv_valid": (lambda: image(layers.Conv2D(5, 3, activation="relu")), (12, 11, 3)),
    "conv_same_stride": (lambda: image(layers.Conv2D(5, 3, strides=2, padding="same")), (12, 11, 3)),
    "conv_dilated": (lambda: image(layers.Conv2D(5, 3, dilation_rate=2, padding="same")), (12, 11, 3)),
    "conv_groups": (lambda: image(layers.Conv2D(6, 3, groups=3)), (12, 11, 3)),
    "conv1d_causal": (lambda: image(layers.Conv1D(4, 3, padding="causal"), shape=(9, 3)), (9, 3)),
    "depthwise": (lambda: image(layers.DepthwiseConv2D(3, padding="same")), (12, 11, 3)),
    "depthwise_twice": (lambda: image(layers.DepthwiseConv2D(3, depth_multiplier=2, strides=2)), (12, 11, 3)),
    "separable": (lambda: image(layers.SeparableConv2D(4, 3, activation="relu6")), (12, 11, 3)),
    "transposed": (lambda: image(layers.Conv2DTranspose(4, 3, strides=2, padding="same"), shape=(6, 5, 3)), (6, 5, 3)),
    "batch_norm": (lambda: image(layers.Conv2D(4, 3, use_bias=False), layers.BatchNormalization(), layers.ReLU(6.0)), (12, 11, 3)),
    "batch_norm_first": (lambda: image(layers.BatchNormalization(), layers.Conv2D(4, 3)), (12, 11, 3)),
    "pools": (lambda: image(layers.MaxPooling2D(2, padding="same"), layers.AveragePooling2D(3, strides=1, padding="same")), (12, 11, 3)),
    "global_max": (lambda: image(layers.GlobalMaxPooling2D()), (12, 11, 3)),
    "zero_padding": (lambda: image(layers.ZeroPadding2D(((1, 2), (0, 3))), layers.Conv2D(3, 3, strides=2)), (12, 11, 3)),
    "cropping": (lambda: image(layers.Cropping2D(((1, 2), (0, 3)))), (12, 11, 3)),
    "upsampling": (lambda: image(layers.UpSampling2D(2), shape=(6, 5, 3)), (6, 5, 3)),
    "upsampling_bilinear": (lambda: image(layers.UpSampling2D(2, interpolation="bilinear"), shape=(6, 5, 3)), (6, 5, 3)),
    "permute_reshape": (lambda: image(layers.Permute((2, 1, 3)), layers.Reshape((-1, 6))), (12, 11, 3)),
    "leaky_relu": (lambda: image(layers.Dense(6), layers.LeakyReLU(0.2), shape=(7,)), (7,)),
    "prelu": (lambda: image(layers.Conv2D(4, 3), layers.PReLU(shared_axes=[1, 2])), (12, 11, 3)),
    **{
        name: (lambda name=name: image(layers.Dense(6), layers.Activation(name), shape=(7,)), (7,))
        for name in ("sigmoid", "tanh", "softmax", "elu", "gelu", "silu", "hard_sigmoid", "hard_swish", "exponential")
    },
    "rescaling": (lambda: image(layers.Rescaling(1 / 3, offset=-0.5), layers.Conv2D(3, 3)), (12, 11, 3)),
    "layer_norm": (lambda: image(layers.LayerNormalization(), shape=(5, 7)), (5, 7)),
    "simple_rnn": (lambda: image(layers.SimpleRNN(4), shape=(5, 3)), (5, 3)),
    "lstm": (lambda: image(layers.LSTM(4, return_sequences=True), layers.LSTM(3, go_backwards=True), shape=(5, 3)), (5, 3)),
    "gru": (lambda: image(layers.GRU(4, return_sequences=True), layers.GRU(3, reset_after=False), shape=(5, 3)), (5, 3)),
    "bidirectional": (lambda: image(layers.Bidirectional(layers.LSTM(3, return_sequences=True)), shape=(5, 3)), (5, 3)),
    "merges": (
        lambda: functional(
            lambda x: layers.Maximum()([layers.Dense(4)(x), layers.Subtract()([layers.Dense(4)(x), layers.Multiply()([layers.Dense(4)(x), layers.Dense(4)(x)])])]),
            (7,),
        ),
        (7,),
    ),
    "residual": (lambda: functional(residual, (12, 11, 3)), (12, 11, 3)),
    "dense_block": (lambda: functional(dense_block, (8, 8, 3)), (8, 8, 3)),
    "transformer": (lambda: functional(transformer, (6, 8)), (6, 8)),
}


@pytest.mark.parametrize("name", FLOATS)
def test_float32_file_predicts_what_keras_predicts(name, tmp_path, rng, optimized):
    make, shape = FLOATS[name]
    model = make()
    x = rng.normal(size=(SAMPLES, *shape)).astype("float32")
    path, _ = quantize(tmp_path, model, "--float32")
    expected = model.predict(x, verbose=0)
    size = np.abs(expected).max()
    np.testing.assert_allclose(run_lite(path, x), expected, rtol=1e-5, atol=2e-6 * size)
    np.testing.assert_allclose(predict(tmp_path, path, x), expected, rtol=1e-5, atol=2e-6 * size)


# Beside one operator, errors of one unit inside the model add up: in recurrent loops over all steps.
MOST_UNITS = {"lstm": 8, "gru": 4, "bidirectional": 4, "simple_rnn": 4, "transformer": 6, "layer_norm": 3, "silu": 2}


@pytest.mark.parametrize("name", [n for n in FLOATS])
def test_int8_file_runs_as_the_integer_simulation(name, tmp_path, rng, optimized):
    make, shape = FLOATS[name]
    model = make()
    x = rng.normal(size=(SAMPLES, *shape)).astype("float32")
    path, report = quantize(tmp_path, model, "--int8", "--outputs", "int8", x=x)
    lite, ours = run_lite(path, x), predict(tmp_path, path, x)
    assert lite.dtype == np.int8 and ours.dtype == np.int8
    difference = np.abs(lite.astype(int) - ours.astype(int))
    assert difference.max() <= MOST_UNITS.get(name, 1), f"{difference.max()} units, {np.mean(difference > 0):.3f} differ"
    assert np.mean(difference > 0) < (0.1 if name not in MOST_UNITS else 0.6)
    # And both are near the model itself.
    detail = interpreter(path).get_output_details()[0]["quantization"]
    expected = model.predict(x, verbose=0)
    error = (lite.astype("float32") - detail[1]) * detail[0] - expected
    assert np.sqrt(np.mean(error**2)) < 0.08 * np.std(expected) + detail[0]
    if ours.ndim == 2 and ours.shape[1] > 2:
        assert np.mean(np.argmax(lite, 1) == np.argmax(ours, 1)) >= 0.9


@pytest.mark.parametrize("kind", ["--float16", "--dynamic"])
def test_weights_with_fewer_bits(kind, tmp_path, rng):
    model = functional(lambda x: layers.Dense(5)(layers.Flatten()(layers.Conv2D(16, 3, activation="relu")(layers.Conv2D(16, 3)(x)))), (12, 11, 8))
    x = rng.normal(size=(SAMPLES, 12, 11, 8)).astype("float32")
    path, report = quantize(tmp_path, model, kind)
    assert report["file_bytes"] < (0.55 if kind == "--float16" else 0.35) * report["float32_bytes"]
    expected = model.predict(x, verbose=0)
    bound = (1e-3 if kind == "--float16" else 0.03) * np.abs(expected).max()
    # TensorFlow rounds the values too when weights alone are integers; we compute in float32.
    np.testing.assert_allclose(run_lite(path, x), expected, atol=bound)
    np.testing.assert_allclose(predict(tmp_path, path, x), expected, atol=bound)


@pytest.mark.parametrize("inputs", ["int8", "uint8"])
def test_inputs_and_outputs_of_integers(inputs, tmp_path, rng):
    model = functional(residual, (12, 11, 3))
    x = rng.normal(size=(SAMPLES, 12, 11, 3)).astype("float32")
    path, _ = quantize(tmp_path, model, "--int8", "--inputs", inputs, "--outputs", inputs, x=x)
    detail = interpreter(path).get_input_details()[0]
    assert detail["dtype"] == np.dtype(inputs)
    scale, zero = detail["quantization"]
    limits = np.iinfo(inputs)
    q = np.clip(np.round(x / scale) + zero, limits.min, limits.max).astype(inputs)
    lite, ours = run_lite(path, q), predict(tmp_path, path, q)
    assert np.abs(lite.astype(int) - ours.astype(int)).max() <= 1


@pytest.mark.parametrize("method", ["percentile", "minmax", "mse", "kl"])
def test_calibration_methods(method, tmp_path, rng):
    model = functional(residual, (12, 11, 3))
    x = rng.normal(size=(SAMPLES, 12, 11, 3)).astype("float32")
    path, report = quantize(tmp_path, model, "--int8", "--calibration-method", method, x=x)
    assert report["calibrated_samples"] == SAMPLES
    assert report["same_class"] >= 0.8
    assert report["layers"] == sorted(report["layers"], key=lambda e: e["signal_to_noise_db"])


def test_outliers_do_not_take_the_range(tmp_path, rng):
    """One huge sample among many: the percentile keeps the others' resolution, the extremes do not."""
    model = image(layers.Dense(16, activation="relu"), layers.Dense(4), shape=(8,))
    x = rng.normal(size=(20000, 8)).astype("float32")
    x[7777] *= 2000
    errors = {}
    for method in ("percentile", "minmax"):
        path, _ = quantize(tmp_path, model, "--int8", "--calibration-method", method, "--calibration-samples", 20000, x=x)
        errors[method] = np.mean((run_lite(path, x[:50]) - model.predict(x[:50], verbose=0)) ** 2)
    assert errors["percentile"] < 0.05 * errors["minmax"]


def test_bias_correction_and_equalization_lower_the_error(tmp_path, rng):
    model = image(
        layers.DepthwiseConv2D(3, padding="same", activation="relu"), layers.Conv2D(16, 1, activation="relu"),
        layers.DepthwiseConv2D(3, padding="same", activation="relu"), layers.Conv2D(8, 1), shape=(12, 12, 8),
    )
    # Channels of very different ranges, which the model takes back again.
    factor = 10.0 ** rng.uniform(-1.5, 1.5, 16)
    w, b = model.layers[1].get_weights()
    model.layers[1].set_weights([w * factor, b * factor])
    w, b = model.layers[2].get_weights()
    model.layers[2].set_weights([w / factor[:, None], b])
    x = np.abs(rng.normal(size=(100, 12, 12, 8))).astype("float32")
    error = {}
    for flags in ((), ("--equalize",), ("--no-bias-correction",)):
        path, report = quantize(tmp_path, model, "--int8", *flags, x=x)
        error[flags] = report["output_mean_squared_error"]
        if "--equalize" in flags:
            assert report["equalized_pairs"] == 3
    assert error[("--equalize",)] < 0.5 * error[()]
    assert error[()] < 1.02 * error[("--no-bias-correction",)]


def test_kept_layers_are_float(tmp_path, rng):
    model = functional(residual, (12, 11, 3))
    x = rng.normal(size=(SAMPLES, 12, 11, 3)).astype("float32")
    whole, report = quantize(tmp_path, model, "--int8", x=x)
    kept, smaller = quantize(tmp_path, model, "--int8", "--keep-float", "conv2d_1", x=x, name="kept")
    cost = next(e["float32_bytes"] - e["bytes"] for e in report["layers"] if e["layer"] == "conv2d_1")
    assert 0.7 * cost < smaller["file_bytes"] - report["file_bytes"] < cost + 1500
    types = {d["name"]: d["dtype"] for d in interpreter(kept).get_tensor_details()}
    assert np.abs(run_lite(kept, x) - predict(tmp_path, kept, x)).max() <= 1.01 / 256
    assert np.float32 in {t for n, t in types.items() if n.startswith("conv2d_1/")}
    done = plimsoll("shrink", "quantize", tmp_path / "model.keras", "--int8", "--data", tmp_path / "x.npy", "--keep-float", "conv9", "-o", tmp_path / "m.tflite")
    assert done.code == 2 and "conv2d_1" in done.stderr


def test_embedding_with_lstm(tmp_path, rng):
    model = randomized(keras.Sequential([keras.Input((12,), dtype="int32"), layers.Embedding(50, 8), layers.LSTM(16), layers.Dense(3, activation="softmax")]))
    x = rng.integers(0, 50, (64, 12)).astype("int32")
    path, _ = quantize(tmp_path, model, "--float32")
    np.testing.assert_allclose(run_lite(path, x), model.predict(x, verbose=0), atol=2e-6)
    path, report = quantize(tmp_path, model, "--int8", x=x)
    lite, ours = run_lite(path, x), predict(tmp_path, path, x)
    assert np.abs(lite - ours).max() <= 4.01 / 256
    assert np.mean(np.argmax(lite, 1) == np.argmax(ours, 1)) >= 0.95


def test_causal_attention_in_integers(tmp_path, rng):
    model = functional(lambda x: layers.Dense(3)(layers.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True)), (6, 8))
    x = rng.normal(size=(SAMPLES, 6, 8)).astype("float32")
    expected = model.predict(x, verbose=0)
    path, _ = quantize(tmp_path, model, "--float32")
    np.testing.assert_allclose(run_lite(path, x), expected, atol=1e-5)
    path, _ = quantize(tmp_path, model, "--int8", x=x)
    assert np.sqrt(np.mean((run_lite(path, x) - expected) ** 2)) < 0.05 * np.std(expected)


def test_accuracy_is_that_of_the_file(tmp_path, rng):
    model = functional(residual, (12, 11, 3))
    model.compile(loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    model.save(tmp_path / "m.keras")
    x = rng.normal(size=(200, 12, 11, 3)).astype("float32")
    y = np.argmax(model.predict(x, verbose=0), 1).astype("int32")
    y[::7] = (y[::7] + 1) % 5
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    data = f"{tmp_path}/x.npy,{tmp_path}/y.npy"
    done = plimsoll("shrink", "quantize", tmp_path / "m.keras", "--int8", "--data", data, "--validation-data", data, "--json", "-o", tmp_path / "m.tflite")
    assert done.code == 0, done.stderr
    report = json.loads(done.stdout)
    lite = np.mean(np.argmax(run_lite(tmp_path / "m.tflite", x), 1) == y)
    assert abs(report["accuracy"] - lite) < 0.011  # TensorFlow may round a tie of two classes otherwise
    evaluated = json.loads(plimsoll("evaluate", tmp_path / "m.tflite", "--data", data, "--json").stdout)
    assert evaluated["metrics"]["accuracy"] == pytest.approx(report["accuracy"])


def test_calibration_without_data_is_an_error(tmp_path):
    image(layers.Conv2D(4, 3)).save(tmp_path / "m.keras")
    done = plimsoll("shrink", "quantize", tmp_path / "m.keras", "--int8", "-o", tmp_path / "m.tflite")
    assert done.code == 2 and "P201" in done.stderr and "--data" in done.stderr
    assert not (tmp_path / "m.tflite").exists()


def test_all_parts_that_do_not_convert_are_listed(tmp_path):
    x = keras.Input((8, 8, 8, 2))
    y = layers.Conv3D(3, 3, name="volume")(x)
    y = layers.Activation("softplus", name="curve")(y)
    keras.Model(x, layers.Activation("selu", name="other")(y)).save(tmp_path / "m.keras")
    done = plimsoll("shrink", "quantize", tmp_path / "m.keras", "-o", tmp_path / "m.tflite")
    assert done.code == 2 and "P205" in done.stderr
    for name in ("volume: ", "curve: ", "other: "):
        assert name in done.stderr
    assert not (tmp_path / "m.tflite").exists()


def test_a_budget_that_is_too_small_is_refused(tmp_path, rng):
    image(layers.Conv2D(64, 3), shape=(200, 200, 3)).save(tmp_path / "m.keras")
    np.save(tmp_path / "x.npy", rng.normal(size=(4, 200, 200, 3)).astype("float32"))
    done = plimsoll("shrink", "quantize", tmp_path / "m.keras", "--int8", "--data", tmp_path / "x.npy", "--budget", "40MiB", "-o", tmp_path / "m.tflite")
    assert done.code == 3 and "P301" in done.stderr


def test_numbers_of_the_format():
    """The numbers in our sources are those of TensorFlow's schema."""
    import pathlib
    import re

    source = pathlib.Path(PROGRAM[0]).resolve().parents[1] / "src/formats/tflite"
    source = source if source.exists() else pathlib.Path(__file__).parents[2] / "src/formats/tflite"
    header = (source / "lite_model.h").read_text()
    names = dict(re.findall(r"Named{Op::(k\w+), \"(\w+)\"}", (source / "names.cpp").read_text()))
    numbers = dict(re.findall(r"  (k\w+) = (\d+),", header.split("enum class Op")[1].split("};")[0]))
    assert set(numbers) == set(names) and len(names) > 40
    for ours, name in names.items():
        assert int(numbers[ours]) == getattr(schema.BuiltinOperator, name)
    for ours, number in re.findall(r"k(\w+) = (\d+)", header.split("enum class Type")[1].split("}")[0]):
        assert int(number) == getattr(schema.TensorType, ours.upper())
    for kind, theirs in (("Activation", schema.ActivationFunctionType), ("Padding", schema.Padding)):
        for ours, number in re.findall(r"k(\w+) = (\d+)", header.split(f"enum class {kind}")[1].split("}")[0]):
            assert int(number) == getattr(theirs, {"ReluN1To1": "RELU_N1_TO_1"}.get(ours, ours.upper()))
    text = (source / "schema.fbs").read_text()
    for name, number in re.findall(r"  (\w+) = (\d+),?\n", text.split("union Options")[1].split("}")[0]):
        assert int(number) == getattr(schema.BuiltinOptions, name)
    for table, body in re.findall(r"table (\w+) {(.*?)}", text, re.S):
        fields = re.findall(r"^  (\w+):", body, re.M)
        slot = 0
        for field in fields:
            words = "".join(w.capitalize() for w in field.split("_"))
            if field == "builtin_options":  # a union takes two
                assert table == "Operator"
                slot += 1
            if not field.startswith("unused"):
                add = getattr(schema, f"{table}Add{words}")
                assert slot_of(add) == slot, f"{table}.{field}"
            slot += 1


def slot_of(add):
    import inspect
    import re

    return int(re.search(r"Slot\((\d+),", inspect.getsource(add)).group(1))
