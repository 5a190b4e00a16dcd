"""Random configurations of one layer class: a model with that layer behind a stem, and data for one step."""

import dataclasses
import re

import keras
import numpy as np

import classes
import values

L = keras.layers
N = 4
SHAPES = {1: (11, 4), 2: (9, 7, 4), 3: (5, 6, 4, 4)}
MERGES = {"Add", "Average", "Concatenate", "Dot", "Maximum", "Minimum", "Multiply", "Subtract"}
PAIRS = {"Dot", "Subtract"}
HEADS = {"MultiHeadAttention", "GroupedQueryAttention"}
ATTENTION = {"Attention", "AdditiveAttention", *HEADS}
WORDS = 9
RANDOM = {name for name in classes.drawn("layers") if "Dropout" in name or "Noise" in name or name.startswith("Random")}
TRIES = 300
EINSUMS = (  # equation, sample shape, output_shape
    ("ab,bc->ac", (6,), 5),
    ("abc,cd->abd", (5, 4), (None, 3)),
    ("...x,xy->...y", (3, 5, 4), 6),
    ("abc,cde->abde", (5, 4), (None, 2, 3)),
    ("abcd,cde->abe", (5, 2, 3), (None, 4)),
    ("abc,bd->adc", (5, 4), (3, 4)),
)


@dataclasses.dataclass
class Case:
    name: str
    text: str  # the configuration in Python
    model: keras.Model
    x: np.ndarray
    y: np.ndarray
    random: bool = False  # draws random numbers in training, which are not Keras's


def spatial_rank(name):
    found = re.search(r"([123])D", name)
    return int(found[1]) if found else 0


def sample_shape(name, d):
    rank = spatial_rank(name)
    if name in classes.CONV_LSTM:
        return (d.integer(1, 3), *SHAPES[rank][:-1], 2)
    if rank:
        return SHAPES[rank]
    if name in ATTENTION:
        return (5, 4)
    if name in classes.PREPROCESSING - {"Normalization", "Rescaling"}:
        return (6, 5, 4)
    if name == "RepeatVector":
        return (6,)
    if name == "TimeDistributed":
        return d.one_of((5, 4), (3, 6, 5, 4))
    if name in classes.RECURRENT:
        return (d.integer(1, 9), d.integer(1, 6))
    return d.one_of((6,), (5, 4), (6, 5, 4))


def wrapped_layer(d, kinds):
    """A layer to wrap: its arguments are drawn like any other's."""
    name = d.one_of(*kinds)
    return make_layer(name, values.Draw(d.rng, spatial_rank(name) or 2, SHAPES.get(spatial_rank(name), (4,))))


def wrapped_layer_or_model(d, kinds):
    made = wrapped_layer(d, kinds)
    return keras.Sequential([made, keras.layers.Activation("tanh")]) if d.chance(0.3) else made


