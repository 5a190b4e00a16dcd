// Pooling and convolutions as operations. Each runs the layer that computes the same, with kernels that are constants
// of the file instead of weights.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "model/operation.h"
#include "ops/build.h"

namespace plimsoll::engine {
namespace {

// The spatial dimensions of a tensor, as far as the file says.
std::optional<size_t> spatial_rank(OpReader& r, const OpArgument& x) {
  const size_t dims = x.tensor ? r.arguments.call().tensors[*x.tensor].dims.size() : 0;
  if (dims >= 3 && dims <= 5) return dims - 2;
  r.refuse("an input that is not a tensor with 1 to 3 spatial dimensions");
  return std::nullopt;
}

// Copies keys of the operation's configuration to that of a layer.
void copy(OpReader& r, Json& config, std::initializer_list<const char*> keys) {
  for (const char* key : keys)
    if (const Json* value = r.config.value(key)) config[key] = *value;
}

OpBody run_layer(OpReader& r, const std::string& class_name, const Json& config, const OpArgument& x,
                 std::vector<OpArgument> kernels) {
  const LayerParser parse = find_layer(class_name);
  if (!parse) {
    r.refuse(fmt::format("the layer {} is not supported", class_name));
    return nullptr;
  }
  Config own(config, r.config.where(), r.config.issues());
  const Layer layer = parse(own);
  own.finish();
  if (!layer.shape || !layer.build) return nullptr;
  return [=](OpWriter& w) -> Operands {
    const Operand in = w.floats(x.get(w));
    std::vector<int64_t> dims = w.dims(in);
    const int64_t batch = dims[0];
    dims.erase(dims.begin());
    const Shape sample(std::move(dims));
    Issues issues;
    const auto shape = layer.shape({&sample, 1}, issues);
    for (const std::string& one : issues.unsupported) w.refuse(one);
    if (!shape) w.fail(shape.error().what);
    if (w.failed()) return {in};
    std::vector<ValueId> weights;
    for (size_t i = 0; i < kernels.size(); ++i) {
      const Operand kernel = w.floats(kernels[i].get(w), w.dtype(in));
      if (kernel.batched || i >= shape->weights.size() || w.dims(kernel) != shape->weights[i].shape.dims) {
        w.fail(fmt::format("a kernel [{}] for an input [{}]", fmt::join(w.dims(kernel), ","), to_text(sample)));
        return {in};
      }
      weights.push_back(kernel.id);
    }
    const ValueId unmasked = kNone;
    std::map<ValueId, ValueId> statistics;
    const BuildCall call{w.call().b, batch,         w.dtype(in), w.call().training,
                         false,      w.call().call, {&in.id, 1}, {&unmasked, 1},
                         weights,    *shape,        statistics,  w.call().compute};
    return {OpWriter::value(layer.build(call).outputs[0])};
  };
}

OpBody pool(OpReader& r, const char* layer) {
  const OpArgument x = r.operand("inputs", 0);
  const auto rank = spatial_rank(r, x);
  Json config = Json::object();
  copy(r, config, {"pool_size", "strides", "padding", "data_format"});
  return rank ? run_layer(r, fmt::format("{}{}D", layer, *rank), config, x, {}) : nullptr;
}

OpBody adaptive_pool(OpReader& r, const char* layer) {
  const OpArgument x = r.operand("inputs", 0);
  const auto rank = spatial_rank(r, x);
  Json config = Json::object();
  copy(r, config, {"output_size", "data_format"});
  return rank ? run_layer(r, fmt::format("{}{}D", layer, *rank), config, x, {}) : nullptr;
}

// The kernel's dimensions: the spatial ones, then channels.
std::optional<std::vector<int64_t>> kernel_dims(OpReader& r, const OpArgument& kernel, size_t rank) {
  if (!kernel.tensor && kernel.constant.shape.rank() == rank + 2) return kernel.constant.shape.dims;
  r.refuse("a kernel that is not a constant of the file");
  return std::nullopt;
}

Json convolution_config(OpReader& r, const std::vector<int64_t>& kernel) {
  Json config = Json::object();
  copy(r, config, {"strides", "padding", "data_format", "dilation_rate"});
  config["kernel_size"] = std::vector<int64_t>(kernel.begin(), kernel.end() - 2);
  config["use_bias"] = false;
  return config;
}

OpBody convolution(OpReader& r) {
  const OpArgument x = r.operand("inputs", 0), kernel = r.operand("kernel", 1);
  const auto rank = spatial_rank(r, x);
  const auto dims = rank ? kernel_dims(r, kernel, *rank) : std::nullopt;
  if (!dims) return nullptr;
  Json config = convolution_config(r, *dims);
  config["filters"] = dims->back();
  const bool first = r.config.text("data_format", "channels_last") == "channels_first";
  const auto& given = r.arguments.call().tensors[*x.tensor].dims;
  const auto channels = first ? given[1] : given.back();
  const int64_t per_group = (*dims)[*rank];
  config["groups"] = channels && *channels % per_group == 0 ? *channels / per_group : 1;
  return run_layer(r, fmt::format("Conv{}D", *rank), config, x, {kernel});
}

OpBody depthwise(OpReader& r) {
  const OpArgument x = r.operand("inputs", 0), kernel = r.operand("kernel", 1);
  const auto rank = spatial_rank(r, x);
  const auto dims = rank ? kernel_dims(r, kernel, *rank) : std::nullopt;
  if (!dims) return nullptr;
  Json config = convolution_config(r, *dims);
  config["depth_multiplier"] = dims->back();
  return run_layer(r, fmt::format("DepthwiseConv{}D", *rank), config, x, {kernel});
}

OpBody separable(OpReader& r) {
  const OpArgument x = r.operand("inputs", 0), depth = r.operand("depthwise_kernel", 1),
                   point = r.operand("pointwise_kernel", 2);
  const auto rank = spatial_rank(r, x);
  const auto dims = rank ? kernel_dims(r, depth, *rank) : std::nullopt;
  const auto point_dims = dims ? kernel_dims(r, point, *rank) : std::nullopt;
  if (!point_dims) return nullptr;
  Json config = convolution_config(r, *dims);
  config["depth_multiplier"] = dims->back();
  config["filters"] = point_dims->back();
  return run_layer(r, fmt::format("SeparableConv{}D", *rank), config, x, {depth, point});
}

std::vector<float> bell(int64_t size, double sigma) {
  std::vector<float> values;
  float sum = 0;
  for (int64_t i = 0; i < size; ++i) {
    const float x = (static_cast<float>(i) - static_cast<float>(size - 1) / 2) / static_cast<float>(sigma);
    values.push_back(std::exp(-0.5F * x * x));
    sum += values.back();
  }
  for (float& value : values) value /= sum;
  return values;
}

// Each channel is convolved with the same kernel.
OpBody gaussian_blur(OpReader& r) {
  const OpArgument x = r.operand("images", 0);
  const auto size = r.axes("kernel_size");
  const Json* given = r.config.value("sigma");
  std::vector<double> sigma;
  for (const Json& one : given && given->is_array() ? *given : Json::array())
    sigma.push_back(as_number(one).value_or(0));
  const bool first = r.config.text("data_format", "channels_last") == "channels_first";
  const auto dims = x.tensor ? r.arguments.call().tensors[*x.tensor].dims : std::vector<std::optional<int64_t>>();
  const auto channels = dims.size() != 4 ? std::nullopt : first ? dims[1] : dims[3];
  constexpr int64_t kMost = 1024;
  if (!channels || !size || size->size() != 2 || sigma.size() != 2 || !(std::min(sigma[0], sigma[1]) > 0) ||
      std::min((*size)[0], (*size)[1]) < 1 || std::max((*size)[0], (*size)[1]) > kMost || *channels < 1 ||
      *channels > kMost || (*size)[0] * (*size)[1] * *channels > kMostConstants) {
    r.refuse("an input that is not a batch of images, or a kernel_size or sigma that is not two positive numbers");
    return nullptr;
  }
  const std::vector<float> across = bell((*size)[0], sigma[0]), down = bell((*size)[1], sigma[1]);
  OpArgument kernel;
  kernel.constant.shape = Shape{(*size)[0], (*size)[1], *channels, 1};
  for (const float a : down)
    for (const float b : across)
      kernel.constant.values.insert(kernel.constant.values.end(), static_cast<size_t>(*channels), a * b);
  Json config{{"kernel_size", *size}, {"padding", "same"}, {"use_bias", false}};
  copy(r, config, {"data_format"});
  return run_layer(r, "DepthwiseConv2D", config, x, {kernel});
}

OpBody resize(OpReader& r) {
  const OpArgument x = r.operand("images", 0);
  const auto size = r.axes("size");
  const auto& tensors = r.arguments.call().tensors;
  if (!size || size->size() != 2) r.reject("'size' must be two numbers");
  if (x.tensor && tensors[*x.tensor].dims.size() != 4) r.refuse("an image whose first dimension is not the batch");
  if (x.tensor && !tensors[*x.tensor].dtype.starts_with("float")) r.refuse("images of integers: cast them to floats");
  Json config = Json::object();
  copy(r, config,
       {"interpolation", "antialias", "crop_to_aspect_ratio", "pad_to_aspect_ratio", "fill_mode", "fill_value",
        "data_format"});
  config["height"] = size && size->size() == 2 ? (*size)[0] : 1;
  config["width"] = size && size->size() == 2 ? (*size)[1] : 1;
  return run_layer(r, "Resizing", config, x, {});
}

constexpr std::array kOperations = {
    OpClass{"MaxPool", [](OpReader& r) { return pool(r, "MaxPooling"); }},
    OpClass{"AveragePool", [](OpReader& r) { return pool(r, "AveragePooling"); }},
    OpClass{"AdaptiveMaxPool", [](OpReader& r) { return adaptive_pool(r, "AdaptiveMaxPooling"); }},
    OpClass{"AdaptiveAveragePool", [](OpReader& r) { return adaptive_pool(r, "AdaptiveAveragePooling"); }},
    OpClass{"Conv", convolution},
    OpClass{"DepthwiseConv", depthwise},
    OpClass{"SeparableConv", separable},
    OpClass{"GaussianBlur", gaussian_blur},
    OpClass{"Resize", resize},
};

}  // namespace

std::span<const OpClass> window_operations() {
  return kOperations;
}

}  // namespace plimsoll::engine
