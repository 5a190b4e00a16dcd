"""Writes Keras's results for small models: shapes, weights in order, file paths, names of metrics, learning rates.

Run with a Python that has Keras 3 on TensorFlow:  python make.py  (writes *.json beside itself)
"""

import io
import json
import os
import pathlib
import zipfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import h5py
import keras
import numpy as np
from keras import layers as L

HERE = pathlib.Path(__file__).parent


def saved(model):
    path = HERE / "tmp.keras"
    model.save(path)
    with zipfile.ZipFile(path) as z:
        config = json.loads(z.read("config.json"))
        weights = h5py.File(io.BytesIO(z.read("model.weights.h5")))
        datasets = []
        weights.visititems(
            lambda name, item: datasets.append([name, list(item.shape)])
            if isinstance(item, h5py.Dataset) and not name.startswith("optimizer") else None)
    loaded = keras.models.load_model(path)
    path.unlink()
    return config, datasets, loaded


def leaf_layers(model):
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from leaf_layers(layer)
        elif not isinstance(layer, L.InputLayer):
            yield layer


def facts(name, model, **more):
    """Returns Keras's results for the model after loading it again."""
    config, datasets, model = saved(model)
    trainable = {id(v) for v in model.trainable_variables}
    seen, layer_list = set(), []
    for layer in leaf_layers(model):
        if id(layer) in seen:
            continue
        seen.add(id(layer))
        outputs = [list(n.outputs[0].shape)[1:] for n in layer._inbound_nodes[:1]]
        layer_list.append({"name": layer.name, "class": layer.__class__.__name__,
                           "output": outputs[0], "parameters": layer.count_params()})
    return {
        "name": name, "config": config,
        "weights": [{"name": w.path.split("/")[-1], "shape": list(w.shape), "trainable": id(w) in trainable}
                    for w in model.weights],
        "datasets": sorted(datasets),
        "layers": layer_list,
        "outputs": [list(o.shape)[1:] for o in model.outputs],
        "output_names": list(getattr(model, "output_names", None) or [model.layers[-1].name]),
        "parameters": model.count_params(), **more}


def sequential(shape, *layers, **compile_args):
    model = keras.Sequential([keras.Input(shape), *layers])
    if compile_args:
        model.compile(**compile_args)
    return model


