"""Over twenty models in the spirit of the popular examples at keras.io, in our own words and small enough for a test.

`EXAMPLES`: name -> function(rng) that returns an Example: a compiled model with data for a few steps. Random layers have rate 0,
because their numbers are not Keras's."""

import dataclasses

import keras
import numpy as np

L, O = keras.layers, keras.ops
N, BATCH = 16, 8
ADAM = 0.002


@dataclasses.dataclass
class Example:
    model: keras.Model
    x: object
    y: object


def compiled(model, loss, optimizer=None, **named):
    model.compile(optimizer or keras.optimizers.Adam(ADAM), loss, **named)
    return model


def images(rng, size=24, channels=3, n=N):
    return rng.random((n, size, size, channels), np.float32)


def labels(rng, classes, n=N):
    return rng.integers(0, classes, n).astype(np.int32)


def classification_from_scratch(rng):
    """A small Xception: rescaling inside the model, separable convolutions, residuals."""
    i = keras.Input((32, 32, 3))
    x = L.Rescaling(1 / 255)(i)
    x = L.Activation("relu")(L.BatchNormalization()(L.Conv2D(16, 3, strides=2, padding="same")(x)))
    before = x
    for size in (24, 32):
        for _ in range(2):
            x = L.BatchNormalization()(L.SeparableConv2D(size, 3, padding="same")(L.Activation("relu")(x)))
        x = L.MaxPooling2D(3, strides=2, padding="same")(x)
        before = L.Conv2D(size, 1, strides=2, padding="same")(before)
        x = before = L.add([x, before])
    y = L.Dense(1)(L.Dropout(0.0)(L.GlobalAveragePooling2D()(x)))
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    return Example(compiled(keras.Model(i, y), loss), 255 * images(rng, 32), rng.integers(0, 2, (N, 1)).astype(np.float32))


def transfer(rng, fine_tune):
    """A frozen base under a new head; then the base is trained as well, with a low rate, its BatchNorm in inference mode."""
    base = keras.Sequential(
        [
            keras.Input((24, 24, 3)),
            L.Conv2D(12, 3, strides=2, activation="relu"),
            L.BatchNormalization(),
            L.DepthwiseConv2D(3, activation="relu"),
            L.Conv2D(16, 1),
        ],
        name="base",
    )
    base.trainable = fine_tune
    i = keras.Input((24, 24, 3))
    x = base(L.Rescaling(2.0, -1.0)(i), training=False)
    y = L.Dense(3, activation="softmax")(L.Dropout(0.0)(L.GlobalAveragePooling2D()(x)))
    rate = keras.optimizers.Adam(1e-5 if fine_tune else ADAM)
    return Example(compiled(keras.Model(i, y), "sparse_categorical_crossentropy", rate), images(rng), labels(rng, 3))


def segmentation(rng):
    """A U-Net: strided convolutions down, transposed ones up, one class per pixel."""
    x = i = keras.Input((16, 16, 3))
    x = L.Activation("relu")(L.BatchNormalization()(L.Conv2D(8, 3, strides=2, padding="same")(x)))
    skip = x
    x = L.MaxPooling2D(2)(L.Activation("relu")(L.BatchNormalization()(L.SeparableConv2D(12, 3, padding="same")(x))))
    x = L.Activation("relu")(L.BatchNormalization()(L.Conv2DTranspose(12, 3, padding="same")(x)))
    x = L.Concatenate()([L.UpSampling2D(2)(x), skip])
    x = L.UpSampling2D(2)(L.Conv2D(8, 3, padding="same", activation="relu")(x))
    y = L.Conv2D(3, 3, activation="softmax", padding="same")(x)
    target = rng.integers(0, 3, (N, 16, 16)).astype(np.int32)
    return Example(compiled(keras.Model(i, y), "sparse_categorical_crossentropy"), images(rng, 16), target)


def siamese(rng):
    """Two images through one network, and the distance of their embeddings."""
    tower = keras.Sequential(
        [keras.Input((14, 14, 1)), L.Conv2D(6, 5, activation="tanh"), L.AveragePooling2D(2), L.Flatten(), L.Dense(8, activation="tanh")],
        name="tower",
    )
    a, b = keras.Input((14, 14, 1), name="left"), keras.Input((14, 14, 1), name="right")
    difference = L.Subtract()([tower(a), tower(b)])
    distance = O.sqrt(O.maximum(O.sum(O.square(difference), axis=1, keepdims=True), 1e-7))
    y = L.Dense(1, activation="sigmoid")(L.BatchNormalization()(distance))
    x = {"left": images(rng, 14, 1), "right": images(rng, 14, 1)}
    return Example(compiled(keras.Model([a, b], y), "binary_crossentropy"), x, rng.integers(0, 2, (N, 1)).astype(np.float32))


