"""Random values for the parameters of Keras classes, found by the parameter's name.

A parameter without a generator is an error, so that a new option of a new Keras version is noticed. Values may be nonsense in
combination: whoever draws asks Keras, and draws again if Keras refuses.
"""

import inspect
import math
import weakref

import keras

ACTIVATIONS = sorted(
    name
    for name, f in vars(keras.activations).items()
    if inspect.isfunction(f) and name not in ("get", "serialize", "deserialize")
)
INITIALIZERS = ("zeros", "ones", "glorot_uniform", "glorot_normal", "he_normal", "lecun_uniform", "random_normal", "orthogonal")


class Draw:
    """Random choices. `rank` is the number of spatial dimensions of the class, `shape` that of a sample."""

    def __init__(self, rng, rank=2, shape=()):
        self.rng, self.rank, self.shape = rng, rank, shape

    def chance(self, p):
        return self.rng.random() < p

    def integer(self, least, most):
        return int(self.rng.integers(least, most + 1))

    def real(self, least, most):
        return round(float(self.rng.uniform(least, most)), 3)

    def one_of(self, *values):
        return values[self.integer(0, len(values) - 1)]

    def sizes(self, least, most):
        """One number for all spatial dimensions, or one for each."""
        if self.chance(0.5):
            return self.integer(least, most)
        return tuple(self.integer(least, most) for _ in range(self.rank))

    def margins(self, least, most):
        if self.rank == 1 and self.chance(0.5):
            return (self.integer(least, most), self.integer(least, most))
        if self.chance(0.3):
            return tuple((self.integer(least, most), self.integer(least, most)) for _ in range(self.rank))
        return self.sizes(least, most)

    def axis(self):
        """Any axis but the batch, counted from either end."""
        n = len(self.shape)
        at = self.integer(1, n)
        return at if self.chance(0.5) else at - n - 1

    def axes(self):
        n = len(self.shape)
        chosen = sorted(map(int, self.rng.permutation(n)[: self.integer(1, n)] + 1))
        return chosen if self.chance(0.5) else [a - n - 1 for a in chosen]

    def regularizer(self):
        return self.one_of(None, None, "l1", "l2", keras.regularizers.L1L2(0.01, 0.02), keras.regularizers.L2(0.1))

    def constraint(self):
        c = keras.constraints
        return self.one_of(
            None, None, None, c.MaxNorm(self.real(0.2, 1.5)), c.NonNeg(), c.UnitNorm(), c.MinMaxNorm(0.2, 0.6, 0.7)
        )