def layer_models():
    image, vector = (9, 8, 6), (7,)
    one = {
        "dense": (vector, L.Dense(3)), "dense_3d": ((4, 5), L.Dense(3, use_bias=False, activation="tanh")),
        "conv": (image, L.Conv2D(4, 3)), "conv_same": (image, L.Conv2D(4, (3, 4), strides=2, padding="same")),
        "conv_dilated": (image, L.Conv2D(4, 3, dilation_rate=(2, 3), padding="same")),
        "conv_dilated_valid": (image, L.Conv2D(4, 3, dilation_rate=2)),
        "conv_groups": (image, L.Conv2D(4, 3, groups=2, strides=(2, 1), use_bias=False)),
        "depthwise": (image, L.DepthwiseConv2D(3, depth_multiplier=2, strides=2, padding="same")),
        "depthwise_valid": (image, L.DepthwiseConv2D((2, 3), activation="relu")),
        "separable": (image, L.SeparableConv2D(5, 3, depth_multiplier=2, padding="same")),
        "transpose": (image, L.Conv2DTranspose(4, 3, strides=2)),
        "transpose_same": (image, L.Conv2DTranspose(4, 3, strides=2, padding="same")),
        "transpose_padded": (image, L.Conv2DTranspose(4, 3, strides=3, padding="same", output_padding=1)),
        "transpose_padded_valid": (image, L.Conv2DTranspose(4, 2, strides=3, output_padding=(2, 0))),
        "transpose_gap": (image, L.Conv2DTranspose(4, 2, strides=4)),
        "max_pool": (image, L.MaxPooling2D()), "max_pool_same": (image, L.MaxPooling2D(3, strides=2, padding="same")),
        "avg_pool": (image, L.AveragePooling2D((2, 3))), "avg_pool_same": (image, L.AveragePooling2D(3, strides=2, padding="same")),
        "global_max": (image, L.GlobalMaxPooling2D()), "global_avg": (image, L.GlobalAveragePooling2D(keepdims=True)),
        "upsample": (image, L.UpSampling2D((2, 3))), "upsample_bilinear": (image, L.UpSampling2D(2, interpolation="bilinear")),
        "pad": (image, L.ZeroPadding2D(((1, 2), (0, 3)))), "pad_pair": (image, L.ZeroPadding2D((2, 1))),
        "flatten": (image, L.Flatten()), "flatten_vector": (vector, L.Flatten()),
        "reshape": (image, L.Reshape((6, -1, 4))), "reshape_full": (image, L.Reshape((72, 6))),
        "activation": (vector, L.Activation("relu")), "relu": (vector, L.ReLU(6.0, negative_slope=0.1, threshold=1.0)),
        "leaky": (vector, L.LeakyReLU()), "elu": (vector, L.ELU(0.5)), "softmax": (image, L.Softmax()),
        "gelu": (vector, L.Activation("gelu")), "silu": (vector, L.Activation("swish")),
        "sigmoid": (vector, L.Activation(keras.activations.sigmoid)), "dense_leaky": (vector, L.Dense(2, activation=L.LeakyReLU(0.1))),
        "dropout": (image, L.Dropout(0.3)), "batch_norm": (image, L.BatchNormalization()),
        "batch_norm_bare": (vector, L.BatchNormalization(center=False, scale=False, axis=1)),
        "batch_norm_frozen": (image, L.BatchNormalization(trainable=False)),
        "layer_norm": (image, L.LayerNormalization()), "layer_norm_bare": (vector, L.LayerNormalization(scale=False)),
        "rescaling": (image, L.Rescaling(1 / 127.5, offset=-1)),
    }
    models = [facts(name, sequential(shape, layer)) for name, (shape, layer) in one.items()]
    for name, merge, shapes in [("add", L.Add(), [(4, 3), (4, 3), (3,)]), ("multiply", L.Multiply(), [(4, 3, 2), (1, 1, 2)]),
                                ("concatenate", L.Concatenate(), [(4, 3), (4, 2)]),
                                ("concatenate_1", L.Concatenate(axis=1), [(4, 3), (2, 3), (1, 3)])]:
        inputs = [keras.Input(s) for s in shapes]
        models.append(facts(name, keras.Model(inputs, merge(inputs))))
    return models


def backbone(name="backbone"):
    i = keras.Input((8, 8, 3))
    x = L.Conv2D(4, 3, name="conv")(i)
    x = L.BatchNormalization(name="bn")(x)
    return keras.Model(i, L.GlobalAveragePooling2D(name="pool")(x), name=name)


def structures():
    models = []
    i = keras.Input((8, 8, 3))
    inner = backbone()
    inner.trainable = False
    models.append(facts("frozen_backbone", keras.Model(i, L.Dense(2, name="head")(inner(i)))))
    inner = backbone()
    inner.get_layer("conv").trainable = False
    models.append(facts("half_frozen", keras.Model(i, L.Dense(2, name="head")(L.Dropout(0.1)(inner(i))))))
    inner = backbone()
    j = keras.Input((8, 8, 3), name="right")
    models.append(facts("siamese", keras.Model([i, j], L.Dense(1, name="same")(L.Multiply()([inner(i), inner(j)])))))
    inner = backbone()
    models.append(facts("nested_output", keras.Model([i, j], [inner(i), inner(j)])))
    shared = L.Dense(4, name="shared")
    v = keras.Input((4,))
    models.append(facts("shared_at_two_depths", keras.Model(v, shared(L.ReLU()(shared(v))))))
    inner = keras.Sequential([keras.Input((4,)), L.Dense(4, name="a"), keras.Sequential([L.Dense(3, name="b")], name="deep")], name="inner")
    models.append(facts("sequential_in_sequential", sequential((4,), L.Dense(4, name="first"), inner)))
    frozen = backbone("whole")
    frozen.trainable = False
    models.append(facts("all_frozen", frozen))
    order = keras.Input((4,))
    left, right = L.Dense(3, name="left")(order), L.Dense(3, name="right")(order)
    models.append(facts("order", keras.Model(order, L.Dense(1, name="end")(L.Concatenate()([L.Dense(2, name="deeper")(right), left])))))
    return models