def special(name, d):
    """Generators that depend on the class."""
    channels = d.shape[-1] if d.shape else 1
    vector = lambda: [d.real(0.2, 1.5) for _ in range(channels)]
    part = lambda: d.one_of(d.real(0, 0.9), (d.real(-0.9, 0), d.real(0, 0.9)))
    moved = {
        **dict.fromkeys(("factor", "height_factor", "width_factor"), part),
        **dict.fromkeys(("x_factor", "y_factor"), lambda: (d.real(0, 0.5), d.real(0.5, 1))),
        "fill_mode": lambda: d.one_of("reflect", "wrap", "constant", "nearest"),
        "interpolation": lambda: d.one_of("bilinear", "nearest"),
        "fill_value": lambda: d.real(-1, 1),
    }
    either_axis = {"axis": lambda: d.one_of(d.axis(), d.axes())}
    table = {
        "Conv1D": {"padding": lambda: d.one_of("valid", "same", "causal"), "filters": lambda: d.one_of(4, 8)},
        "Conv2D": {"filters": lambda: d.one_of(4, 8)},
        "Conv3D": {"filters": lambda: d.one_of(4, 8)},
        "Activation": {"activation": lambda: d.one_of(*values.ACTIVATIONS)},
        "LayerNormalization": either_axis,
        "UnitNormalization": either_axis,
        "RMSNormalization": either_axis,
        "Softmax": either_axis,
        "GroupNormalization": {"groups": lambda: d.one_of(-1, 1, 2, 4, 5)},
        "Rescaling": {"scale": lambda: d.one_of(d.real(0.1, 2), vector()), "offset": lambda: d.one_of(0.0, d.real(-1, 1), vector())},
        "Normalization": {
            "axis": lambda: d.one_of(None, d.axis(), d.axes()),
            "mean": lambda: None,  # make_layer gives both or neither
            "variance": lambda: None,
        },
        "CenterCrop": {"height": lambda: d.integer(1, 9), "width": lambda: d.integer(1, 9)},
        "Resizing": {
            "height": lambda: d.integer(1, 12),
            "width": lambda: d.integer(1, 12),
            "interpolation": lambda: d.one_of("bilinear", "nearest", "bicubic", "lanczos3", "lanczos5"),
            "crop_to_aspect_ratio": lambda: d.chance(0.5),
            "pad_to_aspect_ratio": lambda: d.chance(0.5),
            "fill_mode": lambda: "constant",
            "fill_value": lambda: d.real(-1, 1),
            "antialias": lambda: d.chance(0.5),
        },
        "RandomFlip": {"mode": lambda: d.one_of("horizontal", "vertical", "horizontal_and_vertical")},
        "RandomBrightness": {"factor": lambda: d.real(0, 1), "value_range": lambda: (-4.0, d.real(3, 5))},
        "RandomContrast": {"factor": lambda: d.real(0, 1), "value_range": lambda: (-4.0, d.real(3, 5))},
        **{name: moved for name in ("RandomRotation", "RandomZoom", "RandomTranslation", "RandomShear")},
        "UpSampling1D": {"size": lambda: d.integer(1, 3)},
        "ZeroPadding1D": {"padding": lambda: d.margins(0, 3)},
        "ZeroPadding2D": {"padding": lambda: d.margins(0, 3)},
        "ZeroPadding3D": {"padding": lambda: d.margins(0, 2)},
        "TimeDistributed": {"layer": lambda: wrapped_layer_or_model(d, ("Dense", "Conv2D", "LayerNormalization", "MaxPooling2D", "BatchNormalization"))},
        **{n: {"filters": lambda: d.integer(1, 3), "kernel_size": lambda: d.sizes(1, 3)} for n in classes.CONV_LSTM},
        "Bidirectional": {"layer": lambda: wrapped_layer(d, ("GRU", "LSTM", "SimpleRNN"))},
        "SpectralNormalization": {"layer": lambda: wrapped_layer(d, ("Dense", "Conv2D", "Conv1D"))},
        "Dropout": {"noise_shape": lambda: d.one_of(None, None, (None,) + tuple(d.one_of(1, s) for s in d.shape))},
    }
    few = lambda: d.integer(1, 3)
    attention = {
        "dropout": lambda: d.one_of(0.0, 0.0, 0.3),
        "sliding_window": lambda: d.one_of(None, 2, 4),
        "flash_attention": lambda: None,
        "activity_regularizer": lambda: None,
        "use_bias": lambda: d.chance(0.5),
        "use_gate": lambda: d.chance(0.5),
        "use_scale": lambda: d.chance(0.5),
        "score_mode": lambda: d.one_of("dot", "concat"),
        "seed": lambda: 3,
    }
    table.update({cls: attention for cls in ("Attention", "AdditiveAttention")})
    table["MultiHeadAttention"] = {
        **attention,
        **dict.fromkeys(("num_heads", "key_dim", "value_dim"), few),
        "output_shape": lambda: d.one_of(None, 5),
        "attention_axes": lambda: d.one_of(None, 1, (1,), -2),
    }
    table["GroupedQueryAttention"] = {
        **attention,
        "head_dim": few,
        "num_query_heads": lambda: d.one_of(2, 4),
        "num_key_value_heads": lambda: d.one_of(1, 2),
    }
    table["Embedding"] = {
        "input_dim": lambda: WORDS,
        "output_dim": lambda: d.integer(1, 6),
        "mask_zero": lambda: d.chance(0.5),
        **dict.fromkeys(("weights", "lora_rank", "lora_alpha", "quantization_config"), lambda: None),
    }
    return table.get(name, {})


def make_layer(name, d):
    cls = classes.exported("layers")[name]
    drawn = values.arguments(cls, d, special(name, d))
    if name == "Normalization":  # both or neither
        drawn.pop("variance", None), drawn.pop("mean", None)
        if d.chance(0.4):
            drawn.update(mean=d.real(-1, 1), variance=d.real(0.2, 2))
    layer = cls(**drawn)
    values.remember(layer, drawn)
    return layer


