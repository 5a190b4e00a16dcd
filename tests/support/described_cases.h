// What the C++ interface describes, beside the Python that makes the same thing with Keras: every layer class, with its
// defaults and with arguments of its own; initializers, regularizers, schedules, optimizers, losses and metrics; and
// whole models. The tests open all of them in the engine; tests/keras/test_cpp_descriptions.py loads them in Keras and
// compares.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "plimsoll/description.h"
#include "plimsoll/recurrent_layers.h"

namespace cases {

namespace initializers = plimsoll::initializers;
namespace layers = plimsoll::layers;
namespace losses = plimsoll::losses;
namespace metrics = plimsoll::metrics;
namespace ops = plimsoll::ops;
namespace optimizers = plimsoll::optimizers;
namespace regularizers = plimsoll::regularizers;
namespace schedules = plimsoll::schedules;
using plimsoll::Description;
using plimsoll::functional;
using plimsoll::Layer;
using plimsoll::Result;
using plimsoll::sequential;
using plimsoll::Tensor;

struct LayerCase {
  std::string keras;  // Python
  std::vector<Tensor> inputs;
  Layer layer;
};

inline Tensor image() {
  return layers::Input({8, 8, 4});
}
inline Tensor volume() {
  return layers::Input({4, 4, 4, 2});
}
inline Tensor sequence() {
  return layers::Input({8, 4});
}

inline Tensor ids() {
  return layers::Input({8}, {.dtype = "int32"});
}

inline std::vector<LayerCase> convolution_cases() {
  using namespace layers;
  return {
      {"Conv1D(3, 5)", {sequence()}, Conv1D(3, 5)},
      {"Conv1D(3, 2, strides=2, padding='causal', groups=1, activation='relu', use_bias=False, name='c')",
       {sequence()},
       Conv1D(3, 2, {.strides = 2, .padding = "causal", .activation = "relu", .use_bias = false, .name = "c"})},
      {"Conv2D(3, 3)", {image()}, Conv2D(3, 3)},
      {"Conv2D(6, (3, 2), strides=(2, 1), padding='same', groups=2, activation='gelu', "
       "kernel_initializer='he_normal', bias_initializer='ones', kernel_regularizer=R.L2(1e-4), "
       "bias_regularizer='l1', trainable=False)",
       {image()},
       Conv2D(6, {3, 2},
              {.strides = {2, 1},
               .padding = "same",
               .groups = 2,
               .activation = "gelu",
               .kernel_initializer = "he_normal",
               .bias_initializer = "ones",
               .kernel_regularizer = regularizers::L2(1e-4),
               .bias_regularizer = "l1",
               .trainable = false})},
      {"Conv2D(3, 2, dilation_rate=2, dtype='mixed_float16')",
       {image()},
       Conv2D(3, 2, {.dilation_rate = 2, .dtype = "mixed_float16"})},
      {"DepthwiseConv1D(3)", {sequence()}, DepthwiseConv1D(3)},
      {"DepthwiseConv2D(3)", {image()}, DepthwiseConv2D(3)},
      {"DepthwiseConv2D((2, 3), strides=2, padding='same', depth_multiplier=2, activation='relu', "
       "depthwise_initializer='he_uniform', depthwise_regularizer=R.L1L2(0.1, 0.2))",
       {image()},
       DepthwiseConv2D({2, 3}, {.strides = 2,
                                .padding = "same",
                                .depth_multiplier = 2,
                                .activation = "relu",
                                .depthwise_initializer = "he_uniform",
                                .depthwise_regularizer = regularizers::L1L2(0.1, 0.2)})},
      {"SeparableConv1D(3, 3)", {sequence()}, SeparableConv1D(3, 3)},
      {"SeparableConv2D(3, 3)", {image()}, SeparableConv2D(3, 3)},
      {"SeparableConv2D(3, 3, depth_multiplier=2, pointwise_initializer='lecun_normal', "
       "pointwise_regularizer=R.L2(), use_bias=False)",
       {image()},
       SeparableConv2D(3, 3,
                       {.depth_multiplier = 2,
                        .use_bias = false,
                        .pointwise_initializer = "lecun_normal",
                        .pointwise_regularizer = regularizers::L2()})},
      {"Conv1DTranspose(3, 3)", {sequence()}, Conv1DTranspose(3, 3)},
      {"Conv2DTranspose(3, 3)", {image()}, Conv2DTranspose(3, 3)},
      {"Conv2DTranspose(3, 3, strides=2, padding='same', output_padding=1, activation='elu')",
       {image()},
       Conv2DTranspose(3, 3, {.strides = 2, .padding = "same", .output_padding = 1, .activation = "elu"})},
  };
}

inline std::vector<LayerCase> pooling_cases() {
  using namespace layers;
  return {
      {"MaxPooling1D()", {sequence()}, MaxPooling1D()},
      {"MaxPooling2D()", {image()}, MaxPooling2D()},
      {"MaxPooling2D((3, 2), strides=1, padding='same')",
       {image()},
       MaxPooling2D({3, 2}, {.strides = 1, .padding = "same"})},
      {"AveragePooling1D(3, strides=2)", {sequence()}, AveragePooling1D(3, {.strides = 2})},
      {"AveragePooling1D(2)", {sequence()}, AveragePooling1D()},
      {"AveragePooling2D((2, 2))", {image()}, AveragePooling2D()},
      {"GlobalMaxPooling1D()", {sequence()}, GlobalMaxPooling1D()},
      {"GlobalMaxPooling2D(keepdims=True)", {image()}, GlobalMaxPooling2D({.keepdims = true})},
      {"GlobalAveragePooling1D()", {sequence()}, GlobalAveragePooling1D()},
      {"GlobalAveragePooling2D()", {image()}, GlobalAveragePooling2D()},
  };
}

inline std::vector<LayerCase> other_layer_cases() {
  using namespace layers;
  return {
      {"Dense(3)", {sequence()}, Dense(3)},
      {"Dense(3, activation='softmax', use_bias=False, kernel_initializer=I.RandomNormal(0.5, 0.25), "
       "kernel_regularizer=R.L1(0.5), name='probabilities')",
       {sequence()},
       Dense(3, {.activation = "softmax",
                 .use_bias = false,
                 .kernel_initializer = initializers::RandomNormal(0.5, 0.25),
                 .kernel_regularizer = regularizers::L1(0.5),
                 .name = "probabilities"})},
      {"Activation('silu')", {image()}, Activation("silu")},
      {"ReLU()", {image()}, ReLU()},
      {"ReLU(max_value=6.0, negative_slope=0.25, threshold=0.5)",
       {image()},
       ReLU({.max_value = 6.0, .negative_slope = 0.25, .threshold = 0.5})},
      {"LeakyReLU()", {image()}, LeakyReLU()},
      {"LeakyReLU(0.1)", {image()}, LeakyReLU(0.1)},
      {"ELU()", {image()}, ELU()},
      {"PReLU()", {image()}, PReLU()},
      {"PReLU(alpha_initializer='ones', alpha_regularizer=R.L2(0.5), shared_axes=[1, 2])",
       {image()},
       PReLU({.alpha_initializer = "ones", .alpha_regularizer = regularizers::L2(0.5), .shared_axes = {1, 2}})},
      {"Identity()", {image()}, Identity()},
      {"Softmax()", {sequence()}, Softmax()},
      {"Softmax(axis=2)", {sequence()}, Softmax({.axis = 2})},
      {"BatchNormalization()", {image()}, BatchNormalization()},
      {"BatchNormalization(momentum=0.9, epsilon=1e-5, center=False, gamma_initializer='zeros', "
       "gamma_regularizer=R.L2(0.5), moving_mean_initializer='ones')",
       {image()},
       BatchNormalization({.momentum = 0.9,
                           .epsilon = 1e-5,
                           .center = false,
                           .gamma_initializer = "zeros",
                           .moving_mean_initializer = "ones",
                           .gamma_regularizer = regularizers::L2(0.5)})},
      {"LayerNormalization()", {image()}, LayerNormalization()},
      {"LayerNormalization(epsilon=1e-6, scale=False, beta_regularizer=R.L1(0.5))",
       {image()},
       LayerNormalization({.epsilon = 1e-6, .scale = false, .beta_regularizer = regularizers::L1(0.5)})},
      {"Dropout(0.5)", {image()}, Dropout(0.5)},
      {"Dropout(0.25, seed=3)", {image()}, Dropout(0.25, {.seed = 3})},
      {"Dropout(0.25, noise_shape=(None, 1, 1, 4))", {image()}, Dropout(0.25, {.noise_shape = {-1, 1, 1, 4}})},
      {"SpatialDropout1D(0.25)", {sequence()}, SpatialDropout1D(0.25)},
      {"SpatialDropout2D(0.25, data_format='channels_first', seed=5)",
       {image()},
       SpatialDropout2D(0.25, {.data_format = "channels_first", .seed = 5})},
      {"SpatialDropout3D(0.5, name='volume')", {volume()}, SpatialDropout3D(0.5, {.name = "volume"})},
      {"GaussianNoise(0.5, seed=4)", {image()}, GaussianNoise(0.5, {.seed = 4})},
      {"GaussianDropout(0.5)", {image()}, GaussianDropout(0.5)},
      {"AlphaDropout(0.5)", {image()}, AlphaDropout(0.5)},
      {"AlphaDropout(0.5, noise_shape=(1, 8, 8, 1))", {image()}, AlphaDropout(0.5, {.noise_shape = {1, 8, 8, 1}})},
      {"ActivityRegularization(l1=0.5, l2=0.25)", {image()}, ActivityRegularization({.l1 = 0.5, .l2 = 0.25})},
      {"Flatten()", {image()}, Flatten()},
      {"Reshape((2, -1, 4))", {image()}, Reshape({2, -1, 4})},
      {"ZeroPadding1D()", {sequence()}, ZeroPadding1D()},
      {"ZeroPadding1D((1, 2))", {sequence()}, ZeroPadding1D({1, 2})},
      {"ZeroPadding2D()", {image()}, ZeroPadding2D()},
      {"ZeroPadding2D((1, 2))", {image()}, ZeroPadding2D({1, 2})},
      {"ZeroPadding2D(((1, 2), (3, 4)))", {image()}, ZeroPadding2D({{1, 2}, {3, 4}})},
      {"Cropping1D()", {sequence()}, Cropping1D()},
      {"Cropping2D()", {image()}, Cropping2D()},
      {"Cropping2D(((1, 2), (0, 1)))", {image()}, Cropping2D({{1, 2}, {0, 1}})},
      {"UpSampling1D()", {sequence()}, UpSampling1D()},
      {"UpSampling2D()", {image()}, UpSampling2D()},
      {"UpSampling2D((3, 2), interpolation='bilinear')",
       {image()},
       UpSampling2D({3, 2}, {.interpolation = "bilinear"})},
      {"Rescaling(0.5)", {image()}, Rescaling(0.5)},
      {"Rescaling(0.5, -1.0)", {image()}, Rescaling(0.5, -1.0)},
      {"Masking()", {sequence()}, Masking()},
      {"Masking(-1.0)", {sequence()}, Masking(-1.0)},
      {"Embedding(9, 3)", {ids()}, Embedding(9, 3)},
      {"Embedding(9, 3, embeddings_initializer=I.RandomNormal(0.5, 0.25), embeddings_regularizer=R.L2(0.5), "
       "mask_zero=True, name='words')",
       {ids()},
       Embedding(9, 3,
                 {.embeddings_initializer = initializers::RandomNormal(0.5, 0.25),
                  .embeddings_regularizer = regularizers::L2(0.5),
                  .mask_zero = true,
                  .name = "words"})},
      {"MultiHeadAttention(2, 3)", {sequence(), sequence()}, MultiHeadAttention(2, 3)},
      {"MultiHeadAttention(2, 3, value_dim=5, dropout=0.25, use_bias=False, output_shape=(2, 3), attention_axes=(1,), "
       "kernel_initializer='he_normal', kernel_regularizer='l2', name='heads')",
       {sequence(), sequence(), sequence()},
       MultiHeadAttention(2, 3,
                          {.value_dim = 5,
                           .dropout = 0.25,
                           .use_bias = false,
                           .output_shape = {2, 3},
                           .attention_axes = {1},
                           .kernel_initializer = "he_normal",
                           .kernel_regularizer = "l2",
                           .use_causal_mask = true,
                           .name = "heads"})},
      {"GroupQueryAttention(3, 4, 2)", {sequence(), sequence()}, GroupQueryAttention(3, 4, 2)},
      {"GroupQueryAttention(3, 4, 2, dropout=0.5, use_bias=False)",
       {sequence(), sequence()},
       GroupQueryAttention(3, 4, 2, {.dropout = 0.5, .use_bias = false})},
      {"Attention()", {sequence(), sequence()}, Attention()},
      {"Attention(use_scale=True, score_mode='concat', dropout=0.5)",
       {sequence(), sequence(), sequence()},
       Attention({.use_scale = true, .score_mode = "concat", .dropout = 0.5, .use_causal_mask = true})},
      {"AdditiveAttention()", {sequence(), sequence()}, AdditiveAttention()},
      {"AdditiveAttention(use_scale=False, dropout=0.5)",
       {sequence(), sequence()},
       AdditiveAttention({.use_scale = false, .dropout = 0.5, .use_causal_mask = true})},
      {"Add()", {image(), image()}, Add()},
      {"Subtract()", {image(), image()}, Subtract()},
      {"Average()", {image(), image(), image()}, Average()},
      {"Maximum()", {image(), image()}, Maximum()},
      {"Minimum()", {image(), image()}, Minimum()},
      {"Dot(axes=1)", {sequence(), sequence()}, Dot({1})},
      {"Dot(axes=(2, 2), normalize=True)", {sequence(), sequence()}, Dot({2, 2}, {.normalize = true})},
      {"Multiply(name='product')", {image(), image(), image()}, Multiply({.name = "product"})},
      {"Concatenate()", {image(), image()}, Concatenate()},
      {"Concatenate(axis=1)", {image(), image()}, Concatenate({.axis = 1})},
      {"TimeDistributed(Dense(3))", {sequence()}, TimeDistributed(Dense(3))},
      {"SpectralNormalization(Dense(3), power_iterations=2)",
       {sequence()},
       SpectralNormalization(Dense(3), {.power_iterations = 2})},
      {"Dense(3, activation='tanh', name='given')",
       {sequence()},
       Custom("Dense", R"({"units": 3, "activation": "tanh"})", {.name = "given"})},
  };
}

inline std::vector<LayerCase> recurrent_cases() {
  using namespace layers;
  return {
      {"LSTM(5)", {sequence()}, LSTM(5)},
      {"LSTM(5, activation='relu', recurrent_activation='hard_sigmoid', use_bias=False, unit_forget_bias=False, "
       "dropout=0.25, return_sequences=True, go_backwards=True, name='loop')",
       {sequence()},
       LSTM(5, {.activation = "relu",
                .recurrent_activation = "hard_sigmoid",
                .use_bias = false,
                .unit_forget_bias = false,
                .dropout = 0.25,
                .return_sequences = true,
                .go_backwards = true,
                .name = "loop"})},
      {"GRU(5, reset_after=False, recurrent_dropout=0.5, recurrent_regularizer=R.L2(0.5))",
       {sequence()},
       GRU(5, {.recurrent_regularizer = regularizers::L2(0.5), .recurrent_dropout = 0.5, .reset_after = false})},
      {"SimpleRNN(5, kernel_initializer='zeros', return_state=True)",
       {sequence()},
       SimpleRNN(5, {.kernel_initializer = "zeros", .return_state = true})},
      {"Bidirectional(LSTM(5))", {sequence()}, Bidirectional(LSTM(5))},
      {"Bidirectional(GRU(4, return_sequences=True), merge_mode='ave')",
       {sequence()},
       Bidirectional(GRU(4, {.return_sequences = true}), {.merge_mode = "ave"})},
  };
}

inline std::vector<LayerCase> layer_cases() {
  std::vector<LayerCase> cases = convolution_cases();
  for (const auto& more : {pooling_cases(), other_layer_cases(), recurrent_cases()})
    cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

// What is no layer: Python, and the JSON of the same.
struct ValueCase {
  std::string keras;
  std::string json;
};

inline std::vector<ValueCase> initializer_cases() {
  using namespace initializers;
  return {
      {"I.Zeros()", Zeros().to_json()},
      {"I.Ones()", Ones().to_json()},
      {"I.Constant(0.5)", Constant(0.5).to_json()},
      {"I.RandomUniform()", RandomUniform().to_json()},
      {"I.RandomNormal()", RandomNormal().to_json()},
      {"I.TruncatedNormal(0.5, 0.25)", TruncatedNormal(0.5, 0.25).to_json()},
      {"I.GlorotUniform()", GlorotUniform().to_json()},
      {"I.GlorotNormal()", GlorotNormal().to_json()},
      {"I.HeUniform()", HeUniform().to_json()},
      {"I.HeNormal()", HeNormal().to_json()},
      {"I.LecunUniform()", LecunUniform().to_json()},
      {"I.LecunNormal()", LecunNormal().to_json()},
      {"I.VarianceScaling()", VarianceScaling().to_json()},
      {"I.VarianceScaling(2.0, 'fan_out', 'uniform')", VarianceScaling(2.0, "fan_out", "uniform").to_json()},
      {"I.Orthogonal()", Orthogonal().to_json()},
      {"I.Identity(0.5)", Identity(0.5).to_json()},
      {"I.Constant(2.0)", Custom("Constant", R"({"value": 2.0})").to_json()},
      {"R.L1()", regularizers::L1().to_json()},
      {"R.L2()", regularizers::L2().to_json()},
      {"R.L1L2()", regularizers::L1L2().to_json()},
  };
}

inline std::vector<ValueCase> training_cases() {
  using namespace optimizers;
  using namespace schedules;
  using namespace losses;
  return {
      {"O.SGD()", SGD().to_json()},
      {"O.SGD(0.5, momentum=0.9, nesterov=True, clipnorm=1.0)",
       SGD({.learning_rate = 0.5, .momentum = 0.9, .nesterov = true, .clipnorm = 1.0}).to_json()},
      {"O.Adam()", Adam().to_json()},
      {"O.Adam(0.25)", Adam(0.25).to_json()},
      {"O.Adam(S.ExponentialDecay(0.5, 100, 0.9), beta_1=0.8, beta_2=0.9, epsilon=1e-5, weight_decay=0.5, "
       "global_clipnorm=2.0, name='mine')",
       Adam({.learning_rate = ExponentialDecay(0.5, 100, 0.9),
             .beta_1 = 0.8,
             .beta_2 = 0.9,
             .epsilon = 1e-5,
             .weight_decay = 0.5,
             .global_clipnorm = 2.0,
             .name = "mine"})
           .to_json()},
      {"O.AdamW()", AdamW().to_json()},
      {"O.AdamW(0.25, 0.5, clipvalue=0.5)",
       AdamW({.learning_rate = 0.25, .weight_decay = 0.5, .clipvalue = 0.5}).to_json()},
      {"S.ExponentialDecay(0.5, 10, 0.9, staircase=True)",
       ExponentialDecay(0.5, 10, 0.9, {.staircase = true}).to_json()},
      {"S.InverseTimeDecay(0.5, 10, 0.9)", InverseTimeDecay(0.5, 10, 0.9).to_json()},
      {"S.PiecewiseConstantDecay([10, 20], [0.5, 0.25, 0.125])",
       PiecewiseConstantDecay({10, 20}, {0.5, 0.25, 0.125}).to_json()},
      {"S.PolynomialDecay(0.5, 10)", PolynomialDecay(0.5, 10).to_json()},
      {"S.PolynomialDecay(0.5, 10, 0.25, 2.0, True)",
       PolynomialDecay(0.5, 10, {.end_learning_rate = 0.25, .power = 2.0, .cycle = true}).to_json()},
      {"S.CosineDecay(0.5, 10)", CosineDecay(0.5, 10).to_json()},
      {"S.CosineDecay(0.5, 10, 0.25, warmup_target=1.0, warmup_steps=5)",
       CosineDecay(0.5, 10, {.alpha = 0.25, .warmup_target = 1.0, .warmup_steps = 5}).to_json()},
      {"S.CosineDecayRestarts(0.5, 10)", CosineDecayRestarts(0.5, 10).to_json()},
      {"S.CosineDecayRestarts(0.5, 10, 3.0, 0.5, 0.25)",
       CosineDecayRestarts(0.5, 10, {.t_mul = 3.0, .m_mul = 0.5, .alpha = 0.25}).to_json()},
      {"L.SparseCategoricalCrossentropy()", SparseCategoricalCrossentropy().to_json()},
      {"L.SparseCategoricalCrossentropy(from_logits=True)",
       SparseCategoricalCrossentropy({.from_logits = true}).to_json()},
      {"L.CategoricalCrossentropy()", CategoricalCrossentropy().to_json()},
      {"L.CategoricalCrossentropy(from_logits=True, label_smoothing=0.25)",
       CategoricalCrossentropy({.from_logits = true, .label_smoothing = 0.25}).to_json()},
      {"L.BinaryCrossentropy()", BinaryCrossentropy().to_json()},
      {"L.BinaryCrossentropy(label_smoothing=0.25)", BinaryCrossentropy({.label_smoothing = 0.25}).to_json()},
      {"L.MeanSquaredError()", MeanSquaredError().to_json()},
      {"L.MeanAbsoluteError()", MeanAbsoluteError().to_json()},
      {"M.BinaryAccuracy(threshold=0.25)", metrics::BinaryAccuracy(0.25).to_json()},
  };
}

// A whole model; test_cpp_descriptions.py has a function of this name that builds it with Keras.
struct ModelCase {
  std::string name;
  Result<Description> model;
};

inline Result<Description> two_inputs_two_outputs() {
  const Tensor picture = layers::Input({8, 8, 3}, {.name = "picture"});
  const Tensor numbers = layers::Input({4}, {.name = "numbers"});
  const Tensor seen = layers::GlobalAveragePooling2D()(layers::Conv2D(4, 3, {.activation = "relu"})(picture));
  const Tensor both = layers::Concatenate()({seen, layers::Dense(4, {.activation = "relu"})(numbers)});
  const Tensor price = layers::Dense(1, {.name = "price"})(both);
  const Tensor kind = layers::Dense(3, {.activation = "softmax", .name = "kind"})(layers::Dense(5)(both));
  return functional({picture, numbers}, {price, kind}, "two_ways");
}

inline Result<Description> shared_layer() {
  const Tensor a = layers::Input({4}, {.name = "a"}), b = layers::Input({4}, {.name = "b"});
  const Layer shared = layers::Dense(4, {.name = "shared"});
  return functional({a, b}, {layers::Add()({shared(a), shared(shared(b))})});
}

inline Result<Description> nested_models() {
  const Tensor in = layers::Input({8, 8, 3}, {.name = "inner"});
  const Tensor features = layers::Conv2D(4, 3, {.name = "conv"})(in);
  auto backbone =
      functional({in}, {layers::GlobalAveragePooling2D()(features), layers::Flatten()(features)}, "backbone");
  if (!backbone) return backbone;
  auto head = sequential({layers::Input({4}), layers::Dense(3, {.name = "classes"})}, "head");
  if (!head) return head;
  const Tensor x = layers::Input({8, 8, 3}, {.name = "x"});
  const std::vector<Tensor> made = layers::model(*backbone).outputs({x});
  return functional({x}, {layers::model(*head)(made[0]), made[1]}, "whole");
}

inline Result<Description> split_tensor() {
  const Tensor x = layers::Input({6, 4});
  const std::vector<Tensor> parts = ops::split(x, 3, 1);
  return functional({x}, {layers::Add()({parts[0], parts[2]}), layers::Dense(2)(parts[1])});
}

inline Result<Description> small_sequential() {
  return sequential({layers::Input({layers::kAnySize, layers::kAnySize, 3}, {.dtype = "uint8"}), layers::Rescaling(0.5),
                     layers::Conv2D(4, 3), layers::Conv2D(4, 3), layers::GlobalMaxPooling2D(),
                     layers::Dense(2, {.name = "dense_1"}), layers::Dense(2)},
                    "small");
}

// Layers at one depth, and a layer that is called at two depths: their order decides where a file keeps the weights.
inline Result<Description> crossing_branches() {
  const Tensor x = layers::Input({4}, {.name = "x"}), y = layers::Input({4}, {.name = "y"});
  const Layer twice = layers::Dense(4);
  const Tensor left = layers::Dense(4)(layers::Dense(4)(x));
  const Tensor right = twice(y);
  const Tensor sum = layers::Add()({right, left});
  const Tensor late = twice(layers::Dense(4, {.name = "middle"})(sum));
  return functional({y, x}, {layers::Multiply()({late, layers::Dense(4)(right)}), layers::Dense(1)(left)}, "crossing");
}

inline std::vector<ModelCase> model_cases() {
  return {{"two_inputs_two_outputs", two_inputs_two_outputs()},
          {"shared_layer", shared_layer()},
          {"nested_models", nested_models()},
          {"split_tensor", split_tensor()},
          {"small_sequential", small_sequential()},
          {"crossing_branches", crossing_branches()}};
}

}  // namespace cases
