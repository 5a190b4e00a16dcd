// EinsumDense: an Einstein sum of the input and a kernel, a bias on some axes, and an activation.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "model/einsum.h"
#include "model/layers_shape.h"
#include "ops/build.h"

namespace plimsoll::engine {
namespace {

// The parts of an equation: [X],[Y]->[Z], ...[X],[Y]->...[Z] or [X]...,[Y]->[Z]... (keras/src/layers/core/
// einsum_dense.py, _analyze_einsum_string).
struct Parts {
  std::string input, kernel, output;
  enum class Dots { kNone, kLeft, kRight } dots = Dots::kNone;
};

bool is_letters(const std::string& text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); });
}

std::optional<Parts> parts_of(const std::string& equation) {
  const size_t comma = equation.find(','), arrow = equation.find("->");
  if (comma == std::string::npos || arrow == std::string::npos || arrow < comma) return std::nullopt;
  Parts parts{equation.substr(0, comma), equation.substr(comma + 1, arrow - comma - 1), equation.substr(arrow + 2)};
  const auto cut = [](std::string& text, bool left) {
    if (text.size() < 3 || (left ? text.substr(0, 3) : text.substr(text.size() - 3)) != "...") return false;
    text.erase(left ? 0 : text.size() - 3, 3);
    return true;
  };
  if (cut(parts.input, true) && cut(parts.output, true))
    parts.dots = Parts::Dots::kLeft;
  else if (cut(parts.input, false) && cut(parts.output, false))
    parts.dots = Parts::Dots::kRight;
  if (!is_letters(parts.input) || !is_letters(parts.kernel) || !is_letters(parts.output)) return std::nullopt;
  return parts;
}

// The shapes that follow from an input. Sizes of the batch are -1.
struct EinsumShapes {
  std::vector<int64_t> kernel, bias, output;
  std::vector<int64_t> input_axes, output_axes;  // of the kernel, for its initializer
};

// _analyze_split_string. `partial` is the output shape of the configuration: 0 where it is left open.
Result<EinsumShapes> shapes_of(const Parts& parts, const std::vector<int64_t>& partial, const std::string& bias_axes,
                               const Shape& sample, const std::string& where) {
  const auto wrong = [&](const std::string& why) {
    return fail(ErrorCode::kBadGeometry, fmt::format("{}: {}", where, why));
  };
  std::vector<int64_t> input = {-1};
  input.insert(input.end(), sample.dims.begin(), sample.dims.end());
  if (parts.input.size() > input.size() || (parts.dots == Parts::Dots::kNone && parts.input.size() != input.size()))
    return wrong(fmt::format("the equation has {} dimensions, but the input is [batch,{}]", parts.input.size(),
                             to_text(sample)));
  const size_t hidden = input.size() - parts.input.size();
  const bool left = parts.dots == Parts::Dots::kLeft;
  EinsumShapes shapes;
  shapes.output = {-1};
  shapes.output.insert(shapes.output.end(), partial.begin(), partial.end());
  if (left) {
    for (size_t i = 1; i < hidden; ++i) shapes.output.insert(shapes.output.begin() + static_cast<int64_t>(i), input[i]);
  } else {
    shapes.output.insert(shapes.output.end(), input.end() - static_cast<int64_t>(hidden), input.end());
  }
  if (shapes.output.size() != parts.output.size() + hidden)
    return wrong(fmt::format("output_shape has {} dimensions, but the equation gives {}", partial.size(),
                             parts.output.size() + hidden - 1));
  std::map<char, int64_t> sizes;
  for (size_t i = 0; i < parts.input.size(); ++i) sizes.emplace(parts.input[i], input[i + (left ? hidden : 0)]);
  for (size_t i = 0; i < parts.output.size(); ++i) {
    int64_t& size = shapes.output[i + (left ? hidden : 0)];
    const auto known = sizes.find(parts.output[i]);
    if (known != sizes.end() && size == 0) size = known->second;
    if (known != sizes.end() && size != known->second)
      return wrong(fmt::format("dimension '{}' has {} elements in the input and {} in the output", parts.output[i],
                               known->second, size));
    if (size == 0) return wrong(fmt::format("output_shape leaves the size of '{}' open", parts.output[i]));
    sizes.emplace(parts.output[i], size);
  }
  for (size_t i = 0; i < parts.kernel.size(); ++i) {
    const auto known = sizes.find(parts.kernel[i]);
    if (known == sizes.end() || known->second < 1)
      return wrong(
          fmt::format("dimension '{}' of the kernel is neither one of the input nor of the output", parts.kernel[i]));
    shapes.kernel.push_back(known->second);
    const bool out = parts.output.find(parts.kernel[i]) != std::string::npos;
    (out ? shapes.output_axes : shapes.input_axes).push_back(static_cast<int64_t>(i));
  }
  if (bias_axes.empty()) return shapes;
  size_t begin = parts.output.size();
  for (char axis : bias_axes) {
    const size_t at = parts.output.find(axis);
    if (at == std::string::npos || sizes.at(axis) < 1)
      return wrong(fmt::format("bias dimension '{}' is not one of the output", axis));
    begin = std::min(begin, at);
  }
  for (size_t i = begin; i < parts.output.size(); ++i)
    shapes.bias.push_back(bias_axes.find(parts.output[i]) != std::string::npos ? sizes.at(parts.output[i]) : 1);
  if (!left) shapes.bias.insert(shapes.bias.end(), hidden, 1);
  return shapes;
}

