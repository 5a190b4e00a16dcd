/// @file
/// The layer classes of Keras. Each function has the name of its class; required arguments come first, the others are
/// in a struct of plimsoll/layer_options.h with Keras's defaults:
///
/// @code
/// layers::Conv2D(32, {3, 3}, {.padding = "same", .activation = "relu", .name = "conv1"})
/// @endcode
///
/// Images are channels-last: [height, width, channels].
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plimsoll/layer.h"
#include "plimsoll/layer_options.h"

#pragma GCC visibility push(default)
namespace plimsoll {
namespace layers {

/// A size in the shape of an Input() that the data determine, like Keras's None.
inline constexpr int64_t kAnySize = -1;

/// Makes an input of a model. `shape` is the shape of one sample, without the batch. Use the input as the first entry
/// of sequential(), or call layers on it and pass it to functional().
Tensor Input(const std::vector<int64_t>& shape, const InputOptions& options = {});

/// @name Dense layers and activations
/// @{

/// x * kernel + bias over the last axis. `units`: the number of outputs.
Layer Dense(int64_t units, const DenseOptions& options = {});
/// An activation by its Keras name: "relu", "gelu", "softmax".
Layer Activation(const std::string& activation, const LayerOptions& options = {});
/// max(x, 0), with an optional limit, slope and threshold.
Layer ReLU(const ReLUOptions& options = {});
/// x above 0, negative_slope * x below.
Layer LeakyReLU(double negative_slope = 0.3, const LayerOptions& options = {});
/// x above 0, alpha * (exp(x) - 1) below.
Layer ELU(double alpha = 1, const LayerOptions& options = {});
/// x above 0, a trained slope times x below.
Layer PReLU(const PReLUOptions& options = {});
/// exp(x) / sum of exp(x).
Layer Softmax(const SoftmaxOptions& options = {});
Layer Identity(const LayerOptions& options = {});  ///< The input itself.
/// @}

/// @name Convolutions
/// `filters` is the number of output channels, `kernel_size` the size of the window.
/// @{

Layer Conv1D(int64_t filters, Size<1> kernel_size, const ConvOptions<1>& options = {});  ///< Over sequences.
Layer Conv2D(int64_t filters, Size<2> kernel_size, const ConvOptions<2>& options = {});  ///< Over images.
/// A depthwise convolution over a sequence: each channel has its own kernel.
Layer DepthwiseConv1D(Size<1> kernel_size, const DepthwiseConvOptions<1>& options = {});
/// A depthwise convolution over an image: each channel has its own kernel.
Layer DepthwiseConv2D(Size<2> kernel_size, const DepthwiseConvOptions<2>& options = {});
/// A depthwise convolution over a sequence, then one that mixes the channels.
Layer SeparableConv1D(int64_t filters, Size<1> kernel_size, const SeparableConvOptions<1>& options = {});
/// A depthwise convolution over an image, then one that mixes the channels.
Layer SeparableConv2D(int64_t filters, Size<2> kernel_size, const SeparableConvOptions<2>& options = {});
/// The transpose of a convolution over sequences: strides make its output longer.
Layer Conv1DTranspose(int64_t filters, Size<1> kernel_size, const ConvTransposeOptions<1>& options = {});
/// The transpose of a convolution over images: strides make its output larger.
Layer Conv2DTranspose(int64_t filters, Size<2> kernel_size, const ConvTransposeOptions<2>& options = {});
/// @}

/// @name Pooling
/// @{

Layer MaxPooling1D(Size<1> pool_size = 2, const PoolOptions<1>& options = {});      ///< The maximum of each window.
Layer MaxPooling2D(Size<2> pool_size = 2, const PoolOptions<2>& options = {});      ///< The maximum of each window.
Layer AveragePooling1D(Size<1> pool_size = 2, const PoolOptions<1>& options = {});  ///< The mean of each window.
Layer AveragePooling2D(Size<2> pool_size = 2, const PoolOptions<2>& options = {});  ///< The mean of each window.
Layer GlobalMaxPooling1D(const GlobalPoolOptions& options = {});      ///< The maximum of each channel of a sequence.
Layer GlobalMaxPooling2D(const GlobalPoolOptions& options = {});      ///< The maximum of each channel of an image.
Layer GlobalAveragePooling1D(const GlobalPoolOptions& options = {});  ///< The mean of each channel of a sequence.
Layer GlobalAveragePooling2D(const GlobalPoolOptions& options = {});  ///< The mean of each channel of an image.
/// @}

/// @name Normalisation and regularisation
/// @{

/// Normalises each channel by the statistics of the batch. A frozen layer uses the moving statistics.
Layer BatchNormalization(const BatchNormalizationOptions& options = {});
/// Normalises each sample.
Layer LayerNormalization(const LayerNormalizationOptions& options = {});
/// Sets a share `rate`, from 0 to 1, of the inputs to zero during training.
Layer Dropout(double rate, const DropoutOptions& options = {});
Layer SpatialDropout1D(double rate, const RandomOptions& options = {});  ///< Drops whole channels of a sequence.
Layer SpatialDropout2D(double rate, const SpatialDropoutOptions& options = {});  ///< Drops whole channels of an image.
/// Drops whole channels of a volume.
Layer SpatialDropout3D(double rate, const SpatialDropoutOptions& options = {});
/// Adds normal noise of deviation `stddev`, from 0 to 1, during training.
Layer GaussianNoise(double stddev, const RandomOptions& options = {});
/// Multiplies by normal noise of mean 1 and variance rate / (1 - rate) during training.
Layer GaussianDropout(double rate, const RandomOptions& options = {});
/// Dropout for "selu": keeps the mean and the variance.
Layer AlphaDropout(double rate, const DropoutOptions& options = {});
/// Passes its input on, and adds a penalty on it to the loss.
Layer ActivityRegularization(const ActivityRegularizationOptions& options = {});
/// @}

/// @name Shapes and sizes
/// @{

Layer Flatten(const LayerOptions& options = {});  ///< Joins all axes except the batch.
/// Changes the shape of each sample. The shape is given without the batch. One size may be -1, and then it follows from
/// the others.
Layer Reshape(const std::vector<int64_t>& target_shape, const LayerOptions& options = {});
Layer ZeroPadding1D(const Margins1D& padding = 1, const LayerOptions& options = {});  ///< Zeros before and after.
Layer ZeroPadding2D(const Margins2D& padding = 1, const LayerOptions& options = {});  ///< Zeros on all sides.
Layer Cropping1D(const Margins1D& cropping = 1, const LayerOptions& options = {});    ///< Cuts off both ends.
Layer Cropping2D(const Margins2D& cropping = 0, const LayerOptions& options = {});    ///< Cuts off all sides.
Layer UpSampling1D(Size<1> size = 2, const LayerOptions& options = {});               ///< Repeats each step.
Layer UpSampling2D(Size<2> size = 2, const UpSampling2DOptions& options = {});        ///< Enlarges an image.
/// x * scale + offset.
Layer Rescaling(double scale, double offset = 0, const LayerOptions& options = {});
/// Marks the steps of a sequence whose values all equal `mask_value`; layers that support masks skip them.
Layer Masking(double mask_value = 0, const LayerOptions& options = {});
/// @}

/// @name Sequences
/// @{

/// A row of a table for each whole number of the input, which is below `input_dim`. A row has `output_dim` numbers.
Layer Embedding(int64_t input_dim, int64_t output_dim, const EmbeddingOptions& options = {});
/// Attention with `num_heads` heads of width `key_dim`. Called on {query, value} or {query, value, key}; an
/// encoder passes one tensor twice.
Layer MultiHeadAttention(int64_t num_heads, int64_t key_dim, const MultiHeadAttentionOptions& options = {});
/// Attention whose heads share keys and values in groups. Called on {query, value} or {query, value, key}.
Layer GroupQueryAttention(int64_t head_dim, int64_t num_query_heads, int64_t num_key_value_heads,
                          const GroupQueryAttentionOptions& options = {});
/// Attention by the product of query and key. Called on {query, value} or {query, value, key}.
Layer Attention(const AttentionOptions& options = {});
/// Attention by the sum of query and key. Called on {query, value} or {query, value, key}.
Layer AdditiveAttention(const AdditiveAttentionOptions& options = {});
/// @}

/// @name Several inputs
/// Called on a list of tensors: `layers::Add()({a, b})`.
/// @{

Layer Add(const LayerOptions& options = {});       ///< The sum of the inputs.
Layer Subtract(const LayerOptions& options = {});  ///< The first input minus the second.
Layer Multiply(const LayerOptions& options = {});  ///< The product of the inputs.
Layer Average(const LayerOptions& options = {});   ///< The mean of the inputs.
Layer Maximum(const LayerOptions& options = {});   ///< The largest of the inputs, element by element.
Layer Minimum(const LayerOptions& options = {});   ///< The smallest of the inputs, element by element.
/// The product of two inputs per sample, summed over an axis of each: `{1}` for the same axis of both, or `{2, 1}`.
Layer Dot(const std::vector<int64_t>& axes, const DotOptions& options = {});
Layer Concatenate(const ConcatenateOptions& options = {});  ///< The inputs one after the other.
/// @}

/// @name Wrappers and other classes
/// @{

/// Applies `layer` to each step of a sequence. The wrapper has its own weights, which other calls of `layer` do not
/// share.
Layer TimeDistributed(const Layer& layer, const LayerOptions& options = {});

/// Divides the kernel of `layer` by its largest singular value, which power iteration estimates during training.
Layer SpectralNormalization(const Layer& layer, const SpectralNormalizationOptions& options = {});

/// Any layer class of Keras, with its configuration as JSON in the form that get_config() returns. "name", "trainable"
/// and "dtype" in the JSON are used if `options` does not set them.
Layer Custom(const std::string& class_name, const std::string& config_json = "{}", const LayerOptions& options = {});
/// @}

}  // namespace layers

/// Functions of keras.ops on tensors of a functional model.
namespace ops {

/// Splits a tensor into `sections` equal parts along `axis`, counted with the batch. If the number of sections is
/// impossible, the result is one tensor that functional() refuses.
std::vector<Tensor> split(const Tensor& tensor, int64_t sections, int64_t axis);

}  // namespace ops
}  // namespace plimsoll
#pragma GCC visibility pop
