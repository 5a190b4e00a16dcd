"""What the C++ interface describes, loaded by Keras: it must be what Keras makes of the same arguments.

The program describe_models writes tests/support/described_cases.h as JSON, each case with the Python that makes the same
thing. It is $DESCRIBE_MODELS, or describe_models beside the program under test.
"""

import copy
import json
import os
import pathlib
import re
import subprocess

import keras
import pytest
from keras import initializers as I  # noqa: E741, F401: names of the cases
from keras import layers
from keras import losses as L  # noqa: F401
from keras import metrics as M  # noqa: F401
from keras import optimizers as O  # noqa: E741, F401
from keras import regularizers as R  # noqa: F401
from keras.optimizers import schedules as S  # noqa: F401

import program

SOURCE = program.ROOT / "src" / "model"


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    beside = pathlib.Path(program.PROGRAM[0]).parent / "describe_models"
    writer = os.environ.get("DESCRIBE_MODELS", str(beside))
    if not os.path.exists(writer):
        pytest.skip(f"no {writer}: build the target describe_models")
    file = tmp_path_factory.mktemp("described") / "cases.json"
    subprocess.run([writer, str(file)], check=True)
    return json.loads(file.read_text())


def plain(config):
    """Without what differs between two layers of the same arguments: names that were chosen automatically."""
    if isinstance(config, dict):
        return {key: plain(value) for key, value in config.items() if key not in ("name", "shared_object_id")}
    if isinstance(config, (list, tuple)):
        return [plain(value) for value in config]
    return config


def evaluated(text):
    return eval(text, {**{name: getattr(layers, name) for name in dir(layers)}, **globals()})


def test_layers_have_the_configuration_that_keras_gives_them(cases):
    wrong = []
    for case in cases["layers"]:
        model = keras.models.model_from_json(json.dumps(case["model"]))
        want = evaluated(case["keras"])
        apart = isinstance(want, (layers.MultiHeadAttention, layers.GroupQueryAttention))
        want(*model.input) if apart else want(model.input)  # some classes write more once they are built
        got = model.layers[-1]
        assert got.__class__ is want.__class__, case["keras"]
        if plain(got.get_config()) != plain(want.get_config()) or (case["named"] and got.name != want.name):
            wrong.append((case["keras"], got.get_config(), want.get_config()))
    assert not wrong