def by_name(d):
    """Parameter name -> function that draws a value."""
    flag = lambda: d.chance(0.5)
    return {
        # core
        "units": lambda: d.integer(1, 7),
        "activation": lambda: d.one_of(None, *ACTIVATIONS),
        "use_bias": flag,
        "name": lambda: None,
        "dtype": lambda: None,
        "activity_regularizer": lambda: d.one_of(None, None, "l2", "l1"),
        "lora_rank": lambda: None,  # a fine-tuning switch, not an architecture: enable_lora changes the weights
        "lora_alpha": lambda: None,
        "quantization_config": lambda: None,
        "gptq_unpacked_column_size": lambda: None,
        "mask_value": lambda: d.one_of(0.0, 0.5),
        "target_shape": lambda: target_shape(d),
        "dims": lambda: tuple(map(int, d.rng.permutation(len(d.shape)) + 1)),
        "n": lambda: d.integer(1, 4),
        # loops over time
        "recurrent_activation": lambda: d.one_of(None, *ACTIVATIONS),
        "unit_forget_bias": flag,
        "dropout": lambda: d.one_of(0.0, 0.0, d.real(0.1, 0.7)),
        "recurrent_dropout": lambda: d.one_of(0.0, 0.0, d.real(0.1, 0.7)),
        "return_sequences": flag,
        "return_state": lambda: False,
        "go_backwards": flag,
        "stateful": lambda: False,
        "unroll": flag,
        "use_cudnn": lambda: "auto",
        "reset_after": flag,
        "merge_mode": lambda: d.one_of("concat", "sum", "ave", "mul"),
        "weights": lambda: None,
        "backward_layer": lambda: None,
        # convolution, pooling, images
        "filters": lambda: d.integer(1, 8),
        "kernel_size": lambda: d.sizes(1, 4),
        "strides": lambda: d.sizes(1, 3),
        "padding": lambda: d.one_of("valid", "same"),
        "data_format": lambda: d.one_of(None, "channels_last", "channels_last", "channels_first"),
        "dilation_rate": lambda: d.one_of(1, 1, d.sizes(1, 3)),
        "groups": lambda: d.one_of(1, 2, 4),
        "depth_multiplier": lambda: d.integer(1, 3),
        "output_padding": lambda: d.one_of(None, None, d.sizes(0, 2)),
        "pool_size": lambda: d.sizes(1, 4),
        "output_size": lambda: d.sizes(1, 5),
        "keepdims": flag,
        "size": lambda: d.sizes(1, 3),
        "interpolation": lambda: d.one_of("nearest", "bilinear", "bicubic", "lanczos3", "lanczos5"),
        "cropping": lambda: d.margins(0, 2),
        # normalisation
        "axis": lambda: d.axis(),
        "momentum": lambda: d.real(0, 0.99),
        "epsilon": lambda: d.one_of(1e-3, 1e-5, d.real(0.001, 0.1)),
        "center": flag,
        "scale": flag,
        "renorm": lambda: d.chance(0.2),
        "renorm_clipping": lambda: d.one_of(None, {"rmax": 3.0, "rmin": 0.3, "dmax": 5.0}),
        "renorm_momentum": lambda: d.real(0.5, 0.99),
        "synchronized": flag,
        "power_iterations": lambda: d.integer(1, 3),
        "invert": flag,
        # activations
        "alpha": lambda: d.real(0.1, 2),
        "negative_slope": lambda: d.one_of(0.0, d.real(0, 0.9)),
        "max_value": lambda: d.one_of(None, d.real(0.3, 6)),
        "threshold": lambda: d.one_of(0.0, d.real(0, 0.9)),
        "shared_axes": lambda: d.one_of(None, [a for a in d.axes() if a > 0] or None),
        # regularisation
        "rate": lambda: d.one_of(0.0, d.real(0.1, 0.7)),
        "stddev": lambda: d.one_of(0.0, d.real(0.1, 1)),
        "noise_shape": lambda: d.one_of(None, None, (None,) + tuple(d.one_of(1, s) for s in d.shape)),
        "seed": lambda: d.one_of(None, 7),
        "l1": lambda: d.real(0, 0.1),
        "l2": lambda: d.real(0, 0.1),
        # merging
        "axes": lambda: d.one_of(d.axis(), (d.axis(), d.axis())),
        "normalize": flag,
        # losses
        "from_logits": flag,
        "label_smoothing": lambda: d.one_of(0.0, d.real(0.01, 0.5)),
        "reduction": lambda: d.one_of("sum_over_batch_size", "sum_over_batch_size", "sum", "mean"),
        "apply_class_balancing": flag,
        "gamma": lambda: d.real(0.5, 3),
        "q": lambda: d.real(0.1, 0.9),
        "margin": lambda: d.real(0.1, 0.6),
        "remove_diagonal": flag,
        "delta": lambda: d.real(0.3, 2),
        "beta": lambda: d.real(0.1, 1.5),
        "ignore_class": lambda: d.one_of(None, 0, 1, -1),
        # metrics
        "k": lambda: d.integer(1, 3),
        "from_sorted_ids": lambda: False,
        "num_thresholds": lambda: d.one_of(200, d.integer(5, 50)),
        "curve": lambda: d.one_of("ROC", "PR"),
        "summation_method": lambda: d.one_of("interpolation", "minoring", "majoring"),
        "thresholds": lambda: d.one_of(None, d.real(0.1, 0.9), [0.25, 0.5, 0.75], [0.6, 0.2]),
        "multi_label": flag,
        "num_labels": lambda: None,
        "label_weights": lambda: None,
        "top_k": lambda: d.one_of(None, None, 2),
        "class_id": lambda: d.one_of(None, None, 1),
        "recall": lambda: d.real(0.1, 0.9),
        "precision": lambda: d.real(0.1, 0.9),
        "specificity": lambda: d.real(0.1, 0.9),
        "sensitivity": lambda: d.real(0.1, 0.9),
        "average": lambda: d.one_of(None, "micro", "macro", "weighted"),
        "num_classes": lambda: 4,
        "target_class_ids": lambda: d.one_of([0], [1, 2], [0, 1]),
        "sparse_y_true": flag,
        "sparse_y_pred": flag,
        "class_aggregation": lambda: d.one_of("uniform_average", "variance_weighted_average", None),
        "num_regressors": lambda: d.one_of(0, 1),
        # optimizers
        "learning_rate": lambda: d.real(0.001, 0.05),
        "beta_1": lambda: d.real(0.5, 0.99),
        "beta_2": lambda: d.real(0.5, 0.999),
        "amsgrad": flag,
        "weight_decay": lambda: d.one_of(None, d.real(0.001, 0.1)),
        "clipnorm": lambda: d.one_of(None, None, d.real(0.1, 2)),
        "clipvalue": lambda: d.one_of(None, None, d.real(0.01, 1)),
        "global_clipnorm": lambda: d.one_of(None, None, d.real(0.1, 2)),
        "use_ema": lambda: d.chance(0.3),
        "ema_momentum": lambda: d.real(0.5, 0.99),
        "ema_overwrite_frequency": lambda: d.one_of(None, 2, 3),
        "loss_scale_factor": lambda: d.one_of(None, None, 4.0),
        "gradient_accumulation_steps": lambda: d.one_of(None, None, 2, 3),
        "rho": lambda: d.real(0.5, 0.99),
        "centered": flag,
        "nesterov": flag,
        "initial_accumulator_value": lambda: d.real(0.01, 0.5),
        "learning_rate_power": lambda: d.one_of(-0.5, d.real(-1, -0.1)),
        "l1_regularization_strength": lambda: d.one_of(0.0, d.real(0.001, 0.1)),
        "l2_regularization_strength": lambda: d.one_of(0.0, d.real(0.001, 0.1)),
        "l2_shrinkage_regularization_strength": lambda: d.one_of(0.0, d.real(0.001, 0.1)),
        "beta_2_decay": lambda: d.real(-0.9, -0.5),
        "epsilon_1": lambda: 1e-30,
        "epsilon_2": lambda: d.one_of(1e-3, 1e-2),
        "clip_threshold": lambda: d.real(0.5, 2),
        "relative_step": flag,
        "initial_scale": lambda: d.one_of(32768.0, 256.0),
        "dynamic_growth_steps": lambda: d.one_of(2000, 2),
        "inner_optimizer": lambda: d.one_of(keras.optimizers.SGD(0.01), keras.optimizers.Adam(0.01)),
        "warmup_steps": lambda: d.one_of(0, 3),
        "adam_beta_1": lambda: d.real(0.5, 0.99),
        "adam_beta_2": lambda: d.real(0.5, 0.999),
        "adam_weight_decay": lambda: d.real(0, 0.1),
        "adam_lr_ratio": lambda: d.real(0.5, 2),
        "exclude_layers": lambda: d.one_of(None, ["stem"]),
        "exclude_embeddings": flag,
        "muon_a": lambda: 3.4445,
        "muon_b": lambda: -4.775,
        "muon_c": lambda: 2.0315,
        "ns_steps": lambda: d.integer(1, 6),
        "rms_rate": lambda: d.one_of(None, 0.2),
        "optimizer_map": lambda: keras.optimizers.OptimizerMap(
            keras.optimizers.SGD(0.02), {"out/.*": keras.optimizers.Adam(0.01)}
        ),
    }