// Keras counts the fans of this kernel by the axes of the equation.
Json with_axes(const Json& initializer, const EinsumShapes& shapes) {
  KerasObject object = keras_object(initializer);
  const Json* given = member(object.config, "input_axes");
  const bool has_axes = given != nullptr && !given->is_null();
  if (object.name.empty() || object.custom || has_axes || !object.config.is_object()) return initializer;
  object.config["input_axes"] = shapes.input_axes;
  object.config["output_axes"] = shapes.output_axes;
  return Json{{"class_name", object.name}, {"config", object.config}};
}

// Adds a bias. A vector for the last dimension is added before the reshape that ends the sum, where it becomes part of
// the matrix product.
ValueId add_bias(const BuildCall& call, ValueId x, ValueId bias) {
  const Graph& graph = call.b.graph();
  if (call.shape(bias).rank() != 1) return add_broadcast(call.b, "add", x, bias);
  const NodeId producer = graph.value(x).producer;
  if (producer != kNone && graph.node(producer).op == "reshape") {
    const ValueId before = graph.node(producer).inputs[0];
    if (call.shape(before).back() == call.shape(x).back()) {
      const std::vector<int64_t> dims = call.shape(x).dims;
      return call.add("reshape", {call.add("bias_add", {before, bias})}, {{"shape", dims}});
    }
  }
  return call.add("bias_add", {x, bias});
}

Layer einsum_dense(Config& c) {
  const std::string equation = c.text("equation", "");
  const std::string bias_axes = c.text("bias_axes", "");
  std::vector<int64_t> partial;
  const Json* value = c.value("output_shape");
  bool good = value != nullptr && (value->is_array() || value->is_number_integer());
  const auto read = [&](const Json& one) {
    const auto n = one.is_null() ? std::optional<int64_t>(0) : as_integer(one);
    good = good && n && (one.is_null() || *n > 0) && *n <= kMostElements;
    partial.push_back(n.value_or(0));
  };
  if (good && value->is_array())
    for (const Json& one : *value) read(one);
  else if (good)
    read(*value);
  if (!good)
    c.issues().reject(
        fmt::format("{}: 'output_shape' must be sizes, got {}", c.where(), value ? shown(*value) : "nothing"));
  const WeightConfig kernel = read_weight(c, "kernel", "glorot_uniform");
  const WeightConfig bias = read_weight(c, "bias", "zeros");
  const Activation activation = read_activation(c, "activation");
  for (const char* key : {"quantization_config", "lora_rank", "lora_alpha", "gptq_unpacked_column_size"}) c.only(key);
  const std::string where = c.where();
  const auto parts = parts_of(equation);
  if (!parts)
    c.issues().reject(
        fmt::format("{}: the equation '{}' must have the form [X],[Y]->[Z], ...[X],[Y]->...[Z] or [X]...,[Y]->[Z]...",
                    where, equation));
  else if (parts->output[0] != parts->input[0] && parts->dots != Parts::Dots::kLeft)
    c.issues().unknown(fmt::format("{}: the equation '{}', which moves the batch", where, equation));
  Layer layer;
  layer.shape = [=](std::span<const Shape> in, Issues&) -> Result<LayerShape> {
    if (!parts) return LayerShape(in[0]);
    PLIMSOLL_ASSIGN(const EinsumShapes shapes, shapes_of(*parts, partial, bias_axes, in[0], where));
    PLIMSOLL_ASSIGN(LayerShape shape, checked_shape({shapes.output.begin() + 1, shapes.output.end()}, where));
    PLIMSOLL_ASSIGN(Shape dims, checked_shape(shapes.kernel, where + ": kernel"));
    WeightConfig with = kernel;
    with.initializer = with_axes(kernel.initializer, shapes);
    shape.weights.push_back(with.spec("kernel", std::move(dims)));
    if (!bias_axes.empty()) shape.weights.push_back(bias.spec("bias", Shape(shapes.bias)));
    const size_t ranks[] = {in[0].rank() + 1, shapes.kernel.size()};
    if (auto labels = read_einsum(equation, ranks, where); !labels) return tl::make_unexpected(labels.error());
    return shape;
  };
  layer.build = [=](const BuildCall& call) {
    const size_t ranks[] = {call.shape(call.in()).rank(), call.shape(call.weights[0]).rank()};
    const auto labels = read_einsum(equation, ranks, where);  // layer.shape has checked it
    ValueId x = einsum(call.b, *labels, {call.in(), call.weights[0]});
    if (!bias_axes.empty()) x = add_bias(call, x, call.weights[1]);
    return activation(call, x);
  };
  return layer;
}

constexpr std::array kLayers = {LayerClass{"EinsumDense", einsum_dense}};

}  // namespace

std::span<const LayerClass> einsum_layers() {
  return kLayers;
}

}  // namespace plimsoll::engine
