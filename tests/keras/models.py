"""The models of the tests and benchmarks, and data for them. Keras is an argument: a benchmark times its import.

BENCH   seven models measured against TensorFlow (two convolutions at Fashion-MNIST's size, the CNNs of the seed article,
        a ResNet-20, a 1x1-heavy and a depthwise net), and five models of sequences
SMALL   a dozen small models, one for each way to combine layers, with their compile configuration and data
"""

import dataclasses
import typing

import numpy as np

BENCH_NAMES = ("fashion", "seed_1", "seed_2", "seed_3", "resnet20", "pointwise", "depthwise")
BENCH_SEQUENCES = ("lstm", "gru", "bidirectional", "text_cnn", "small_gpt")


def bench_model(keras, name):
    L = keras.layers

    def cnn(px, channels, *filters):
        layers = [keras.Input((px, px, channels))]
        for f in filters:
            layers += [L.Conv2D(f, 3, activation="relu"), L.MaxPooling2D()]
        return keras.Sequential(layers + [L.Flatten(), L.Dense(10, activation="softmax")])

    def head(i, x):
        return keras.Model(i, L.Dense(10, activation="softmax")(L.GlobalAveragePooling2D()(x)))

    def resnet20():
        x = i = keras.Input((32, 32, 3))
        x = L.ReLU()(L.BatchNormalization()(L.Conv2D(16, 3, padding="same", use_bias=False)(x)))
        for stage, width in enumerate((16, 32, 64)):
            for block in range(3):
                stride = 2 if stage and not block else 1
                y = L.Conv2D(width, 3, stride, padding="same", use_bias=False)(x)
                y = L.ReLU()(L.BatchNormalization()(y))
                y = L.BatchNormalization()(L.Conv2D(width, 3, padding="same", use_bias=False)(y))
                if stride == 2:
                    x = L.BatchNormalization()(L.Conv2D(width, 1, 2, use_bias=False)(x))
                x = L.ReLU()(L.Add()([x, y]))
        return head(i, x)

    def pointwise():
        x = i = keras.Input((32, 32, 64))
        for width in (128, 128, 256, 256):
            x = L.Conv2D(width, 1, activation="relu")(x)
        return head(i, x)

    def depthwise():
        x = i = keras.Input((64, 64, 3))
        x = L.ReLU()(L.BatchNormalization()(L.Conv2D(32, 3, 2, padding="same", use_bias=False)(x)))
        for width, stride in ((64, 1), (128, 2), (128, 1), (256, 2)):
            x = L.ReLU()(L.BatchNormalization()(L.DepthwiseConv2D(3, stride, padding="same", use_bias=False)(x)))
            x = L.ReLU()(L.BatchNormalization()(L.Conv2D(width, 1, use_bias=False)(x)))
        return head(i, x)

    def words(steps, mask=False, vocabulary=10000, width=64):
        i = keras.Input((steps,), dtype="int32")
        return i, L.Embedding(vocabulary, width, mask_zero=mask)(i)

    def bidirectional():
        i, x = words(64, mask=True)
        x = L.Bidirectional(L.LSTM(64, return_sequences=True))(x)
        return keras.Model(i, L.Dense(10, activation="softmax")(L.Bidirectional(L.LSTM(64))(x)))

    def text_cnn():
        i, x = words(200)
        sizes = [L.GlobalMaxPooling1D()(L.Conv1D(64, size, activation="relu")(x)) for size in (3, 4, 5)]
        return keras.Model(i, L.Dense(10, activation="softmax")(L.Concatenate()(sizes)))

    def small_gpt():
        i, x = words(64, vocabulary=2000, width=128)
        for _ in range(2):
            y = L.LayerNormalization()(x)
            x = x + L.MultiHeadAttention(4, 32)(y, y, use_causal_mask=True)
            y = L.Dense(512, activation="gelu")(L.LayerNormalization()(x))
            x = x + L.Dense(128)(y)
        return keras.Model(i, L.Dense(2000, activation="softmax")(L.LayerNormalization()(x)))

    def recurrent(layer):
        return keras.Sequential([keras.Input((100, 32)), layer(128), L.Dense(10, activation="softmax")])

    return {
        "lstm": lambda: recurrent(L.LSTM),
        "gru": lambda: recurrent(L.GRU),
        "bidirectional": bidirectional,
        "text_cnn": text_cnn,
        "small_gpt": small_gpt,
        "fashion": lambda: cnn(28, 1, 32, 64),
        "seed_1": lambda: cnn(64, 3, 32),
        "seed_2": lambda: cnn(128, 3, 32, 64),
        "seed_3": lambda: cnn(128, 3, 16, 32),
        "resnet20": resnet20,
        "pointwise": pointwise,
        "depthwise": depthwise,
    }[name]()