def target_shape(d):
    """A factorisation of the sample's size, with one -1 at times."""
    size, dims = math.prod(d.shape), []
    for _ in range(d.integer(0, 2)):
        divisors = [k for k in range(1, size + 1) if size % k == 0]
        dims.append(d.one_of(*divisors))
        size //= dims[-1]
    dims.append(size)
    if d.chance(0.3):
        dims[d.integer(0, len(dims) - 1)] = -1
    return tuple(dims)


def arguments(cls, d, special):
    """Keyword arguments of a random configuration. `special`: generators of this class, before those by name."""
    table = {**by_name(d), **special}
    drawn = {}
    for p in list(inspect.signature(cls.__init__).parameters.values())[1:]:
        if p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL):
            continue
        for suffix, make in (
            ("_initializer", lambda: d.one_of(*INITIALIZERS)),
            ("_regularizer", d.regularizer),
            ("_constraint", d.constraint),
        ):
            if p.name.endswith(suffix) and p.name not in table:
                table[p.name] = make
        if p.name not in table:
            raise KeyError(f"{cls.__name__}: there is no generator for the parameter '{p.name}'")
        if p.default is p.empty or d.chance(0.35):
            drawn[p.name] = table[p.name]()
    return drawn


# How each object was made. Not an attribute of it: Keras would track layers inside it as sublayers.
_made = weakref.WeakKeyDictionary()


def remember(made, drawn):
    _made[made] = call_text(type(made), drawn)


def shown(value):
    """Python text of a value."""
    if isinstance(value, (keras.layers.Layer, keras.optimizers.Optimizer)):
        return _made.get(value, f"{type(value).__name__}(...)")
    if isinstance(value, (keras.regularizers.Regularizer, keras.constraints.Constraint)):
        return f"{type(value).__name__}({', '.join(f'{k}={v!r}' for k, v in value.get_config().items())})"
    return repr(value)


def call_text(cls, drawn):
    return f"{cls.__name__}({', '.join(f'{k}={shown(v)}' for k, v in drawn.items())})"