def compiled():
    """Returns models with losses and metrics, and the names that Keras reports."""
    rng = np.random.default_rng(1)
    models = []

    def one(name, model, x, y, **args):
        model.compile(**args)
        config = json.loads(json.dumps(keras.saving.serialize_keras_object(model)))
        result = model.test_on_batch(x, y, return_dict=True)
        models.append({"name": name, "config": config, "reported": sorted(result)})

    x = rng.normal(size=(6, 4)).astype("float32")
    labels, onehot, value = np.arange(6) % 3, np.eye(3, dtype="float32")[np.arange(6) % 3], rng.normal(size=(6, 1)).astype("float32")

    def classifier(units=3, activation="softmax"):
        return sequential((4,), L.Dense(units, activation=activation))

    def two():
        i = keras.Input((4,))
        return keras.Model(i, [L.Dense(3, activation="softmax", name="kind")(i), L.Dense(1, name="size")(i)])

    one("plain", classifier(), x, labels, optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    one("categorical", classifier(), x, onehot, optimizer="sgd", loss=keras.losses.CategoricalCrossentropy(label_smoothing=0.1),
        metrics=["acc", "mse", keras.metrics.CategoricalAccuracy(), keras.metrics.CategoricalAccuracy(name="second")], weighted_metrics=["acc", "mae"])
    one("binary", classifier(1, "sigmoid"), x, (value > 0).astype("float32"), optimizer="sgd", loss="binary_crossentropy",
        metrics=["accuracy", keras.metrics.BinaryAccuracy(threshold=0.3), "binary_accuracy"])
    one("functions", classifier(3, None), x, labels, optimizer="sgd", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[keras.metrics.sparse_categorical_accuracy, "sparse_categorical_crossentropy"])
    one("two_list", two(), x, [labels, value], optimizer="sgd", loss=["sparse_categorical_crossentropy", "mse"], loss_weights=[1, 0.5],
        metrics=[["accuracy"], ["mae", "mse"]], weighted_metrics=[["acc"], ["mae"]])
    one("two_dict", two(), x, [labels, value], optimizer="sgd",
        loss={"size": keras.losses.MeanAbsoluteError(), "kind": "sparse_categorical_crossentropy"}, loss_weights={"size": 0.25, "kind": 2.0}, metrics={"size": "mse"})
    return models


def schedules():
    s = keras.optimizers.schedules
    steps = [0, 1, 5, 9, 10, 11, 25, 29, 31, 50, 99, 100, 101, 1000]
    listed = [s.ExponentialDecay(0.1, 10, 0.9), s.ExponentialDecay(0.1, 10, 0.9, staircase=True),
              s.PiecewiseConstantDecay([10, 50], [0.1, 0.05, 0.01]), s.PolynomialDecay(0.1, 30), s.PolynomialDecay(0.1, 30, 0.01, 2.0, cycle=True),
              s.InverseTimeDecay(0.1, 10, 0.5), s.InverseTimeDecay(0.1, 10, 0.5, staircase=True), s.CosineDecay(0.1, 100, 0.1),
              s.CosineDecay(0.0, 100, 0.1, warmup_target=0.2, warmup_steps=10), s.CosineDecayRestarts(0.1, 10, t_mul=2.0, m_mul=0.9, alpha=0.01),
              s.CosineDecayRestarts(0.1, 10, t_mul=1.0), s.CosineDecayRestarts(0.1, 10, t_mul=1.5, m_mul=0.5)]
    return [{"schedule": keras.saving.serialize_keras_object(one), "steps": steps, "rates": [float(one(n)) for n in steps]} for one in listed]


def write(name, value):
    (HERE / f"{name}.json").write_text(json.dumps(value, separators=(",", ":")) + "\n")


def main():
    write("layers", layer_models())
    write("structures", structures())
    write("compiled", compiled())
    write("schedules", schedules())
    for name, application in [("mobilenet_v2", keras.applications.MobileNetV2), ("resnet50", keras.applications.ResNet50)]:
        one = facts(name, application(weights=None, input_shape=(64, 64, 3), classes=10))
        del one["datasets"]  # structures.json already covers file paths
        write(name, [one])


if __name__ == "__main__":
    main()