# Classes that files may have and that the C++ interface has no function for yet; docs/cpp.md says so.
NOT_YET = {
    *(f"{kind}{rank}D" for kind in ("AdaptiveAveragePooling", "AdaptiveMaxPooling") for rank in (1, 2, 3)),
    *("Conv3D", "Conv3DTranspose", "MaxPooling3D", "AveragePooling3D", "GlobalMaxPooling3D", "GlobalAveragePooling3D"),
    *("UpSampling3D", "ZeroPadding3D", "Cropping3D", "EinsumDense", "Permute", "RepeatVector", "Normalization"),
    *("GroupNormalization", "RMSNormalization", "UnitNormalization"),
    *("CenterCrop", "Resizing", "RandomFlip", "RandomBrightness", "RandomContrast"),
    *("RandomRotation", "RandomZoom", "RandomTranslation", "RandomShear", "CategoryEncoding", "Discretization", "IntegerLookup"),
    *("RNN", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D"),
}  # fmt: skip


def test_every_layer_class_of_the_engine_is_described(cases):
    known = set()
    for path in SOURCE.glob("layers_*.cpp"):
        known.update(re.findall(r'LayerClass\{"(\w+)"', path.read_text(encoding="utf-8")))
    assert len(known) > 30
    described = {case["class_name"] for case in cases["layers"]}
    assert known - described == NOT_YET


def test_every_schedule_of_the_engine_is_described(cases):
    known = set(re.findall(r's\.kind == "(\w+)"', (SOURCE / "schedule.cpp").read_text(encoding="utf-8")))
    assert len(known) > 5
    assert known <= {case["json"]["class_name"] for case in cases["values"]}


def test_values_have_the_configuration_that_keras_gives_them(cases):
    wrong = []
    for case in cases["values"]:
        keras.backend.clear_session()  # automatic names are counted
        got = keras.saving.deserialize_keras_object(copy.deepcopy(case["json"]))
        want = evaluated(case["keras"])
        assert got.__class__ is want.__class__, case["keras"]
        if got.get_config() != want.get_config():
            wrong.append((case["keras"], got.get_config(), want.get_config()))
    assert not wrong


def two_inputs_two_outputs():
    picture, numbers = keras.Input((8, 8, 3), name="picture"), keras.Input((4,), name="numbers")
    seen = layers.GlobalAveragePooling2D()(layers.Conv2D(4, 3, activation="relu")(picture))
    both = layers.Concatenate()([seen, layers.Dense(4, activation="relu")(numbers)])
    price = layers.Dense(1, name="price")(both)
    kind = layers.Dense(3, activation="softmax", name="kind")(layers.Dense(5)(both))
    return keras.Model([picture, numbers], [price, kind], name="two_ways")


def shared_layer():
    a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b")
    shared = layers.Dense(4, name="shared")
    return keras.Model([a, b], layers.Add()([shared(a), shared(shared(b))]))


def nested_models():
    inner = keras.Input((8, 8, 3), name="inner")
    features = layers.Conv2D(4, 3, name="conv")(inner)
    outputs = [layers.GlobalAveragePooling2D()(features), layers.Flatten()(features)]
    backbone = keras.Model(inner, outputs, name="backbone")
    head = keras.Sequential([keras.Input((4,)), layers.Dense(3, name="classes")], name="head")
    x = keras.Input((8, 8, 3), name="x")
    made = backbone(x)
    return keras.Model(x, [head(made[0]), made[1]], name="whole")


def split_tensor():
    x = keras.Input((6, 4))
    parts = keras.ops.split(x, 3, axis=1)
    return keras.Model(x, [layers.Add()([parts[0], parts[2]]), layers.Dense(2)(parts[1])])


def small_sequential():
    stack = [keras.Input((None, None, 3), dtype="uint8"), layers.Rescaling(0.5), layers.Conv2D(4, 3), layers.Conv2D(4, 3)]
    return keras.Sequential([*stack, layers.GlobalMaxPooling2D(), layers.Dense(2), layers.Dense(2)], name="small")


def crossing_branches():
    x, y = keras.Input((4,), name="x"), keras.Input((4,), name="y")
    twice = layers.Dense(4)
    left = layers.Dense(4)(layers.Dense(4)(x))
    right = twice(y)
    late = twice(layers.Dense(4, name="middle")(layers.Add()([right, left])))
    last = layers.Multiply()([late, layers.Dense(4)(right)])
    return keras.Model([y, x], [last, layers.Dense(1)(left)], name="crossing")


@pytest.mark.parametrize(
    "build", [two_inputs_two_outputs, shared_layer, nested_models, split_tensor, small_sequential, crossing_branches]
)
def test_models_have_the_graph_that_keras_builds(cases, build, rng):
    got = keras.models.model_from_json(json.dumps(cases["models"][build.__name__]))
    want = build()
    # Keras counts automatic names per process and in the order of construction: layers are compared by their place.
    assert [type(layer) for layer in got.layers] == [type(layer) for layer in want.layers]
    assert [weight.shape for weight in got.weights] == [weight.shape for weight in want.weights]
    assert [plain(layer.get_config()) for layer in got.layers if not hasattr(layer, "layers")] == [
        plain(layer.get_config()) for layer in want.layers if not hasattr(layer, "layers")
    ]
    got.set_weights(want.get_weights())
    inputs = [rng.integers(0, 9, (2, *(d or 8 for d in x.shape[1:]))).astype(x.dtype) for x in want.inputs]
    for ours, theirs in zip(keras.tree.flatten(got.predict(inputs)), keras.tree.flatten(want.predict(inputs))):
        assert ours.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("build", [two_inputs_two_outputs, shared_layer, nested_models, split_tensor, crossing_branches])
def test_layers_are_listed_in_the_order_in_which_keras_lists_them(cases, build):
    """Files of weights count layers in this order."""

    def listed(config):
        return [
            listed(layer["config"]) if "layers" in layer["config"] else layer["config"].get("name")
            for layer in config["layers"]
        ]

    described = cases["models"][build.__name__]["config"]
    assert listed(described) == listed(keras.models.model_from_json(json.dumps(cases["models"][build.__name__])).get_config())


def test_a_compile_configuration_is_the_one_that_keras_writes(cases):
    got = keras.models.model_from_json(json.dumps(cases["compiled"]))
    got.compile_from_config(copy.deepcopy(cases["compile_config"]))
    want = two_inputs_two_outputs()
    want.compile(
        optimizer=keras.optimizers.SGD(0.5),
        loss={"price": L.MeanSquaredError(), "kind": L.SparseCategoricalCrossentropy()},
        loss_weights={"price": 0.5, "kind": 2},
        metrics={"price": ["mae"], "kind": ["accuracy"]},
    )
    ours, theirs = got.get_compile_config(), want.get_compile_config()
    for config in (ours, theirs):
        config.pop("jit_compile")  # "auto" depends on the machine
    assert ours == theirs
