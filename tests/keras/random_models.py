"""Random functional models, as text: a list of statements, so that a failing model can be shrunk and printed as Python.

A model is a list of steps. Step k computes tensor k from earlier tensors. Layers may be shared (a step names the step whose layer it
uses again), models may be nested, inputs may be several, and sequences may carry masks. `build` asks Keras; a step that Keras
refuses is left out when the model is drawn.
"""

import dataclasses

import keras

L = keras.layers
ACTIVATIONS = ("relu", "tanh", "sigmoid", "gelu", "elu", "silu", "leaky_relu", "softmax", "hard_sigmoid")


@dataclasses.dataclass
class Step:
    inputs: tuple  # numbers of earlier tensors
    text: str  # a layer in Python: "L.Dense(3)"; of an input: its shape
    shared: int = None  # the step whose layer is called again
    inner: tuple = ()  # texts of the layers of a nested Sequential model


def new_layer(step):
    scope = {"L": L, "O": keras.ops, "keras": keras}
    if step.inner:
        return keras.Sequential([eval(text, scope) for text in step.inner])
    return eval(step.text, scope)


class Network:
    """A list of steps that grows as long as Keras accepts it."""

    def __init__(self, steps=()):
        self.steps, self.tensors, self.layers = [], [], []
        for step in steps:
            self.add(step)

    def add(self, step):
        if not step.inputs:
            tensor, layer = keras.Input(eval(step.text), name=f"input_{len(self.steps)}"), None
        else:
            layer = self.layers[step.shared] if step.shared is not None else new_layer(step)
            arguments = [self.tensors[i] for i in step.inputs]
            tensor = layer(arguments if len(arguments) > 1 else arguments[0])
        self.steps.append(step)
        self.tensors.append(tensor)
        self.layers.append(layer)

    def leaves(self):
        """Tensors that nothing reads."""
        read = {i for step in self.steps for i in step.inputs}
        return [i for i in range(len(self.steps)) if i not in read and self.steps[i].inputs]

    def model(self):
        """All leaves end in one Dense output, so that every layer gets a gradient and one loss is computed."""
        flat = [L.Flatten()(self.tensors[i]) if len(self.tensors[i].shape) > 2 else self.tensors[i] for i in self.leaves()]
        y = L.Concatenate()(flat) if len(flat) > 1 else flat[0]
        inputs = [t for k, t in enumerate(self.tensors) if not self.steps[k].inputs and used(self.steps, k)]
        return keras.Model(inputs, L.Dense(3, name="out")(y), name="random")


def used(steps, i):
    return any(i in step.inputs for step in steps)


def text_of(steps):
    """The model as a Python program."""
    lines, network = ["import keras", "L, O = keras.layers, keras.ops"], Network(steps)
    for k, step in enumerate(steps):
        arguments = ", ".join(f"t{i}" for i in step.inputs)
        if not step.inputs:
            lines.append(f"t{k} = keras.Input({step.text}, name='input_{k}')")
            continue
        if step.shared is None:
            inner = f"keras.Sequential([{', '.join(step.inner)}])" if step.inner else step.text
            lines.append(f"layer{k} = {inner}")
        name = k if step.shared is None else step.shared
        lines.append(f"t{k} = layer{name}({f'[{arguments}]' if len(step.inputs) > 1 else arguments})")
    flat = [f"L.Flatten()(t{i})" if len(network.tensors[i].shape) > 2 else f"t{i}" for i in network.leaves()]
    joined = f"L.Concatenate()([{', '.join(flat)}])" if len(flat) > 1 else flat[0]
    inputs = ", ".join(f"t{k}" for k, s in enumerate(steps) if not s.inputs and used(steps, k))
    return "\n".join([*lines, f"model = keras.Model([{inputs}], L.Dense(3, name='out')({joined}))"])


def layer_text(rng, shape):
    """A random layer for a tensor of this shape (without the batch)."""
    pick = lambda *values: values[rng.integers(len(values))]
    act, units = pick(*ACTIVATIONS), int(rng.integers(2, 7))
    anywhere = [
        f"L.Dense({units}, activation='{act}')", f"L.Activation('{act}')", "L.LayerNormalization()", "L.BatchNormalization()",
        "L.ReLU(max_value=2.0)", "L.LeakyReLU(0.1)", "L.Dropout(0.0)", "L.Rescaling(0.5, 0.25)", "L.UnitNormalization()",
        f"L.Dense({units}, use_bias=False, kernel_regularizer='l2')", "L.Identity()", "L.PReLU()", "L.RMSNormalization()",
    ]  # fmt: skip
    line = [
        f"L.Conv1D({units}, {pick(1, 2, 3)}, padding='{pick('same', 'causal', 'valid')}')", "L.MaxPooling1D(2)", "L.AveragePooling1D(2)",
        "L.UpSampling1D(2)", "L.ZeroPadding1D(1)", "L.GlobalAveragePooling1D()", "L.GlobalMaxPooling1D()", "L.Permute((2, 1))",
        f"L.TimeDistributed(keras.Sequential([L.Dense({units}), L.LayerNormalization(), L.Activation('{act}')]))",
        f"L.SeparableConv1D({units}, 3, padding='same')", "L.Flatten()", f"L.TimeDistributed(L.Dense({units}))", "L.Cropping1D(1)",
    ]  # fmt: skip
    image = [
        f"L.Conv2D({units}, {pick(1, 2, 3)}, strides={pick(1, 2)}, padding='{pick('same', 'valid')}', activation='{act}')",
        f"L.DepthwiseConv2D({pick(2, 3)}, padding='same')", "L.MaxPooling2D(2)", "L.AveragePooling2D(2)", "L.UpSampling2D(2)",
        "L.GlobalAveragePooling2D()", "L.GlobalMaxPooling2D(keepdims=True)", "L.ZeroPadding2D(1)", "L.Cropping2D(1)",
        f"L.Conv2DTranspose({units}, 3, strides=2, padding='same')", f"L.SeparableConv2D({units}, 3)", "L.Permute((2, 1, 3))",
        f"L.TimeDistributed(keras.Sequential([L.Conv1D({units}, 2, padding='same'), L.BatchNormalization()]))",
        "L.GroupNormalization(1)", "L.Flatten()", "L.SpatialDropout2D(0.0)",
    ]  # fmt: skip
    vector = ["L.RepeatVector(3)", f"L.Dense({units})", f"L.Reshape(({shape[0]}, 1))"]
    return pick(*anywhere, *{1: vector, 2: line, 3: image}.get(len(shape), []))