def labelled(rng, n, shape, classes=10):
    return rng.standard_normal((n,) + tuple(shape), dtype=np.float32), rng.integers(0, classes, n)


def bench_data(rng, n, model):
    """Inputs and labels for a model of bench_model: pictures, numbers per step, or sentences that end in zeros."""
    shape, classes = tuple(model.input_shape[1:]), model.output_shape[-1]
    y = rng.integers(0, classes, (n, *model.output_shape[1:-1]))
    if not model.inputs[0].dtype.startswith("int"):
        return rng.standard_normal((n, *shape), dtype=np.float32), y
    table = next(layer for layer in model.layers if hasattr(layer, "embeddings"))
    x = rng.integers(1, table.input_dim, (n, *shape)).astype(np.int32)
    x[np.arange(shape[0]) >= rng.integers(shape[0] // 4, shape[0] + 1, n)[:, None]] = 0
    return x, y


def unet(keras, px=32, channels=3, base=8, depth=2, classes=3, normalize=False):
    """A U-Net: max-pooling down, transposed convolutions up, skip connections by Concatenate; it predicts a class per pixel."""
    L = keras.layers

    def block(x, width):
        for _ in range(2):
            x = L.Conv2D(width, 3, padding="same", use_bias=not normalize)(x)
            x = L.BatchNormalization()(x) if normalize else x
            x = L.ReLU()(x)
        return x

    x = i = keras.Input((px, px, channels))
    skips = []
    for level in range(depth):
        x = block(x, base << level)
        skips.append(x)
        x = L.MaxPooling2D()(x)
    x = block(x, base << depth)
    for level in reversed(range(depth)):
        x = L.Conv2DTranspose(base << level, 2, 2, padding="same")(x)
        x = block(L.Concatenate()([skips[level], x]), base << level)
    return keras.Model(i, L.Conv2D(classes, 1, activation="softmax")(x))


@dataclasses.dataclass
class Small:
    """A compiled model (or an uncompiled one with flags instead of compile) and its data: steps x batch samples."""

    model: typing.Any
    x: typing.Any  # an array, or a dict by input name
    y: typing.Any  # an array, or a dict by output name
    batch: int
    compile: dict  # model.compile's arguments
    flags: tuple = ()
    in_file: bool = True  # False: the file is saved before compile, and flags replace compile


def small_models(keras):
    """name -> function of (rng, steps) -> Small. Layers before BatchNorm have no bias, because its true gradient is zero."""
    L, O = keras.layers, keras.optimizers

    def cnn(rng, steps):
        model = keras.Sequential(
            [
                keras.Input((16, 16, 3)),
                L.Conv2D(8, 3, activation="relu"),
                L.MaxPooling2D(),
                L.Conv2D(16, 3, activation="relu"),
                L.MaxPooling2D(),
                L.Flatten(),
                L.Dense(10, activation="softmax"),
            ]
        )
        x, y = labelled(rng, 8 * steps, (16, 16, 3))
        return Small(
            model, x, y, 8, dict(optimizer=O.Adam(), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
        )

    def shared(rng, steps):
        """One tower called on two inputs, and once more on its own output."""
        a, b = keras.Input((12,), name="left"), keras.Input((12,), name="right")
        tower = L.Dense(12, activation="tanh", name="tower")
        both = L.Concatenate()([tower(a), tower(tower(b))])
        model = keras.Model([a, b], L.Dense(1, name="score")(both))
        n = 8 * steps
        x = {
            "left": rng.standard_normal((n, 12), dtype=np.float32),
            "right": rng.standard_normal((n, 12), dtype=np.float32),
        }
        return Small(
            model,
            x,
            {"score": rng.standard_normal((n, 1), dtype=np.float32)},
            8,
            dict(optimizer=O.SGD(0.05, momentum=0.9), loss="mse"),
        )

    def several_outputs(rng, steps):
        i = keras.Input((10, 10, 2), name="image")
        j = keras.Input((5,), name="facts")
        x = L.Flatten()(L.Conv2D(6, 3, strides=2, activation="relu")(i))
        x = L.Concatenate()([x, L.Dense(8, activation="elu")(j)])
        kind = L.Dense(4, activation="softmax", name="kind")(x)
        size = L.Dense(2, name="size")(x)
        model = keras.Model([i, j], [kind, size])
        n = 8 * steps
        data = {
            "image": rng.standard_normal((n, 10, 10, 2), dtype=np.float32),
            "facts": rng.standard_normal((n, 5), dtype=np.float32),
        }
        target = {"kind": rng.integers(0, 4, n), "size": rng.standard_normal((n, 2), dtype=np.float32)}
        return Small(
            model,
            data,
            target,
            8,
            dict(
                optimizer=O.Adam(2**-9),
                loss={"kind": "sparse_categorical_crossentropy", "size": "mse"},
                loss_weights={"kind": 1.0, "size": 0.25},
                metrics={"kind": ["accuracy"], "size": ["mae"]},
            ),
        )

    def frozen_backbone(rng, steps):
        b = keras.Input((12, 12, 3))
        h = L.ReLU()(L.BatchNormalization()(L.Conv2D(8, 3, padding="same", use_bias=False)(b)))
        h = L.ReLU()(L.BatchNormalization()(L.Conv2D(8, 3, strides=2, padding="same", use_bias=False)(h)))
        backbone = keras.Model(b, h, name="backbone")
        backbone.trainable = False
        i = keras.Input((12, 12, 3))
        model = keras.Model(i, L.Dense(5)(L.Dense(16, activation="gelu")(L.GlobalAveragePooling2D()(backbone(i)))))
        x, y = labelled(rng, 8 * steps, (12, 12, 3), 5)
        return Small(
            model,
            x,
            y,
            8,
            dict(optimizer=O.Adam(0.01), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True)),
        )

    def resnet(rng, steps):
        x = i = keras.Input((16, 16, 3))
        x = L.ReLU()(L.BatchNormalization()(L.Conv2D(8, 3, padding="same", use_bias=False)(x)))
        for width, stride in ((8, 1), (16, 2)):
            y = L.ReLU()(L.BatchNormalization()(L.Conv2D(width, 3, stride, padding="same", use_bias=False)(x)))
            y = L.BatchNormalization()(L.Conv2D(width, 3, padding="same", use_bias=False)(y))
            if stride == 2:
                x = L.BatchNormalization()(L.Conv2D(width, 1, 2, use_bias=False)(x))
            x = L.ReLU()(L.Add()([x, y]))
        model = keras.Model(i, L.Dense(10, activation="softmax")(L.GlobalAveragePooling2D()(x)))
        x, y = labelled(rng, 16 * steps, (16, 16, 3))
        return Small(
            model,
            x,
            y,
            16,
            dict(optimizer=O.SGD(0.02, momentum=0.9), loss="sparse_categorical_crossentropy", metrics=["accuracy"]),
        )

    def unet_small(rng, steps):
        model = unet(keras, 16, 3, 4)
        x = rng.standard_normal((4 * steps, 16, 16, 3), dtype=np.float32)
        return Small(
            model,
            x,
            rng.integers(0, 3, (4 * steps, 16, 16)),
            4,
            dict(optimizer=O.Adam(), loss="sparse_categorical_crossentropy", metrics=["accuracy"]),
        )

    def separable(rng, steps):
        x = i = keras.Input((16, 16, 3))
        x = L.ReLU(6.0)(L.BatchNormalization()(L.Conv2D(8, 3, 2, padding="same", use_bias=False)(x)))
        for width, stride in ((16, 1), (24, 2)):
            x = L.ReLU(6.0)(L.BatchNormalization()(L.DepthwiseConv2D(3, stride, padding="same", use_bias=False)(x)))
            x = L.ReLU(6.0)(L.BatchNormalization()(L.Conv2D(width, 1, use_bias=False)(x)))
        model = keras.Model(i, L.Dense(10, activation="softmax")(L.GlobalAveragePooling2D()(x)))
        x, y = labelled(rng, 16 * steps, (16, 16, 3))
        return Small(
            model,
            x,
            y,
            16,
            dict(optimizer=O.SGD(0.01, momentum=0.9, nesterov=True), loss="sparse_categorical_crossentropy"),
        )

    def mlp(rng, steps):
        """Clipping by the global norm, a cosine schedule, decoupled weight decay, L2 and LayerNorm."""
        r = keras.regularizers.L2(1e-3)
        model = keras.Sequential(
            [
                keras.Input((20,)),
                L.Dense(32, activation="silu", kernel_regularizer=r),
                L.LayerNormalization(),
                L.Dense(16, activation="leaky_relu", kernel_regularizer=r, bias_regularizer=r),
                L.Dense(4, activation="softmax"),
            ]
        )
        x, _ = labelled(rng, 8 * steps, (20,))
        y = np.eye(4, dtype=np.float32)[rng.integers(0, 4, 8 * steps)]
        rate = O.schedules.CosineDecay(0.01, 30, warmup_target=0.02, warmup_steps=5)
        return Small(
            model,
            x,
            y,
            8,
            dict(
                optimizer=O.AdamW(rate, weight_decay=0.01, global_clipnorm=0.5),
                metrics=["accuracy"],
                loss=keras.losses.CategoricalCrossentropy(label_smoothing=0.1),
            ),
        )

    def none_sized(rng, steps):
        i = keras.Input((None, None, 3))
        x = L.Conv2D(8, 3, activation="relu")(L.Rescaling(1 / 127.5, -1)(i))
        x = L.GlobalMaxPooling2D()(L.AveragePooling2D(2, padding="same")(x))
        model = keras.Model(i, L.Dense(3, activation="softmax")(x))
        x = rng.integers(0, 256, (8 * steps, 13, 11, 3)).astype(np.uint8)
        return Small(
            model,
            x,
            rng.integers(0, 3, 8 * steps),
            8,
            dict(optimizer=O.SGD(0.1), loss="sparse_categorical_crossentropy"),
            ("--input-shape", "13,11,3"),
        )

    def uncompiled(rng, steps):
        model = keras.Sequential([keras.Input((14,)), L.Dense(16, activation="relu"), L.Dense(1, activation="sigmoid")])
        x, y = labelled(rng, 8 * steps, (14,), 2)
        return Small(
            model,
            x,
            y.reshape(-1, 1).astype(np.float32),
            8,
            dict(optimizer=O.Adam(2**-8), loss="binary_crossentropy", metrics=["accuracy"]),
            (
                "--optimizer",
                "adam",
                "--learning-rate",
                str(2**-8),
                "--loss",
                "binary_crossentropy",
                "--metrics",
                "accuracy",
            ),
            False,
        )

    def gated(rng, steps):
        """Squeeze and excitation: Multiply with a broadcast operand, up-sampling, padding, and a softmax after a Reshape."""
        x = i = keras.Input((8, 8, 4))
        x = L.Conv2D(8, 3, activation="relu")(L.ZeroPadding2D(((1, 0), (2, 1)))(x))
        gate = L.Dense(8, activation="sigmoid")(
            L.Dense(4, activation="relu")(L.GlobalAveragePooling2D(keepdims=True)(x))
        )
        x = L.UpSampling2D(2, interpolation="bilinear")(L.Multiply()([x, gate]))
        x = L.Reshape((-1,))(L.Conv2D(2, 3, strides=3)(x))
        model = keras.Model(i, L.Reshape((6,))(L.Dense(6, activation="softmax")(x)))
        x, y = labelled(rng, 8 * steps, (8, 8, 4), 6)
        return Small(model, x, y, 8, dict(optimizer=O.Adam(), loss="sparse_categorical_crossentropy"))

    def nested(rng, steps):
        """A Sequential inside a Functional model, called twice."""
        branch = keras.Sequential([keras.Input((9,)), L.Dense(9, activation="elu"), L.Dense(9)], name="branch")
        i = keras.Input((9,))
        model = keras.Model(i, L.Dense(3, activation="sigmoid")(L.Add()([i, branch(branch(i))])))
        x, _ = labelled(rng, 8 * steps, (9,))
        y = rng.integers(0, 2, (8 * steps, 3)).astype(np.float32)
        return Small(
            model,
            x,
            y,
            8,
            dict(
                optimizer=O.SGD(0.1, momentum=0.5, clipnorm=0.25, weight_decay=0.01),
                loss="binary_crossentropy",
                metrics=["binary_accuracy"],
            ),
        )

    return {
        f.__name__: f
        for f in (
            cnn,
            shared,
            several_outputs,
            frozen_backbone,
            resnet,
            unet_small,
            separable,
            mlp,
            none_sized,
            uncompiled,
            gated,
            nested,
        )
    }
