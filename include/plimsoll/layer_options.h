/// @file
/// The arguments of layers that have defaults, for designated initialisers: `{.strides = 2, .activation = "relu"}`.
/// Fields have the names, the order and the defaults of Keras's arguments. An argument that Plimsoll does not support
/// has no field. layers::Custom() accepts any configuration.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plimsoll/initializers.h"
#include "plimsoll/regularizers.h"

#pragma GCC visibility push(default)
namespace plimsoll::layers {

/// A size along each of `Rank` spatial dimensions: one number for all of them, `3`, or one for each, `{3, 5}`. `{}` is
/// a size that is not given.
template <size_t Rank>
class Size {
 public:
  Size() = default;  ///< Not given.
  /// One number for all dimensions.
  Size(int64_t all) : given_(true) {  // NOLINT(google-explicit-constructor)
    values_.fill(all);
  }
  /// One number per dimension.
  template <std::convertible_to<int64_t>... Each>
  requires(sizeof...(Each) == Rank && Rank > 1) Size(Each... each)
      : values_{static_cast<int64_t>(each)...}, given_(true) {}  // NOLINT(google-explicit-constructor)

  bool given() const { return given_; }                                ///< False for `{}`.
  const std::array<int64_t, Rank>& values() const { return values_; }  ///< One per dimension.

 private:
  std::array<int64_t, Rank> values_ = {};
  bool given_ = false;
};

/// How much is added or cut off before and after an image along one dimension.
struct Sides {
  int64_t before = 0;  ///< At the top or on the left.
  int64_t after = 0;   ///< At the bottom or on the right.
};

/// How much is added or cut off along the dimension of a sequence: `1` on both sides, or `{1, 2}`.
class Margins1D {
 public:
  /// The same on both sides.
  Margins1D(int64_t all) : sides_{all, all} {}  // NOLINT(google-explicit-constructor)
  /// Before and after.
  Margins1D(int64_t before, int64_t after) : sides_{before, after} {}  // NOLINT(google-explicit-constructor)
  const Sides& sides() const { return sides_; }                        ///< Before and after.

 private:
  Sides sides_;
};

/// How much is added or cut off around an image: `1` on all sides, `{1, 2}` above and below, left and right, or
/// `{{1, 2}, {3, 4}}` at the top, bottom, left and right.
class Margins2D {
 public:
  /// The same on all sides.
  Margins2D(int64_t all) : Margins2D(all, all) {}  // NOLINT(google-explicit-constructor)
  /// The same on opposite sides: above and below, left and right.
  Margins2D(int64_t height, int64_t width)
      : sides_{Sides{height, height}, Sides{width, width}} {}  // NOLINT(google-explicit-constructor)
  /// Each side on its own: top and bottom, left and right.
  Margins2D(const Sides& height, const Sides& width) : sides_{height, width} {}  // NOLINT(google-explicit-constructor)
  const std::array<Sides, 2>& sides() const { return sides_; }                   ///< Of the height and of the width.