def autoencoder(rng):
    x = i = keras.Input((16, 16, 1))
    for _ in range(2):
        x = L.MaxPooling2D(2, padding="same")(L.Conv2D(8, 3, activation="relu", padding="same")(x))
    for _ in range(2):
        x = L.Conv2DTranspose(8, 3, strides=2, activation="relu", padding="same")(x)
    y = L.Conv2D(1, 3, activation="sigmoid", padding="same")(x)
    clean = images(rng, 16, 1)
    return Example(compiled(keras.Model(i, y), "binary_crossentropy"), np.clip(clean + 0.2, 0, 1), clean)


def variational_autoencoder(rng):
    """Noise is an input, so that the sampling is arithmetic on tensors; penalties of the two heads stand for the KL term."""
    i, noise = keras.Input((12, 12, 1), name="image"), keras.Input((4,), name="noise")
    h = L.Dense(16, activation="relu")(L.Flatten()(L.Conv2D(8, 3, strides=2, activation="relu", padding="same")(i)))
    mean = L.Dense(4, activity_regularizer=keras.regularizers.L2(0.01))(h)
    log_variance = L.Dense(4, activity_regularizer=keras.regularizers.L2(0.01))(h)
    z = mean + O.exp(0.5 * log_variance) * noise
    d = L.Reshape((6, 6, 4))(L.Dense(144, activation="relu")(z))
    y = L.Conv2D(1, 3, activation="sigmoid", padding="same")(L.Conv2DTranspose(8, 3, strides=2, activation="relu", padding="same")(d))
    x = {"image": images(rng, 12, 1), "noise": rng.standard_normal((N, 4)).astype(np.float32)}
    return Example(compiled(keras.Model([i, noise], y), "binary_crossentropy"), x, x["image"])


def mlp_mixer(rng):
    """Patches by a strided convolution, then Dense layers over patches (between two permutations) and over channels."""
    i = keras.Input((16, 16, 3))
    x = L.Reshape((16, 12))(L.Conv2D(12, 4, strides=4)(i))
    for _ in range(2):
        h = L.Permute((2, 1))(L.LayerNormalization(epsilon=1e-6)(x))
        h = L.Dense(16)(L.Dense(16, activation="gelu")(h))
        x = L.Add()([L.Permute((2, 1))(h), x])
        h = L.LayerNormalization(epsilon=1e-6)(x)
        x = L.Add()([L.Dense(12)(L.Dense(24, activation="gelu")(h)), x])
    y = L.Dense(5)(L.Dropout(0.0)(L.GlobalAveragePooling1D()(x)))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return Example(compiled(keras.Model(i, y), loss, keras.optimizers.AdamW(ADAM)), images(rng, 16), labels(rng, 5))


def conv_mixer(rng):
    i = keras.Input((16, 16, 3))
    block = lambda x: L.BatchNormalization()(L.Activation("gelu")(x))
    x = block(L.Conv2D(12, 2, strides=2)(L.Rescaling(1.0)(i)))
    for _ in range(2):
        x = L.Add()([block(L.DepthwiseConv2D(5, padding="same")(x)), x])
        x = block(L.Conv2D(12, 1)(x))
    y = L.Dense(5, activation="softmax")(L.GlobalAveragePooling2D()(x))
    return Example(compiled(keras.Model(i, y), "sparse_categorical_crossentropy"), images(rng, 16), labels(rng, 5))


def classification_3d(rng):
    """Scans: three-dimensional convolutions and pooling."""
    x = i = keras.Input((12, 12, 10, 1))
    for filters in (4, 6):
        x = L.BatchNormalization()(L.MaxPooling3D(2)(L.Conv3D(filters, 3, activation="relu", padding="same")(x)))
    y = L.Dense(1, activation="sigmoid")(L.Dropout(0.0)(L.Dense(8, activation="relu")(L.GlobalAveragePooling3D()(x))))
    x = rng.random((N, 12, 12, 10, 1), np.float32)
    return Example(compiled(keras.Model(i, y), "binary_crossentropy"), x, rng.integers(0, 2, (N, 1)).astype(np.float32))


