"""More models in the spirit of the examples at keras.io: those that are written with functions of keras.ops, shared and nested
models, and several inputs and outputs. `examples.py` says what an example is."""

import keras
import numpy as np

from examples import N, Example, compiled, images, labels

L, O = keras.layers, keras.ops


def by_name(model, arrays):
    return {tensor.name: array for tensor, array in zip(model.inputs, arrays, strict=True)}


def transformer_block(x, heads, width, attend=None):
    y = L.LayerNormalization(epsilon=1e-6)(x)
    x = x + (L.MultiHeadAttention(heads, width // heads)(y, y) if attend is None else attend(y))
    y = L.LayerNormalization(epsilon=1e-6)(x)
    return L.Add()([x, L.Dense(width)(L.Dense(2 * width, activation="gelu")(y))])


def vision_transformer(rng):
    """Patches of an image, positions that are another input, and a token that is read at the end."""
    i, positions = keras.Input((24, 24, 3), name="image"), keras.Input((16,), dtype="int32", name="positions")
    x = O.reshape(O.image.extract_patches(i, 6), (-1, 16, 108))
    x = L.Dense(16)(x) + L.Embedding(16, 16)(positions)
    for _ in range(2):
        x = transformer_block(x, 4, 16)
    model = keras.Model([i, positions], L.Dense(4)(L.Flatten()(L.LayerNormalization()(x)[:, :2])))
    data = [images(rng), np.tile(np.arange(16, dtype=np.int32), (N, 1))]
    return Example(compiled(model, keras.losses.SparseCategoricalCrossentropy(from_logits=True)), by_name(model, data), labels(rng, 4))


def text_by_fourier_transforms(rng):
    """FNet: tokens are mixed by the real part of a transform over words and channels."""
    i = keras.Input((20,), dtype="int32")
    x = L.Embedding(30, 12)(i)
    for _ in range(2):
        x = L.LayerNormalization()(x + O.fft2((x, O.zeros_like(x)))[0])
        x = L.LayerNormalization()(x + L.Dense(12)(L.Dense(24, activation="relu")(x)))
    model = keras.Model(i, L.Dense(1, activation="sigmoid")(L.GlobalAveragePooling1D()(x)))
    return Example(compiled(model, "binary_crossentropy"), rng.integers(0, 30, (N, 20)).astype(np.int32), labels(rng, 2))


def compact_transformer(rng):
    """CCT: tokens by convolutions, stochastic depth, and a weighted mean of the tokens by a learnt softmax."""
    i = keras.Input((24, 24, 3))
    x = i
    for filters in (8, 16):
        x = L.MaxPooling2D(3, 2, padding="same")(L.Conv2D(filters, 3, padding="same", activation="relu", use_bias=False)(x))
    x = L.Reshape((-1, 16))(x)
    y = L.LayerNormalization()(x)
    x = L.Add()([x, L.Dropout(0.0, noise_shape=(None, 1, 1))(L.MultiHeadAttention(2, 8)(y, y))])
    x = transformer_block(x, 2, 16)
    weights = O.softmax(L.Dense(1)(x), axis=1)
    pooled = O.squeeze(O.matmul(O.transpose(weights, (0, 2, 1)), x), axis=-2)
    model = keras.Model(i, L.Dense(5)(pooled))
    loss = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1)
    return Example(compiled(model, loss, keras.optimizers.AdamW(0.001, weight_decay=1e-4)), images(rng), np.eye(5, dtype=np.float32)[labels(rng, 5)])


def shifted_windows(rng):
    """Swin: attention inside of windows, then inside of windows that are moved by half of one; patches are merged."""

    def windows(x, size, channels):
        x = O.reshape(x, (-1, 8 // size, size, 8 // size, size, channels))
        return O.reshape(O.transpose(x, (0, 1, 3, 2, 4, 5)), (-1, (8 // size) ** 2, size * size, channels))

    def image(x, size, channels):
        x = O.reshape(x, (-1, 8 // size, 8 // size, size, size, channels))
        return O.reshape(O.transpose(x, (0, 1, 3, 2, 4, 5)), (-1, 8, 8, channels))

    def attention(x):
        q, k, v = O.split(L.Dense(36)(x), 3, axis=-1)
        scores = O.einsum("bwic,bwjc->bwij", q, k) / np.sqrt(12).astype(np.float32)
        return L.Dense(12)(O.einsum("bwij,bwjc->bwic", O.softmax(scores), v))

    i = keras.Input((24, 24, 3))
    x = L.Conv2D(12, 3, strides=3)(i)
    for shift in (0, 2):
        y = L.LayerNormalization()(x)
        y = image(attention(windows(O.roll(y, (-shift, -shift), axis=(1, 2)), 4, 12)), 4, 12)
        x = x + O.roll(y, (shift, shift), axis=(1, 2))
        x = x + L.Dense(12)(L.Dense(24, activation="gelu")(L.LayerNormalization()(x)))
    merged = O.concatenate([x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]], axis=-1)
    model = keras.Model(i, L.Dense(4, activation="softmax")(L.GlobalAveragePooling2D()(L.Dense(16, use_bias=False)(merged))))
    return Example(compiled(model, "sparse_categorical_crossentropy"), images(rng), labels(rng, 4))


def pyramid_segmentation(rng):
    """DeepLab: dilated convolutions side by side with pooled features of the image, joined with finer features."""

    def block(x, filters=8, size=3, rate=1):
        x = L.Conv2D(filters, size, dilation_rate=rate, padding="same", use_bias=False, kernel_initializer="he_normal")(x)
        return O.relu(L.BatchNormalization()(x))

    i = keras.Input((24, 24, 3))
    fine = block(L.Conv2D(8, 3, strides=2, padding="same")(i))
    x = block(L.Conv2D(12, 3, strides=2, padding="same")(fine))
    pooled = L.AveragePooling2D((6, 6))(x)
    pooled = L.UpSampling2D((6, 6), interpolation="bilinear")(block(pooled, size=1))
    x = L.Concatenate()([pooled, *(block(x, size=1 if rate == 1 else 3, rate=rate) for rate in (1, 2, 3))])
    x = L.Concatenate()([O.image.resize(block(x, size=1), (12, 12)), block(fine, 4, 1)])
    x = L.UpSampling2D(2, interpolation="bilinear")(block(block(x)))
    model = keras.Model(i, L.Conv2D(5, 1)(x))
    masks = rng.integers(0, 5, (N, 24, 24, 1)).astype(np.int32)
    return Example(compiled(model, keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)), images(rng), masks)


def radiance_field(rng):
    """NeRF: rays of points in a Fourier encoding, an MLP that sees its input again, and the rendering of each ray."""
    rays, steps = keras.Input((8, 3), name="rays"), keras.Input((8,), name="steps")
    encoded = [rays]
    for power in range(4):
        encoded += [O.sin(2.0**power * rays), O.cos(2.0**power * rays)]
    encoded = O.concatenate(encoded, axis=-1)
    x = encoded
    for layer in range(4):
        x = L.Dense(16, activation="relu")(x)
        if layer == 1:
            x = O.concatenate([x, encoded], axis=-1)
    x = L.Dense(4)(x)
    color, density = O.sigmoid(x[..., :-1]), O.relu(x[..., -1])
    opacity = 1.0 - O.exp(-density * steps)
    through = O.cumprod(1.0 - opacity + 1e-10, axis=-1)
    through = O.concatenate([O.ones_like(through[:, :1]), through[:, :-1]], axis=-1)
    weights = opacity * through
    depth = O.sum(weights * O.cumsum(steps, axis=-1), axis=-1, keepdims=True)
    model = keras.Model({"rays": rays, "steps": steps}, {"color": O.sum(weights[..., None] * color, axis=-2), "depth": depth})
    x = {"rays": rng.standard_normal((N, 8, 3)).astype(np.float32), "steps": rng.random((N, 8), np.float32)}
    y = {"color": rng.random((N, 3), np.float32), "depth": rng.random((N, 1), np.float32)}
    return Example(compiled(model, {"color": "mse", "depth": "huber"}, loss_weights={"color": 1.0, "depth": 0.1}), x, y)


def feature_pyramid_detector(rng):
    """RetinaNet: three levels of features through the same two heads, whose results are joined over the levels."""
    i = keras.Input((32, 32, 3))
    levels, x = [], L.Conv2D(8, 3, strides=2, padding="same", activation="relu")(i)
    for filters in (8, 12, 16):
        x = L.BatchNormalization()(L.Conv2D(filters, 3, strides=2, padding="same", activation="relu")(x))
        levels.append(x)
    top = L.Conv2D(8, 1)(levels[2])
    middle = L.Conv2D(8, 1)(levels[1]) + L.UpSampling2D(2)(top)
    low = L.Conv2D(8, 1)(levels[0]) + L.UpSampling2D(2)(middle)
    levels = [L.Conv2D(8, 3, padding="same")(x) for x in (low, middle, top)]

    def head(outputs, bias, name):
        layers = [keras.Input((None, None, 8)), L.Conv2D(8, 3, padding="same"), L.BatchNormalization(), L.ReLU()]
        return keras.Sequential([*layers, L.Conv2D(outputs, 3, padding="same", bias_initializer=bias)], name=name)

    classes, boxes = head(2 * 3, keras.initializers.Constant(-2.0), "classes"), head(2 * 4, "zeros", "boxes")
    classified = L.Concatenate(axis=1, name="class")([L.Reshape((-1, 3))(classes(x)) for x in levels])
    places = (64, 16, 4)
    located = [O.reshape(boxes(x), (-1, 2 * count, 4)) for x, count in zip(levels, places)]
    located = L.Concatenate(axis=1, name="box")(located)
    model = keras.Model(i, {"class": classified, "box": located})
    losses = {"class": keras.losses.BinaryFocalCrossentropy(from_logits=True, apply_class_balancing=True), "box": keras.losses.Huber()}
    anchors = 2 * sum(places)
    y = {"class": np.eye(3, dtype=np.float32)[rng.integers(0, 3, (N, anchors))], "box": rng.standard_normal((N, anchors, 4)).astype(np.float32)}
    return Example(compiled(model, losses, keras.optimizers.SGD(0.01, momentum=0.9)), images(rng, 32), y)


def spoken_words(rng):
    """Sound becomes a spectrogram on a logarithmic scale inside of the model; convolutions and a recurrent layer read it."""
    i = keras.Input((320,))
    real, imaginary = O.stft(i, 32, 16, 32)
    power = O.square(real) + O.square(imaginary)
    bands = O.matmul(power, np.abs(np.random.default_rng(5).standard_normal((17, 8))).astype(np.float32))
    x = O.log(bands + 1e-3)
    x = (x - O.mean(x, axis=(1, 2), keepdims=True)) / (O.std(x, axis=(1, 2), keepdims=True) + 1e-5)
    x = L.Conv2D(6, 3, padding="same", activation="relu")(x[..., None])
    x = L.TimeDistributed(L.Flatten())(L.MaxPooling2D((1, 2))(x))
    model = keras.Model(i, L.Dense(4, activation="softmax")(L.Bidirectional(L.GRU(6))(x)))
    return Example(compiled(model, "sparse_categorical_crossentropy"), rng.standard_normal((N, 320)).astype(np.float32), labels(rng, 4))


def sentence_pairs(rng):
    """ESIM: two sentences through one encoder, each word aligned with the other sentence by a softmax over their products."""
    a, b = keras.Input((7,), dtype="int32", name="a"), keras.Input((9,), dtype="int32", name="b")
    embed, encode = L.Embedding(25, 8), L.Bidirectional(L.LSTM(6, return_sequences=True))
    x, y = encode(embed(a)), encode(embed(b))
    scores = L.Dot(axes=2)([x, y])
    of_x, of_y = L.Dot(axes=(2, 1))([L.Softmax(axis=2)(scores), y]), L.Dot(axes=(1, 1))([L.Softmax(axis=1)(scores), x])
    compose = keras.Sequential([keras.Input((None, 48)), L.Dense(8, activation="relu"), L.LayerNormalization(), L.GRU(5, return_sequences=True)])
    joined = []
    for own, other in ((x, of_x), (y, of_y)):
        made = compose(L.Concatenate()([own, other, own - other, L.Multiply()([own, other])]))
        joined += [O.max(made, axis=1), O.mean(made, axis=1)]
    model = keras.Model([a, b], L.Dense(3, activation="softmax")(O.concatenate(joined, axis=-1)))
    data = [rng.integers(0, 25, (N, n)).astype(np.int32) for n in (7, 9)]
    return Example(compiled(model, "sparse_categorical_crossentropy", keras.optimizers.RMSprop(0.002)), by_name(model, data), labels(rng, 3))


def recommender(rng):
    """Two towers over ids, biases of users and films, ratings by a product; a cross network beside them."""
    user, film = keras.Input((1,), dtype="int32", name="user"), keras.Input((1,), dtype="int32", name="film")
    facts = keras.Input((5,), name="facts")
    towers = [L.Flatten()(L.Embedding(n, 6, embeddings_regularizer="l2")(ids)) for n, ids in ((12, user), (9, film))]
    biases = [L.Flatten()(L.Embedding(n, 1)(ids)) for n, ids in ((12, user), (9, film))]
    match = L.Dot(axes=1, normalize=True)(towers) + biases[0] + biases[1]
    first = x = O.concatenate([*towers, L.Normalization(mean=[0.1] * 5, variance=[1.5] * 5)(facts)], axis=-1)
    for _ in range(2):
        x = first * L.Dense(17)(x) + x
    model = keras.Model([user, film, facts], O.clip(O.sigmoid(match + L.Dense(1)(x)) * 5.5, 0.5, 5.0))
    data = [rng.integers(0, 12, (N, 1)).astype(np.int32), rng.integers(0, 9, (N, 1)).astype(np.int32), rng.standard_normal((N, 5)).astype(np.float32)]
    return Example(compiled(model, "mse", keras.optimizers.Adagrad(0.05)), by_name(model, data), 5 * rng.random((N, 1), np.float32))


def graph_attention(rng):
    """GAT: scores of neighbours, a softmax over those that exist, several heads, and a mean over the nodes of a molecule."""
    nodes, edges = keras.Input((6, 4), name="nodes"), keras.Input((6, 6), name="edges")
    x = nodes
    for _ in range(2):
        heads = []
        for _ in range(2):
            h = L.Dense(5, use_bias=False)(x)
            scores = O.leaky_relu(L.Dense(1)(h) + O.swapaxes(L.Dense(1)(h), 1, 2), 0.2)
            heads.append(O.where(edges > 0, O.exp(O.clip(scores, -2, 2)), 0.0))
            heads[-1] = O.matmul(heads[-1] / (O.sum(heads[-1], axis=-1, keepdims=True) + 1e-6), h)
        x = O.elu(O.concatenate(heads, axis=-1))
    model = keras.Model([nodes, edges], L.Dense(1, activation="sigmoid")(L.GlobalAveragePooling1D()(x)))
    linked = np.maximum((rng.random((N, 6, 6)) < 0.4), np.eye(6)[None]).astype(np.float32)
    data = by_name(model, [rng.standard_normal((N, 6, 4)).astype(np.float32), linked])
    return Example(compiled(model, "binary_crossentropy"), data, labels(rng, 2))


def keypoints(rng):
    """Heat maps whose softmax gives expected positions, at two stages of the same nested hourglass."""
    places = np.linspace(0, 1, 12, dtype=np.float32)

    def hourglass():
        i = keras.Input((12, 12, 6))
        down = L.SeparableConv2D(8, 3, padding="same", activation="relu")(L.MaxPooling2D(2)(i))
        return keras.Model(i, L.Conv2D(6, 1)(L.UpSampling2D(2)(down)) + i, name="hourglass")

    i = keras.Input((24, 24, 3))
    x, stage, outputs = L.Conv2D(6, 3, strides=2, padding="same")(i), hourglass(), {}
    for k in range(2):
        x = stage(x)
        heat = O.softmax(O.reshape(L.Conv2D(4, 1)(x), (-1, 144, 4)), axis=1)
        heat = O.reshape(heat, (-1, 12, 12, 4))
        rows = O.einsum("bhwk,h->bk", heat, places)
        columns = O.tensordot(O.sum(heat, axis=1), places, axes=[[1], [0]])
        outputs[f"stage_{k}"] = O.stack([rows, columns], axis=-1)
    model = keras.Model(i, outputs)
    y = dict.fromkeys(outputs, rng.random((N, 4, 2), np.float32))
    losses = {"stage_0": "mae", "stage_1": "mse"}
    return Example(compiled(model, losses, metrics={"stage_0": ["mse"], "stage_1": ["mae"]}), images(rng), y)


EXAMPLES = {
    made.__name__: made
    for made in (
        vision_transformer, text_by_fourier_transforms, compact_transformer, shifted_windows, pyramid_segmentation, radiance_field,
        feature_pyramid_detector, spoken_words, sentence_pairs, recommender, graph_attention, keypoints,
    )
}  # fmt: skip