 private:
  std::array<Sides, 2> sides_;
};

/// Arguments that all layers have.
struct LayerOptions {
  std::string name = {};   ///< The layer's name; "": chosen by the model.
  bool trainable = true;   ///< False: the layer's weights stay as they are.
  std::string dtype = {};  ///< A dtype policy, "mixed_float16"; "": "float32".
};

/// Arguments of Input().
struct InputOptions {
  std::string name = {};          ///< The input's name; "": chosen by the model, "input_layer".
  std::string dtype = "float32";  ///< The dtype of the data, such as "uint8" for images of bytes.
};

/// Arguments of Dense().
struct DenseOptions {
  std::string activation = "linear";  ///< A Keras name: "relu". Activations with arguments are layers of their own.
  bool use_bias = true;               ///< Whether a bias is added.
  Initializer kernel_initializer = "glorot_uniform";  ///< The initial values of the kernel.
  Initializer bias_initializer = "zeros";             ///< The initial values of the bias.
  Regularizer kernel_regularizer = {};                ///< A penalty on the kernel.
  Regularizer bias_regularizer = {};                  ///< A penalty on the bias.
  std::string name = {};                              ///< The layer's name; "": chosen by the model.
  bool trainable = true;                              ///< False: the layer's weights stay as they are.
  std::string dtype = {};                             ///< A dtype policy, "mixed_float16"; "": "float32".
};

/// Arguments of convolutions.
template <size_t Rank>
struct ConvOptions {
  Size<Rank> strides = 1;             ///< How far the window moves.
  std::string padding = "valid";      ///< "valid" or "same"; of one-dimensional layers also "causal".
  Size<Rank> dilation_rate = 1;       ///< The distance between the elements of a window.
  int64_t groups = 1;                 ///< The number of groups that the channels are divided into.
  std::string activation = "linear";  ///< A Keras name: "relu". Activations with arguments are layers of their own.
  bool use_bias = true;               ///< Whether a bias is added.
  Initializer kernel_initializer = "glorot_uniform";  ///< The initial values of the kernel.
  Initializer bias_initializer = "zeros";             ///< The initial values of the bias.
  Regularizer kernel_regularizer = {};                ///< A penalty on the kernel.
  Regularizer bias_regularizer = {};                  ///< A penalty on the bias.
  std::string name = {};                              ///< The layer's name; "": chosen by the model.
  bool trainable = true;                              ///< False: the layer's weights stay as they are.
  std::string dtype = {};                             ///< A dtype policy, "mixed_float16"; "": "float32".
};

/// Arguments of depthwise convolutions.
template <size_t Rank>
struct DepthwiseConvOptions {
  Size<Rank> strides = 1;             ///< How far the window moves.
  std::string padding = "valid";      ///< "valid" or "same".
  int64_t depth_multiplier = 1;       ///< The number of outputs per channel.
  Size<Rank> dilation_rate = 1;       ///< The distance between the elements of a window.
  std::string activation = "linear";  ///< A Keras name: "relu". Activations with arguments are layers of their own.
  bool use_bias = true;               ///< Whether a bias is added.
  Initializer depthwise_initializer = "glorot_uniform";  ///< The initial values of the kernel.
  Initializer bias_initializer = "zeros";                ///< The initial values of the bias.
  Regularizer depthwise_regularizer = {};                ///< A penalty on the kernel.
  Regularizer bias_regularizer = {};                     ///< A penalty on the bias.
  std::string name = {};                                 ///< The layer's name; "": chosen by the model.
  bool trainable = true;                                 ///< False: the layer's weights stay as they are.
  std::string dtype = {};                                ///< A dtype policy, "mixed_float16"; "": "float32".
};

/// Arguments of separable convolutions.
template <size_t Rank>
struct SeparableConvOptions {
  Size<Rank> strides = 1;             ///< How far the window moves.
  std::string padding = "valid";      ///< "valid" or "same".
  Size<Rank> dilation_rate = 1;       ///< The distance between the elements of a window.
  int64_t depth_multiplier = 1;       ///< The number of outputs per channel before the channels are mixed.
  std::string activation = "linear";  ///< A Keras name: "relu". Activations with arguments are layers of their own.
  bool use_bias = true;               ///< Whether a bias is added.
  Initializer depthwise_initializer = "glorot_uniform";  ///< The initial values of the depthwise kernel.
  Initializer pointwise_initializer = "glorot_uniform";  ///< The initial values of the pointwise kernel.
  Initializer bias_initializer = "zeros";                ///< The initial values of the bias.
  Regularizer depthwise_regularizer = {};                ///< A penalty on the depthwise kernel.
  Regularizer pointwise_regularizer = {};                ///< A penalty on the pointwise kernel.
  Regularizer bias_regularizer = {};                     ///< A penalty on the bias.
  std::string name = {};                                 ///< The layer's name; "": chosen by the model.
  bool trainable = true;                                 ///< False: the layer's weights stay as they are.
  std::string dtype = {};                                ///< A dtype policy, "mixed_float16"; "": "float32".
};

/// Arguments of transposed convolutions.
template <size_t Rank>
struct ConvTransposeOptions {
  Size<Rank> strides = 1;             ///< How far the window moves.
  std::string padding = "valid";      ///< "valid" or "same".
  Size<Rank> output_padding = {};     ///< Rows and columns that are added to the output; not given: chosen by Keras.
  Size<Rank> dilation_rate = 1;       ///< The distance between the elements of a window.
  std::string activation = "linear";  ///< A Keras name: "relu". Activations with arguments are layers of their own.
  bool use_bias = true;               ///< Whether a bias is added.
  Initializer kernel_initializer = "glorot_uniform";  ///< The initial values of the kernel.
  Initializer bias_initializer = "zeros";             ///< The initial values of the bias.
  Regularizer kernel_regularizer = {};                ///< A penalty on the kernel.
  Regularizer bias_regularizer = {};                  ///< A penalty on the bias.
  std::string name = {};                              ///< The layer's name; "": chosen by the model.
  bool trainable = true;                              ///< False: the layer's weights stay as they are.
  std::string dtype = {};                             ///< A dtype policy, "mixed_float16"; "": "float32".
};

/// Arguments of pooling layers.
template <size_t Rank>
struct PoolOptions {
  Size<Rank> strides = {};        ///< How far the window moves; not given: the size of the window.
  std::string padding = "valid";  ///< "valid" or "same".
  std::string name = {};          ///< The layer's name; "": chosen by the model.
  bool trainable = true;          ///< False: the layer's weights stay as they are.
  std::string dtype = {};         ///< A dtype policy, "mixed_float16"; "": "float32".
};

/// Arguments of global pooling layers.
struct GlobalPoolOptions {
  bool keepdims = false;   ///< Whether the pooled dimensions stay, with size 1.
  std::string name = {};   ///< The layer's name; "": chosen by the model.
  bool trainable = true;   ///< False: the layer's weights stay as they are.
  std::string dtype = {};  ///< A dtype policy, "mixed_float16"; "": "float32".
};

/// Arguments of ReLU(). None may be negative.
struct ReLUOptions {
  std::optional<double> max_value = {};  ///< The largest output; absent: no limit.
  double negative_slope = 0;             ///< The slope below the threshold.
  double threshold = 0;                  ///< Inputs below it are cut off.
  std::string name = {};                 ///< The layer's name; "": chosen by the model.
  bool trainable = true;                 ///< False: the layer's weights stay as they are.
  std::string dtype = {};                ///< A dtype policy, "mixed_float16"; "": "float32".
};

/// Arguments of Dropout() and AlphaDropout().
struct DropoutOptions {
  /// The shape of the decisions, with the batch: 1 along an axis that shares them, -1 for the input's own size. Empty:
  /// each element has its own.
  std::vector<int64_t> noise_shape = {};
  std::optional<int64_t> seed = {};  ///< Written to the file for Keras; Plimsoll draws from the seed of the run.
  std::string name = {};             ///< The layer's name; "": chosen by the model.
  bool trainable = true;             ///< False: the layer's weights stay as they are.
  std::string dtype = {};            ///< A dtype policy, "mixed_float16"; "": "float32".
};

/// Arguments of SpatialDropout2D() and SpatialDropout3D().
struct SpatialDropoutOptions {
  std::string data_format = "channels_last";  ///< Where the channels are: "channels_last" or "channels_first".
  std::optional<int64_t> seed = {};           ///< Written to the file for Keras; Plimsoll draws from the run's seed.
  std::string name = {};                      ///< The layer's name; "": chosen by the model.
  std::string dtype = {};                     ///< A dtype policy, "mixed_float16"; "": "float32".
};

/// Arguments of layers that draw random numbers and have no other options.
struct RandomOptions {
  std::optional<int64_t> seed = {};  ///< Written to the file for Keras; Plimsoll draws from the seed of the run.
  std::string name = {};             ///< The layer's name; "": chosen by the model.
  bool trainable = true;             ///< False: the layer's weights stay as they are.
  std::string dtype = {};            ///< A dtype policy, "mixed_float16"; "": "float32".
};

/// Arguments of ActivityRegularization().
struct ActivityRegularizationOptions {
  double l1 = 0;           ///< The factor of the sum of magnitudes.
  double l2 = 0;           ///< The factor of the sum of squares.
  std::string name = {};   ///< The layer's name; "": chosen by the model.
  bool trainable = true;   ///< False: the layer's weights stay as they are.
  std::string dtype = {};  ///< A dtype policy, "mixed_float16"; "": "float32".
};

/// Arguments of PReLU().
struct PReLUOptions {
  Initializer alpha_initializer = "zeros";  ///< The initial slopes.
  Regularizer alpha_regularizer = {};       ///< A penalty on the slopes.
  std::vector<int64_t> shared_axes = {};    ///< Axes, counted with the batch, along which the slope is shared.
  std::string name = {};                    ///< The layer's name; "": chosen by the model.
  bool trainable = true;                    ///< False: the slopes stay as they are.
  std::string dtype = {};                   ///< A dtype policy, "mixed_float16"; "": "float32".
};

/// Arguments of Embedding().
struct EmbeddingOptions {
  Initializer embeddings_initializer = "uniform";  ///< The initial values of the table.
  Regularizer embeddings_regularizer = {};         ///< A penalty on the table.
  bool mask_zero = false;                          ///< Whether id 0 stands for no step: later layers skip it.
  std::string name = {};                           ///< The layer's name; "": chosen by the model.
  bool trainable = true;                           ///< False: the table stays as it is.
  std::string dtype = {};                          ///< A dtype policy, "mixed_float16"; "": "float32".
};

/// Arguments of MultiHeadAttention().
struct MultiHeadAttentionOptions {
  int64_t value_dim = 0;                              ///< The width of a head's values; 0: key_dim.
  double dropout = 0;                                 ///< The share of weights that training sets to zero.
  bool use_bias = true;                               ///< Whether biases are added to the projections.
  std::vector<int64_t> output_shape = {};             ///< The last axes of the result; {}: those of the query.
  std::vector<int64_t> attention_axes = {};           ///< The axes attended over, counted with the batch; {}: all.
  Initializer kernel_initializer = "glorot_uniform";  ///< The initial values of the projections.
  Initializer bias_initializer = "zeros";             ///< The initial values of the biases.
  Regularizer kernel_regularizer = {};                ///< A penalty on the projections.
  Regularizer bias_regularizer = {};                  ///< A penalty on the biases.
  bool use_causal_mask = false;                       ///< Whether a position sees only those before it, in every call.
  std::string name = {};                              ///< The layer's name; "": chosen by the model.
  bool trainable = true;                              ///< False: the weights stay as they are.
  std::string dtype = {};                             ///< A dtype policy, "mixed_float16"; "": "float32".
};

/// Arguments of GroupQueryAttention().
struct GroupQueryAttentionOptions {
  double dropout = 0;                                 ///< The share of weights that training sets to zero.
  bool use_bias = true;                               ///< Whether biases are added to the projections.
  Initializer kernel_initializer = "glorot_uniform";  ///< The initial values of the projections.
  Initializer bias_initializer = "zeros";             ///< The initial values of the biases.
  bool use_causal_mask = false;                       ///< Whether a position sees only those before it, in every call.
  std::string name = {};                              ///< The layer's name; "": chosen by the model.
  bool trainable = true;                              ///< False: the weights stay as they are.
  std::string dtype = {};                             ///< A dtype policy, "mixed_float16"; "": "float32".
};

/// Arguments of Attention().
struct AttentionOptions {
  bool use_scale = false;          ///< Whether scores are multiplied by a trained number.
  std::string score_mode = "dot";  ///< "dot" or "concat".
  double dropout = 0;              ///< The share of weights that training sets to zero.
  bool use_causal_mask = false;    ///< Whether a position sees only those before it, in every call.
  std::string name = {};           ///< The layer's name; "": chosen by the model.
  bool trainable = true;           ///< False: the weights stay as they are.
  std::string dtype = {};          ///< A dtype policy, "mixed_float16"; "": "float32".
};

/// Arguments of AdditiveAttention().
struct AdditiveAttentionOptions {
  bool use_scale = true;         ///< Whether the terms of a score are multiplied by trained numbers.
  double dropout = 0;            ///< The share of weights that training sets to zero.
  bool use_causal_mask = false;  ///< Whether a position sees only those before it, in every call.
  std::string name = {};         ///< The layer's name; "": chosen by the model.
  bool trainable = true;         ///< False: the weights stay as they are.
  std::string dtype = {};        ///< A dtype policy, "mixed_float16"; "": "float32".
};

/// Arguments of Dot().
struct DotOptions {
  bool normalize = false;  ///< Whether the inputs are divided by their norms first: the cosine of their angle.
  std::string name = {};   ///< The layer's name; "": chosen by the model.
  bool trainable = true;   ///< False: the layer's weights stay as they are.
  std::string dtype = {};  ///< A dtype policy, "mixed_float16"; "": "float32".
};

/// Arguments of BatchNormalization().
struct BatchNormalizationOptions {
  int64_t axis = -1;                                 ///< The axis of the channels, counted with the batch.
  double momentum = 0.99;                            ///< How much of the moving statistics stays at each step.
  double epsilon = 1e-3;                             ///< Added to the variance.
  bool center = true;                                ///< Whether the layer has a beta.
  bool scale = true;                                 ///< Whether the layer has a gamma.
  Initializer beta_initializer = "zeros";            ///< The initial values of beta.
  Initializer gamma_initializer = "ones";            ///< The initial values of gamma.
  Initializer moving_mean_initializer = "zeros";     ///< The initial values of the moving mean.
  Initializer moving_variance_initializer = "ones";  ///< The initial values of the moving variance.
  Regularizer beta_regularizer = {};                 ///< A penalty on the beta.
  Regularizer gamma_regularizer = {};                ///< A penalty on the gamma.
  std::string name = {};                             ///< The layer's name; "": chosen by the model.
  bool trainable = true;                             ///< False: the layer's weights stay as they are.
  std::string dtype = {};                            ///< A dtype policy, "mixed_float16"; "": "float32".
};

/// Arguments of LayerNormalization().
struct LayerNormalizationOptions {
  int64_t axis = -1;                       ///< The axis that is normalised, counted with the batch.
  double epsilon = 1e-3;                   ///< Added to the variance.
  bool center = true;                      ///< Whether the layer has a beta.
  bool scale = true;                       ///< Whether the layer has a gamma.
  Initializer beta_initializer = "zeros";  ///< The initial values of beta.
  Initializer gamma_initializer = "ones";  ///< The initial values of gamma.
  Regularizer beta_regularizer = {};       ///< A penalty on the beta.
  Regularizer gamma_regularizer = {};      ///< A penalty on the gamma.
  std::string name = {};                   ///< The layer's name; "": chosen by the model.
  bool trainable = true;                   ///< False: the layer's weights stay as they are.
  std::string dtype = {};                  ///< A dtype policy, "mixed_float16"; "": "float32".
};

/// Arguments of UpSampling2D().
struct UpSampling2DOptions {
  std::string interpolation = "nearest";  ///< "nearest" or "bilinear".
  std::string name = {};                  ///< The layer's name; "": chosen by the model.
  bool trainable = true;                  ///< False: the layer's weights stay as they are.
  std::string dtype = {};                 ///< A dtype policy, "mixed_float16"; "": "float32".
};

/// Arguments of SpectralNormalization().
struct SpectralNormalizationOptions {
  int64_t power_iterations = 1;  ///< Steps of power iteration per call in training.
  std::string name = {};         ///< The layer's name; "": chosen by the model.
  bool trainable = true;         ///< False: the layer's weights stay as they are.
  std::string dtype = {};        ///< A dtype policy, "mixed_float16"; "": "float32".
};

/// Arguments of Concatenate().
struct ConcatenateOptions {
  int64_t axis = -1;       ///< The axis along which the inputs are joined, counted with the batch.
  std::string name = {};   ///< The layer's name; "": chosen by the model.
  bool trainable = true;   ///< False: the layer's weights stay as they are.
  std::string dtype = {};  ///< A dtype policy, "mixed_float16"; "": "float32".
};

/// Arguments of Softmax().
struct SoftmaxOptions {
  int64_t axis = -1;       ///< The axis of the classes, counted with the batch.
  std::string name = {};   ///< The layer's name; "": chosen by the model.
  bool trainable = true;   ///< False: the layer's weights stay as they are.
  std::string dtype = {};  ///< A dtype policy, "mixed_float16"; "": "float32".
};

}  // namespace plimsoll::layers
#pragma GCC visibility pop