def stem(x, name):
    channels = x.shape[-1]
    return (L.Conv2D(channels, 1, name=name) if len(x.shape) == 4 else L.Dense(channels, name=name))(x)


def attention_model(name, d):
    """Of one input, whose rows of zeros are masked in some models."""
    layer = make_layer(name, d)
    i = keras.Input(d.shape)
    masked = L.Masking()(i) if d.chance(0.5) else i
    query, value = stem(masked, "stem"), stem(masked if d.chance(0.5) else i, "stem1")
    key = [stem(i, "stem2")] if d.chance(0.3) else []
    causal = {"use_causal_mask": True} if d.chance(0.4) else {}
    y = layer(query, value, *key, **causal) if name in HEADS else layer([query, value, *key], **causal)
    return keras.Model(i, y), layer


def build(name, d):
    if name in ATTENTION:
        return attention_model(name, d)
    if name == "Embedding":
        layer = make_layer(name, d)
        i = keras.Input(d.shape, dtype="int32")
        return keras.Model(i, layer(i)), layer
    if name == "EinsumDense":
        equation, d.shape, output = d.one_of(*EINSUMS)
        letters = [c for c in equation.split("->")[1] if c.isalpha()][1:]
        bias = {"bias_axes": lambda: d.one_of(None, "".join(c for c in letters if d.chance(0.6)) or None)}
        drawn = values.arguments(L.EinsumDense, d, {"equation": lambda: equation, "output_shape": lambda: output, **bias})
        layer = L.EinsumDense(**drawn)
        values.remember(layer, drawn)
    else:
        layer = make_layer(name, d)
    i = keras.Input(d.shape)
    if name in classes.RECURRENT - classes.CONV_LSTM and d.chance(0.4):
        return keras.Model(i, layer(stem(L.Masking()(i), "stem"))), layer
    count = 1 if name not in MERGES else 2 if name in PAIRS else d.integer(2, 4)
    operands = [stem(i, f"stem{k}" if k else "stem") for k in range(count)]
    if name == "Dot" and d.chance(0.5):
        operands[1] = L.Permute(tuple(map(int, d.rng.permutation(len(d.shape)) + 1)))(operands[1])
    y = layer(operands if name in MERGES else operands[0])
    return keras.Model(i, y), layer


def draws(layer):
    """Whether it draws random numbers in training."""
    name = type(layer).__name__
    if name in ATTENTION:
        return layer.dropout > 0
    if name in RANDOM:
        return name.startswith("Random") or (getattr(layer, "rate", 0) or getattr(layer, "stddev", 0)) > 0
    inner = getattr(layer, "forward_layer", layer)
    return type(inner).__name__ in classes.RECURRENT and (inner.dropout > 0 or inner.recurrent_dropout > 0)


def drawn_input(name, model, rng):
    shape = (N,) + model.input_shape[1:]
    if name == "Embedding":
        return rng.integers(0, WORDS, shape).astype(np.int32)
    x = rng.standard_normal(shape).astype(np.float32)
    if name in ATTENTION:
        x[rng.random(shape[:-1]) < 0.3] = 0
    if name in classes.RECURRENT:
        x[rng.random(x.shape[:2]) < 0.3] = 0
    return x


def draw_case(name, rng):
    """A configuration that Keras accepts: its shapes, its call and its gradient."""
    last = None
    for _ in range(TRIES):
        keras.backend.clear_session()
        d = values.Draw(rng, spatial_rank(name) or 2)
        d.shape = sample_shape(name, d)
        try:
            model, layer = build(name, d)
            model.name = name.lower()
            x = drawn_input(name, model, rng)
            out = np.array(model(x, training=True))
            if not np.all(np.isfinite(out)) or out.size == 0 or out.dtype != np.float32:
                continue
        except KeyError:
            raise
        except Exception as e:  # Keras refuses this combination: draw again
            last = e
            continue
        y = rng.standard_normal(out.shape).astype(np.float32)
        text = f"{values.shown(layer)} of an input {d.shape}"
        return Case(name, text, model, x, y, random=draws(layer))
    raise AssertionError(f"Keras accepted none of {TRIES} configurations of {name}; the last: {last}")


NAMES = tuple(classes.drawn("layers"))