def point_cloud(rng):
    """PointNet: shared dense layers per point, a learnt transformation by a product, a maximum over points."""
    i = keras.Input((32, 3))
    h = L.GlobalMaxPooling1D()(L.Conv1D(16, 1, activation="relu")(i))
    turn = L.Reshape((3, 3))(L.Dense(9, kernel_initializer="zeros", bias_initializer=keras.initializers.Constant([1, 0, 0, 0, 1, 0, 0, 0, 1]))(h))
    x = L.Dot(axes=(2, 1))([i, turn])
    x = L.GlobalMaxPooling1D()(L.ReLU()(L.BatchNormalization(momentum=0.0)(L.Conv1D(16, 1)(x))))
    y = L.Dense(4, activation="softmax")(x)
    x = rng.standard_normal((N, 32, 3)).astype(np.float32)
    return Example(compiled(keras.Model(i, y), "sparse_categorical_crossentropy"), x, labels(rng, 4))


def anomaly_detection(rng):
    """A series is reconstructed by convolutions and transposed ones."""
    x = i = keras.Input((32, 1))
    x = L.Conv1D(8, 7, strides=2, padding="same", activation="relu")(x)
    x = L.Conv1D(6, 7, strides=2, padding="same", activation="relu")(L.Dropout(0.0)(x))
    x = L.Conv1DTranspose(6, 7, strides=2, padding="same", activation="relu")(x)
    x = L.Conv1DTranspose(8, 7, strides=2, padding="same", activation="relu")(L.Dropout(0.0)(x))
    y = L.Conv1DTranspose(1, 7, padding="same")(x)
    series = np.cumsum(rng.standard_normal((N, 32, 1)), 1).astype(np.float32)
    return Example(compiled(keras.Model(i, y), "mse"), series, series)


def time_series_classification(rng):
    x = i = keras.Input((40, 2))
    for filters in (8, 8, 8):
        x = L.ReLU()(L.BatchNormalization()(L.Conv1D(filters, 3, padding="same")(x)))
    y = L.Dense(3, activation="softmax")(L.GlobalAveragePooling1D()(x))
    x = rng.standard_normal((N, 40, 2)).astype(np.float32)
    return Example(compiled(keras.Model(i, y), "sparse_categorical_crossentropy"), x, labels(rng, 3))


def forecasting(rng):
    """Dilated causal convolutions with gates and residuals."""
    x = i = keras.Input((32, 3))
    x = L.Conv1D(8, 1)(x)
    for dilation in (1, 2, 4):
        conv = lambda activation: L.Conv1D(8, 2, dilation_rate=dilation, padding="causal", activation=activation)
        gated = L.Multiply()([conv("tanh")(x), conv("sigmoid")(x)])
        x = L.Add()([x, L.Conv1D(8, 1)(gated)])
    y = L.Dense(1)(x[:, -1, :])
    x = rng.standard_normal((N, 32, 3)).astype(np.float32)
    return Example(compiled(keras.Model(i, y), keras.losses.Huber()), x, rng.standard_normal((N, 1)).astype(np.float32))


def graph_convolution(rng):
    """Features of neighbours by a product with the adjacency matrix, which is an input."""
    features, adjacency = keras.Input((10, 5), name="features"), keras.Input((10, 10), name="adjacency")
    x = features
    for units in (8, 8):
        x = L.Dense(units, activation="gelu")(L.LayerNormalization()(x))
        x = O.matmul(adjacency, x)
    y = L.Dense(4, activation="softmax")(L.GlobalAveragePooling1D()(x))
    edges = (rng.random((N, 10, 10)) < 0.3).astype(np.float32) + np.eye(10, dtype=np.float32)
    x = {"features": rng.standard_normal((N, 10, 5)).astype(np.float32), "adjacency": edges / edges.sum(-1, keepdims=True)}
    return Example(compiled(keras.Model([features, adjacency], y), "sparse_categorical_crossentropy"), x, labels(rng, 4))


def metric_learning(rng):
    """Unit embeddings of two views, and their similarities as logits."""
    encoder = keras.Sequential(
        [keras.Input((12, 12, 3)), L.Conv2D(8, 3, strides=2, activation="relu"), L.GlobalAveragePooling2D(), L.Dense(8), L.UnitNormalization()],
        name="encoder",
    )
    anchor, classes = keras.Input((12, 12, 3), name="anchor"), keras.Input((5, 12, 12, 3), name="classes")
    embedded = L.Reshape((5, 8))(L.Concatenate()([encoder(classes[:, k]) for k in range(5)]))
    y = 5.0 * L.Dot(axes=(1, 2))([encoder(anchor), embedded])
    x = {"anchor": images(rng, 12), "classes": rng.random((N, 5, 12, 12, 3), np.float32)}
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return Example(compiled(keras.Model([anchor, classes], y), loss), x, labels(rng, 5))


