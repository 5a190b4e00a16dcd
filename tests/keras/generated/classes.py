"""Every class that Keras exports as a layer, loss, metric or optimizer, and which of them come later."""

import inspect

import keras

BASES = {
    "layers": keras.layers.Layer,
    "losses": keras.losses.Loss,
    "metrics": keras.metrics.Metric,
    "optimizers": keras.optimizers.Optimizer,
}

# Classes of which no file holds an instance that could be drawn: bases, and those that hold somebody's own code.
ABSTRACT = {"Layer", "Wrapper", "InputLayer", "Loss", "Metric", "Optimizer", "MeanMetricWrapper", "RNN", "StackedRNNCells"}
CONV_LSTM = {"ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D"}
RECURRENT = {"Bidirectional", "GRU", "LSTM", "SimpleRNN"} | CONV_LSTM
OWN_CODE = {"Lambda", "TFSMLayer", "TorchModuleWrapper", "JaxLayer", "FlaxLayer"}
NO_FILE = {"Mean", "Sum"}  # metrics without a target: add_metric inside a layer of one's own


PREPROCESSING = {"Normalization", "Rescaling", "CenterCrop", "Resizing", "RandomFlip", "RandomBrightness", "RandomContrast"}
PREPROCESSING |= {"RandomRotation", "RandomZoom", "RandomTranslation", "RandomShear"}
# Layers of whole numbers, which test_preprocessing.py compares: no configuration of them is drawn.
CATEGORIES = {"CategoryEncoding", "Discretization", "IntegerLookup"}
TEXTS = {"Hashing", "StringLookup", "TextVectorization"}  # on strings: test_text_inputs.py


def exported(kind):
    """class name -> class, without aliases."""
    found = {c.__name__: c for c in vars(getattr(keras, kind)).values() if inspect.isclass(c) and issubclass(c, BASES[kind])}
    return dict(sorted(found.items()))


def not_yet(cls):
    """The words of the program and of docs/coverage.md for a class of a family that comes later; None for all others."""
    module, name = cls.__module__, cls.__name__
    sequences = (".layers.rnn.", ".core.reversible_embedding")
    if any(part in module for part in sequences) and name not in RECURRENT | {"TimeDistributed"}:
        return "not yet: sequence layers"
    if name in CATEGORIES | TEXTS:
        return "works; not drawn"
    if ".layers.preprocessing." in module and name not in PREPROCESSING:
        return "not yet: preprocessing layers"
    return None


def drawn(kind):
    """The classes of which configurations are drawn."""
    leave = ABSTRACT | OWN_CODE | NO_FILE
    return {n: c for n, c in exported(kind).items() if n not in leave and not not_yet(c)}


def later(kind):
    """class name -> why it is refused, for the families that come later and for code of one's own."""
    words = {n: not_yet(c) for n, c in exported(kind).items() if n not in ABSTRACT}
    return {n: w for n, w in words.items() if w} | {n: "your own code" for n in exported(kind) if n in OWN_CODE}