def op_text(rng, shape):
    """A random function of keras.ops for a tensor of this shape, called as a layer."""
    pick = lambda *values: values[rng.integers(len(values))]
    anywhere = [
        "O.tanh(x) * 0.5", "O.softmax(x, axis=1)", "O.cumsum(x, axis=1)", "O.flip(x, axis=1)", "O.sort(x)", "O.maximum(x, 0.1) - x",
        "x + O.mean(x, axis=-1, keepdims=True)", "O.roll(x, 1, axis=1)", "O.sparsemax(x)", "O.normalize(x, axis=-1)",
        "O.where(x > 0, x, 0.3 * x)", "O.logaddexp(x, -x)",
    ]  # fmt: skip
    line = ["O.extract_sequences(x, 2, 1)", "O.swapaxes(x, 1, 2)", "O.cdist(x, x * 0.5 + 0.3)", "x[:, ::-1]"]
    image = [  # Where an image is reflected, an edge is 0 but for rounding, which a normalisation after it would enlarge: so + 0.5.
        "O.image.extract_patches(x, 2)", "O.image.extract_patches(x, 2, strides=1, padding='same')", "O.image.sobel_edges(x) + 0.5",
        "O.image.gaussian_blur(x, (3, 3), (0.8, 0.8))", "O.image.pad_images(x, 1, 0, 0, 1)", "O.image.crop_images(x, 1, 0, 0, 1)",
        "O.max(x, axis=(1, 2))",
    ]  # fmt: skip
    return "lambda x: " + pick(*anywhere, *{2: line, 3: image}.get(len(shape), []))


def merge_text(rng):
    names = ("Add", "Multiply", "Subtract", "Average", "Maximum", "Minimum", "Concatenate")
    return f"L.{names[rng.integers(len(names))]}()"


def draw(rng, most=30):
    """A random network of at most `most` layers that Keras accepts."""
    keras.backend.clear_session()
    network = Network()
    for _ in range(int(rng.integers(1, 4))):
        shape = ((6,), (7, 4), (8, 7, 3))[rng.integers(3)]
        network.add(Step((), repr(shape)))
        if len(shape) == 2 and rng.random() < 0.3:
            network.add(Step((len(network.steps) - 1,), "L.Masking(0.5)"))
    for _ in range(int(rng.integers(3, most + 1))):
        at = int(rng.integers(max(0, len(network.steps) - 6), len(network.steps)))
        shape = tuple(network.tensors[at].shape[1:])
        step = Step((at,), layer_text(rng, shape))
        if rng.random() < 0.25:  # merge with another tensor of the same shape
            same = [i for i, t in enumerate(network.tensors) if tuple(t.shape[1:]) == shape and i != at]
            if same:
                step = Step((at, int(same[rng.integers(len(same))])), merge_text(rng))
        elif rng.random() < 0.12:  # call an earlier layer again
            fits = lambda s: len(s.inputs) == 1 and tuple(network.tensors[s.inputs[0]].shape[1:]) == shape
            called = [i for i, s in enumerate(network.steps) if fits(s) and s.shared is None]
            if called:
                step = Step((at,), "", shared=int(called[rng.integers(len(called))]))
        elif rng.random() < 0.12:
            step = Step((at,), op_text(rng, shape))
        elif rng.random() < 0.1:
            step = Step((at,), "", inner=(f"keras.Input({shape})", layer_text(rng, shape), "L.Activation('tanh')"))
        try:
            if network_size(network, step) < 20000:
                network.add(step)
        except Exception:  # Keras refuses it here
            continue
    return network.steps


def network_size(network, step):
    """Elements of the largest tensor that the step reads: up-sampling must not grow without end."""
    sizes = []
    for i in step.inputs:
        size = 1
        for d in network.tensors[i].shape[1:]:
            size *= d
        sizes.append(size)
    return max(sizes)


def without(steps, gone):
    """The steps without one: its readers read its first input instead. None if nothing of that kind is left."""
    if not steps[gone].inputs:
        return None
    to, kept = steps[gone].inputs[0], []
    number = lambda i: to if i == gone else i
    after = lambda i: i - (i > gone)
    for k, step in enumerate(steps):
        if k == gone:
            continue
        shared = step.shared
        if shared == gone:
            shared, text, inner = None, steps[gone].text, steps[gone].inner
        else:
            text, inner = step.text, step.inner
        kept.append(
            Step(tuple(after(number(i)) for i in step.inputs), text, None if shared is None else after(shared), inner)
        )
    return kept


def shrink(steps, fails):
    """The smallest list of steps found that still fails, by leaving out one step at a time."""
    progress = True
    while progress:
        progress = False
        for k in reversed(range(len(steps))):
            smaller = without(steps, k)
            if smaller is None:
                continue
            try:
                Network(smaller).model()
            except Exception:
                continue
            if fails(smaller):
                steps, progress = smaller, True
                break
    return steps