def super_resolution(rng):
    """Sub-pixel convolution: channels become pixels by reshaping and transposing."""
    i = keras.Input((10, 10, 1))
    x = L.Conv2D(12, 5, activation="tanh", padding="same")(i)
    x = L.Conv2D(9, 3, padding="same")(L.Conv2D(12, 3, activation="tanh", padding="same")(x))
    x = O.transpose(O.reshape(x, (-1, 10, 10, 3, 3)), (0, 1, 3, 2, 4))
    y = O.reshape(x, (-1, 30, 30, 1))
    return Example(compiled(keras.Model(i, y), "mae"), images(rng, 10, 1), images(rng, 30, 1))


def structured_data(rng):
    """Numbers are normalised by what an adapted layer holds, categories arrive as one-hot vectors; deep and cross parts."""
    numbers, kinds = keras.Input((6,), name="numbers"), keras.Input((4,), name="kinds")
    table = rng.standard_normal((50, 6)).astype(np.float32) * 3 + 1
    normalize = L.Normalization()
    normalize.adapt(table)
    x0 = L.Concatenate()([normalize(numbers), kinds])
    cross = x0
    for _ in range(2):
        cross = x0 * L.Dense(10)(cross) + cross
    deep = x0
    for units in (16, 8):
        deep = L.Dropout(0.0)(L.ReLU()(L.BatchNormalization()(L.Dense(units)(deep))))
    y = L.Dense(1, activation="sigmoid")(L.Concatenate()([cross, deep]))
    x = {"numbers": table[:N], "kinds": np.eye(4, dtype=np.float32)[rng.integers(0, 4, N)]}
    return Example(compiled(keras.Model([numbers, kinds], y), "binary_crossentropy"), x, rng.integers(0, 2, (N, 1)).astype(np.float32))


def imbalanced_tabular(rng):
    x = i = keras.Input((12,))
    for _ in range(2):
        x = L.Dropout(0.0)(L.Dense(16, activation="relu")(x))
    y = L.Dense(1, activation="sigmoid")(x)
    x = rng.standard_normal((N, 12)).astype(np.float32)
    return Example(compiled(keras.Model(i, y), "binary_crossentropy"), x, (rng.random((N, 1)) < 0.2).astype(np.float32))


def gated_residual(rng):
    """Gated residual networks with a softmax that selects variables."""
    i = keras.Input((5, 3))
    def grn(x, units):
        h = L.Dense(units)(L.Dense(units, activation="elu")(x))
        gated = L.Multiply()([L.Dense(units)(h), L.Dense(units, activation="sigmoid")(h)])
        return L.LayerNormalization()(L.Add()([L.Dense(units)(x), gated]))
    weights = L.Reshape((5, 1))(L.Dense(5, activation="softmax")(grn(L.Flatten()(i), 8)))
    y = L.Dense(1)(O.sum(weights * grn(i, 8), axis=1))
    x = rng.standard_normal((N, 5, 3)).astype(np.float32)
    return Example(compiled(keras.Model(i, y), "mse"), x, rng.standard_normal((N, 1)).astype(np.float32))


def low_light_enhancement(rng):
    """Curves that are applied several times: slices of one convolution's output, arithmetic on tensors."""
    i = keras.Input((12, 12, 3))
    curves = L.Conv2D(9, 3, activation="tanh", padding="same")(L.Conv2D(8, 3, activation="relu", padding="same")(i))
    x = i
    for k in range(3):
        r = curves[..., 3 * k : 3 * k + 3]
        x = x + r * (O.square(x) - x)
    return Example(compiled(keras.Model(i, x), "mse"), images(rng, 12), images(rng, 12))


def weather_forecasting(rng):
    """A stack of recurrent layers over a window of measurements."""
    i = keras.Input((24, 5))
    x = L.Dropout(0.0)(L.LSTM(16, return_sequences=True)(i))
    y = L.Dense(1)(L.GRU(8)(x))
    return Example(compiled(keras.Model(i, y), "mse"), rng.standard_normal((N, 24, 5)).astype(np.float32), rng.random((N, 1), np.float32))


def sequence_to_sequence(rng):
    """An encoder whose last states begin the decoder, over letters."""
    letters = lambda steps, kinds: np.eye(kinds, dtype=np.float32)[rng.integers(0, kinds, (N, steps))]
    source, target = keras.Input((9, 6), name="source"), keras.Input((7, 5), name="target")
    _, h, c = L.LSTM(12, return_state=True)(source)
    y, _, _ = L.LSTM(12, return_sequences=True, return_state=True)(target, initial_state=[h, c])
    y = L.Dense(5, activation="softmax")(y)
    model = compiled(keras.Model([source, target], y), "categorical_crossentropy")
    return Example(model, {"source": letters(9, 6), "target": letters(7, 5)}, letters(7, 5))


