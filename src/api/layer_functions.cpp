// The C++ interface's layers: Keras's classes with the configurations that Keras itself would write.
#include <fmt/format.h>

#include "api/layer_graph.h"
#include "base/json.h"
#include "plimsoll/layers.h"

namespace plimsoll {
namespace layers {
namespace {

using engine::Access;
using engine::json_object;
using nlohmann::json;

using Fields = std::initializer_list<engine::JsonField<json>>;

// Makes a layer of that class from `fields` and the arguments that all layers have.
template <typename Options>
Layer layer(const char* class_name, const Options& options, Fields fields) {
  json config = json_object(fields);
  config["trainable"] = options.trainable;
  config["dtype"] = engine::policy_json(options.dtype);
  return Access::layer(engine::DescribedLayer{class_name, std::move(config), options.name});
}

// The same for layers that are called on a query, a value and perhaps a key: as arguments of their own, or in a list.
template <typename Options>
Layer attention(const char* class_name, const Options& options, bool apart, Fields fields) {
  json config = json_object(fields);
  config["trainable"] = options.trainable;
  config["dtype"] = engine::policy_json(options.dtype);
  engine::DescribedLayer described{class_name, std::move(config), options.name};
  described.takes_tensors_apart = apart;
  if (options.use_causal_mask) described.call_arguments["use_causal_mask"] = true;
  return Access::layer(std::move(described));
}

template <typename Options>
Layer image_layer(const char* class_name, const Options& options, json config) {
  config["data_format"] = "channels_last";
  config["trainable"] = options.trainable;
  config["dtype"] = engine::policy_json(options.dtype);
  return Access::layer(engine::DescribedLayer{class_name, std::move(config), options.name});
}

json value(const ConfigValue& value) {
  return Access::json(value);
}
template <size_t Rank>
json value(const Size<Rank>& size) {
  return size.given() ? json(size.values()) : json();
}
json value(const Sides& sides) {
  return json(std::array<int64_t, 2>{sides.before, sides.after});
}

// The arguments that all convolutions have.
template <size_t Rank, typename Options>
json convolution(Size<Rank> kernel_size, const Options& options) {
  return json_object({{"kernel_size", value(kernel_size)},
                      {"strides", value(options.strides)},
                      {"padding", options.padding},
                      {"dilation_rate", value(options.dilation_rate)},
                      {"activation", options.activation},
                      {"use_bias", options.use_bias},
                      {"bias_initializer", value(options.bias_initializer)},
                      {"bias_regularizer", value(options.bias_regularizer)}});
}

template <size_t Rank>
Layer conv(const char* class_name, int64_t filters, Size<Rank> kernel_size, const ConvOptions<Rank>& options) {
  json config = convolution(kernel_size, options);
  config["filters"] = filters;
  config["groups"] = options.groups;
  config["kernel_initializer"] = value(options.kernel_initializer);
  config["kernel_regularizer"] = value(options.kernel_regularizer);
  return image_layer(class_name, options, std::move(config));
}

template <size_t Rank>
Layer depthwise(const char* class_name, Size<Rank> kernel_size, const DepthwiseConvOptions<Rank>& options) {
  json config = convolution(kernel_size, options);
  config["depth_multiplier"] = options.depth_multiplier;
  config["depthwise_initializer"] = value(options.depthwise_initializer);
  config["depthwise_regularizer"] = value(options.depthwise_regularizer);
  return image_layer(class_name, options, std::move(config));
}

template <size_t Rank>
Layer separable(const char* class_name, int64_t filters, Size<Rank> kernel_size,
                const SeparableConvOptions<Rank>& options) {
  json config = convolution(kernel_size, options);
  config["filters"] = filters;
  config["depth_multiplier"] = options.depth_multiplier;
  config["depthwise_initializer"] = value(options.depthwise_initializer);
  config["depthwise_regularizer"] = value(options.depthwise_regularizer);
  config["pointwise_initializer"] = value(options.pointwise_initializer);
  config["pointwise_regularizer"] = value(options.pointwise_regularizer);
  return image_layer(class_name, options, std::move(config));
}

template <size_t Rank>
Layer transposed(const char* class_name, int64_t filters, Size<Rank> kernel_size,
                 const ConvTransposeOptions<Rank>& options) {
  json config = convolution(kernel_size, options);
  config["filters"] = filters;
  config["output_padding"] = value(options.output_padding);
  config["kernel_initializer"] = value(options.kernel_initializer);
  config["kernel_regularizer"] = value(options.kernel_regularizer);
  return image_layer(class_name, options, std::move(config));
}

template <size_t Rank>
Layer pool(const char* class_name, Size<Rank> size, const PoolOptions<Rank>& options) {
  const Size<Rank> strides = options.strides.given() ? options.strides : size;
  return image_layer(
      class_name, options,
      json_object({{"pool_size", value(size)}, {"strides", value(strides)}, {"padding", options.padding}}));
}

Layer global_pool(const char* class_name, const GlobalPoolOptions& options) {
  return image_layer(class_name, options, json_object({{"keepdims", options.keepdims}}));
}

Layer dropout(const char* class_name, double rate, const DropoutOptions& options) {
  json noise;
  for (const int64_t size : options.noise_shape) noise.push_back(size == kAnySize ? json() : json(size));
  return layer(class_name, options,
               {{"rate", rate}, {"seed", options.seed ? json(*options.seed) : json()}, {"noise_shape", noise}});
}

// Keras's classes of this family have no argument `trainable`.
template <typename Options>
Layer spatial_dropout(const char* class_name, double rate, const Options& options, json config) {
  config["rate"] = rate;
  config["seed"] = options.seed ? json(*options.seed) : json();
  config["dtype"] = engine::policy_json(options.dtype);
  return Access::layer(engine::DescribedLayer{class_name, std::move(config), options.name});
}

json margins(const Margins2D& margins) {
  return json::array({value(margins.sides()[0]), value(margins.sides()[1])});
}

}  // namespace

Tensor Input(const std::vector<int64_t>& shape, const InputOptions& options) {
  json batch_shape = json::array({nullptr});
  for (const int64_t size : shape) batch_shape.push_back(size == kAnySize ? json() : json(size));
  for (const int64_t size : shape)
    if (size != kAnySize && size < 1)
      batch_shape = engine::broken_json(fmt::format("must have sizes of at least 1 or kAnySize, got {}", size));
  const json config = json_object({{"batch_shape", batch_shape}, {"dtype", options.dtype}, {"sparse", false}});
  const Layer input = Access::layer(engine::DescribedLayer{engine::kInputLayer, config, options.name});
  return input(std::vector<Tensor>());
}

Layer Dense(int64_t units, const DenseOptions& options) {
  return layer("Dense", options,
               {{"units", units},
                {"activation", options.activation},
                {"use_bias", options.use_bias},
                {"kernel_initializer", value(options.kernel_initializer)},
                {"bias_initializer", value(options.bias_initializer)},
                {"kernel_regularizer", value(options.kernel_regularizer)},
                {"bias_regularizer", value(options.bias_regularizer)}});
}
Layer Activation(const std::string& activation, const LayerOptions& options) {
  return layer("Activation", options, {{"activation", activation}});
}
Layer ReLU(const ReLUOptions& options) {
  return layer("ReLU", options,
               {{"max_value", engine::optional_json(options.max_value)},
                {"negative_slope", options.negative_slope},
                {"threshold", options.threshold}});
}
Layer PReLU(const PReLUOptions& options) {
  return layer("PReLU", options,
               {{"alpha_initializer", value(options.alpha_initializer)},
                {"alpha_regularizer", value(options.alpha_regularizer)},
                {"shared_axes", options.shared_axes.empty() ? json() : json(options.shared_axes)}});
}
Layer Identity(const LayerOptions& options) {
  return layer("Identity", options, {});
}
Layer LeakyReLU(double negative_slope, const LayerOptions& options) {
  return layer("LeakyReLU", options, {{"negative_slope", negative_slope}});
}
Layer ELU(double alpha, const LayerOptions& options) {
  return layer("ELU", options, {{"alpha", alpha}});
}
Layer Softmax(const SoftmaxOptions& options) {
  return layer("Softmax", options, {{"axis", options.axis}});
}

Layer Conv1D(int64_t filters, Size<1> kernel_size, const ConvOptions<1>& options) {
  return conv("Conv1D", filters, kernel_size, options);
}
Layer Conv2D(int64_t filters, Size<2> kernel_size, const ConvOptions<2>& options) {
  return conv("Conv2D", filters, kernel_size, options);
}
Layer DepthwiseConv1D(Size<1> kernel_size, const DepthwiseConvOptions<1>& options) {
  return depthwise("DepthwiseConv1D", kernel_size, options);
}
Layer DepthwiseConv2D(Size<2> kernel_size, const DepthwiseConvOptions<2>& options) {
  return depthwise("DepthwiseConv2D", kernel_size, options);
}
Layer SeparableConv1D(int64_t filters, Size<1> kernel_size, const SeparableConvOptions<1>& options) {
  return separable("SeparableConv1D", filters, kernel_size, options);
}
Layer SeparableConv2D(int64_t filters, Size<2> kernel_size, const SeparableConvOptions<2>& options) {
  return separable("SeparableConv2D", filters, kernel_size, options);
}
Layer Conv1DTranspose(int64_t filters, Size<1> kernel_size, const ConvTransposeOptions<1>& options) {
  return transposed("Conv1DTranspose", filters, kernel_size, options);
}
Layer Conv2DTranspose(int64_t filters, Size<2> kernel_size, const ConvTransposeOptions<2>& options) {
  return transposed("Conv2DTranspose", filters, kernel_size, options);
}

Layer MaxPooling1D(Size<1> pool_size, const PoolOptions<1>& options) {
  return pool("MaxPooling1D", pool_size, options);
}
Layer MaxPooling2D(Size<2> pool_size, const PoolOptions<2>& options) {
  return pool("MaxPooling2D", pool_size, options);
}
Layer AveragePooling1D(Size<1> pool_size, const PoolOptions<1>& options) {
  return pool("AveragePooling1D", pool_size, options);
}
Layer AveragePooling2D(Size<2> pool_size, const PoolOptions<2>& options) {
  return pool("AveragePooling2D", pool_size, options);
}
Layer GlobalMaxPooling1D(const GlobalPoolOptions& options) {
  return global_pool("GlobalMaxPooling1D", options);
}
Layer GlobalMaxPooling2D(const GlobalPoolOptions& options) {
  return global_pool("GlobalMaxPooling2D", options);
}
Layer GlobalAveragePooling1D(const GlobalPoolOptions& options) {
  return global_pool("GlobalAveragePooling1D", options);
}
Layer GlobalAveragePooling2D(const GlobalPoolOptions& options) {
  return global_pool("GlobalAveragePooling2D", options);
}

Layer BatchNormalization(const BatchNormalizationOptions& options) {
  return layer("BatchNormalization", options,
               {{"axis", options.axis},
                {"momentum", options.momentum},
                {"epsilon", options.epsilon},
                {"center", options.center},
                {"scale", options.scale},
                {"beta_initializer", value(options.beta_initializer)},
                {"gamma_initializer", value(options.gamma_initializer)},
                {"moving_mean_initializer", value(options.moving_mean_initializer)},
                {"moving_variance_initializer", value(options.moving_variance_initializer)},
                {"beta_regularizer", value(options.beta_regularizer)},
                {"gamma_regularizer", value(options.gamma_regularizer)}});
}
Layer LayerNormalization(const LayerNormalizationOptions& options) {
  return layer("LayerNormalization", options,
               {{"axis", options.axis},
                {"epsilon", options.epsilon},
                {"center", options.center},
                {"scale", options.scale},
                {"beta_initializer", value(options.beta_initializer)},
                {"gamma_initializer", value(options.gamma_initializer)},
                {"beta_regularizer", value(options.beta_regularizer)},
                {"gamma_regularizer", value(options.gamma_regularizer)}});
}
Layer Dropout(double rate, const DropoutOptions& options) {
  return dropout("Dropout", rate, options);
}
Layer SpatialDropout1D(double rate, const RandomOptions& options) {
  return spatial_dropout("SpatialDropout1D", rate, options, json::object());
}
Layer SpatialDropout2D(double rate, const SpatialDropoutOptions& options) {
  return spatial_dropout("SpatialDropout2D", rate, options, json_object({{"data_format", options.data_format}}));
}
Layer SpatialDropout3D(double rate, const SpatialDropoutOptions& options) {
  return spatial_dropout("SpatialDropout3D", rate, options, json_object({{"data_format", options.data_format}}));
}
Layer GaussianNoise(double stddev, const RandomOptions& options) {
  return layer("GaussianNoise", options, {{"stddev", stddev}, {"seed", options.seed ? json(*options.seed) : json()}});
}
Layer GaussianDropout(double rate, const RandomOptions& options) {
  return layer("GaussianDropout", options, {{"rate", rate}, {"seed", options.seed ? json(*options.seed) : json()}});
}
Layer AlphaDropout(double rate, const DropoutOptions& options) {
  return dropout("AlphaDropout", rate, options);
}
Layer ActivityRegularization(const ActivityRegularizationOptions& options) {
  return layer("ActivityRegularization", options, {{"l1", options.l1}, {"l2", options.l2}});
}

Layer Flatten(const LayerOptions& options) {
  return image_layer("Flatten", options, json::object());
}
Layer Reshape(const std::vector<int64_t>& target_shape, const LayerOptions& options) {
  return layer("Reshape", options, {{"target_shape", target_shape}});
}
Layer ZeroPadding1D(const Margins1D& padding, const LayerOptions& options) {
  return layer("ZeroPadding1D", options, {{"padding", value(padding.sides())}});
}
Layer ZeroPadding2D(const Margins2D& padding, const LayerOptions& options) {
  return image_layer("ZeroPadding2D", options, json_object({{"padding", margins(padding)}}));
}
Layer Cropping1D(const Margins1D& cropping, const LayerOptions& options) {
  return layer("Cropping1D", options, {{"cropping", value(cropping.sides())}});
}
Layer Cropping2D(const Margins2D& cropping, const LayerOptions& options) {
  return image_layer("Cropping2D", options, json_object({{"cropping", margins(cropping)}}));
}
Layer UpSampling1D(Size<1> size, const LayerOptions& options) {
  return layer("UpSampling1D", options, {{"size", size.values()[0]}});
}
Layer UpSampling2D(Size<2> size, const UpSampling2DOptions& options) {
  return image_layer("UpSampling2D", options,
                     json_object({{"size", value(size)}, {"interpolation", options.interpolation}}));
}
Layer Rescaling(double scale, double offset, const LayerOptions& options) {
  return layer("Rescaling", options, {{"scale", scale}, {"offset", offset}});
}
Layer Masking(double mask_value, const LayerOptions& options) {
  return layer("Masking", options, {{"mask_value", mask_value}});
}
Layer Embedding(int64_t input_dim, int64_t output_dim, const EmbeddingOptions& options) {
  return layer("Embedding", options,
               {{"input_dim", input_dim},
                {"output_dim", output_dim},
                {"embeddings_initializer", value(options.embeddings_initializer)},
                {"embeddings_regularizer", value(options.embeddings_regularizer)},
                {"mask_zero", options.mask_zero}});
}
Layer MultiHeadAttention(int64_t num_heads, int64_t key_dim, const MultiHeadAttentionOptions& options) {
  return attention("MultiHeadAttention", options, true,
                   {{"num_heads", num_heads},
                    {"key_dim", key_dim},
                    {"value_dim", options.value_dim > 0 ? options.value_dim : key_dim},
                    {"dropout", options.dropout},
                    {"use_bias", options.use_bias},
                    {"output_shape", options.output_shape.empty() ? json() : json(options.output_shape)},
                    {"attention_axes", options.attention_axes.empty() ? json() : json(options.attention_axes)},
                    {"kernel_initializer", value(options.kernel_initializer)},
                    {"bias_initializer", value(options.bias_initializer)},
                    {"kernel_regularizer", value(options.kernel_regularizer)},
                    {"bias_regularizer", value(options.bias_regularizer)}});
}
Layer GroupQueryAttention(int64_t head_dim, int64_t num_query_heads, int64_t num_key_value_heads,
                          const GroupQueryAttentionOptions& options) {
  return attention("GroupQueryAttention", options, true,
                   {{"head_dim", head_dim},
                    {"num_query_heads", num_query_heads},
                    {"num_key_value_heads", num_key_value_heads},
                    {"dropout", options.dropout},
                    {"use_bias", options.use_bias},
                    {"kernel_initializer", value(options.kernel_initializer)},
                    {"bias_initializer", value(options.bias_initializer)}});
}
Layer Attention(const AttentionOptions& options) {
  return attention(
      "Attention", options, false,
      {{"use_scale", options.use_scale}, {"score_mode", options.score_mode}, {"dropout", options.dropout}});
}
Layer AdditiveAttention(const AdditiveAttentionOptions& options) {
  return attention("AdditiveAttention", options, false,
                   {{"use_scale", options.use_scale}, {"dropout", options.dropout}});
}

Layer Add(const LayerOptions& options) {
  return layer("Add", options, {});
}
Layer Subtract(const LayerOptions& options) {
  return layer("Subtract", options, {});
}
Layer Average(const LayerOptions& options) {
  return layer("Average", options, {});
}
Layer Maximum(const LayerOptions& options) {
  return layer("Maximum", options, {});
}
Layer Minimum(const LayerOptions& options) {
  return layer("Minimum", options, {});
}
Layer Dot(const std::vector<int64_t>& axes, const DotOptions& options) {
  return layer("Dot", options,
               {{"axes", axes.size() == 1 ? json(axes[0]) : json(axes)}, {"normalize", options.normalize}});
}
Layer Multiply(const LayerOptions& options) {
  return layer("Multiply", options, {});
}
Layer Concatenate(const ConcatenateOptions& options) {
  return layer("Concatenate", options, {{"axis", options.axis}});
}

}  // namespace layers
}  // namespace plimsoll