def addition(rng):
    """Adds numbers that are given as digits: an encoder, its result repeated, and a decoder."""
    i = keras.Input((7, 12))
    y = L.LSTM(16, return_sequences=True)(L.RepeatVector(4)(L.LSTM(16)(i)))
    model = compiled(keras.Model(i, L.Dense(12, activation="softmax")(y)), "categorical_crossentropy")
    return Example(model, np.eye(12, dtype=np.float32)[rng.integers(0, 12, (N, 7))], np.eye(12, dtype=np.float32)[rng.integers(0, 12, (N, 4))])


def tagging(rng):
    """A class for each step of sequences of different lengths, by a bidirectional LSTM under a mask."""
    i = keras.Input((10, 6))
    y = L.Dense(4, activation="softmax")(L.Bidirectional(L.LSTM(8, return_sequences=True))(L.Masking()(i)))
    x = rng.standard_normal((N, 10, 6)).astype(np.float32)
    for n in range(N):
        x[n, rng.integers(1, 11) :] = 0
    return Example(compiled(keras.Model(i, y), "sparse_categorical_crossentropy"), x, rng.integers(0, 4, (N, 10)).astype(np.int32))


def next_frame(rng):
    """The next frame of a video, by convolutional LSTMs."""
    i = keras.Input((4, 10, 10, 1))
    x = L.BatchNormalization()(L.ConvLSTM2D(6, 3, padding="same", return_sequences=True, activation="relu")(i))
    x = L.ConvLSTM2D(4, 3, padding="same", return_sequences=True, activation="relu")(x)
    y = L.Conv3D(1, 3, activation="sigmoid", padding="same")(x)
    frames = rng.random((N, 5, 10, 10, 1), np.float32)
    return Example(compiled(keras.Model(i, y), "binary_crossentropy"), frames[:, :-1], frames[:, 1:])


def two_outputs(rng):
    """A class and a box from one trunk, with weighted losses."""
    i = keras.Input((16, 16, 3))
    x = L.GlobalMaxPooling2D()(L.Conv2D(12, 3, activation="relu")(L.MaxPooling2D()(L.Conv2D(8, 3, activation="relu")(i))))
    model = keras.Model(i, {"kind": L.Dense(3, activation="softmax", name="kind")(x), "box": L.Dense(4, name="box")(x)})
    model.compile(keras.optimizers.Adam(ADAM), {"kind": "sparse_categorical_crossentropy", "box": "mse"}, loss_weights={"kind": 1.0, "box": 0.5})
    return Example(model, images(rng, 16), {"kind": labels(rng, 3), "box": rng.random((N, 4), np.float32)})


def maps_of_tensors(rng):
    """A nested model that takes and returns maps of tensors, called twice; both outputs reach a loss."""
    p, q = keras.Input((4,), name="p"), keras.Input((3,), name="q")
    inner = keras.Model({"p": p, "q": q}, {"s": L.Dense(5, activation="tanh", name="s")(p), "t": L.Dense(5, name="t")(q)}, name="inner")
    x, y = keras.Input((4,), name="x"), keras.Input((3,), name="y")
    first, second = inner({"p": x, "q": y}), inner({"p": x * 2.0, "q": y})
    outputs = {"u": L.Dense(1, name="u")(first["s"] + second["t"]), "v": L.Dense(2, name="v")(first["t"])}
    model = compiled(keras.Model({"x": x, "y": y}, outputs), {"u": "mse", "v": "mae"})
    draw = lambda *shape: rng.standard_normal((N, *shape)).astype(np.float32)
    return Example(model, {"x": draw(4), "y": draw(3)}, {"u": draw(1), "v": draw(2)})


EXAMPLES = {
    f.__name__: f
    for f in (
        classification_from_scratch, segmentation, siamese, autoencoder, variational_autoencoder, mlp_mixer, conv_mixer,
        classification_3d, point_cloud, anomaly_detection, time_series_classification, forecasting, graph_convolution, metric_learning,
        super_resolution, structured_data, imbalanced_tabular, gated_residual, low_light_enhancement, two_outputs,
        weather_forecasting, sequence_to_sequence, addition, tagging, next_frame, maps_of_tensors,
    )
}  # fmt: skip
EXAMPLES["transfer_frozen"] = lambda rng: transfer(rng, False)
EXAMPLES["transfer_fine_tuning"] = lambda rng: transfer(rng, True)
