// What the Python package makes of layers that are written in Python, beside known layers and operations of keras.ops:
// their weights, random numbers, results that differ between training and inference, and rows that all samples share.
#include <fmt/format.h>

#include <array>

#include "model/operation.h"
#include "model/random_numbers.h"
#include "ops/build.h"

namespace plimsoll::engine {
namespace {

constexpr size_t kMostWeights = 4096;

std::optional<Shape> read_shape(Config& c, const std::string& key) {
  const Json* value = c.value(key);
  std::vector<int64_t> dims;
  bool good = value && value->is_array();
  for (size_t i = 0; good && i < value->size(); ++i) {
    const auto n = as_integer((*value)[i]);
    good = n && *n > 0;
    dims.push_back(n.value_or(1));
  }
  if (good)
    if (auto shape = checked_shape(std::move(dims), c.where())) return *shape;
  c.issues().reject(fmt::format("{}: '{}' must be a list of positive sizes, got {}", c.where(), key,
                                value ? shown(*value) : "nothing"));
  return std::nullopt;
}

std::optional<WeightSpec> read_traced_weight(const Json& object, const std::string& where, Issues& issues) {
  const Json none = Json::object();
  Config c(object.is_object() ? object : none, where, issues);
  const std::string name = c.text("name", "");
  const auto shape = read_shape(c, "shape");
  if (name.empty()) issues.reject(fmt::format("{}: a weight needs a name", where));
  const WeightConfig config = read_weight(c, "value", "zeros");
  const bool frozen = !c.flag("trainable", true);
  c.finish();
  if (name.empty() || !shape) return std::nullopt;
  WeightSpec spec = config.spec(name, *shape);
  spec.frozen = frozen;
  return spec;
}

// Zero inputs; the numbers of one sample have the shape that the configuration gives.
OpBody random(OpReader& r, const char* op) {
  const Shape sample = read_shape(r.config, "shape").value_or(Shape{});
  const double scale = r.config.real("scale", 1), offset = r.config.real("offset", 0);
  r.makes_batch = true;
  return [=](OpWriter& w) -> Operands {
    const BuildCall& call = w.call();
    const ValueId numbers = random_numbers(call, op, with_batch(call.batch, sample).dims, call.precision);
    const Operand made = OpWriter::value(numbers);
    return {scale == 1 && offset == 0 ? made : w.affine(made, scale, offset)};
  };
}

// What a call returned in training, and what it returned otherwise.
OpBody by_phase(OpReader& r) {
  const OpArgument training = r.operand("training", 0), inference = r.operand("inference", 1);
  return [=](OpWriter& w) -> Operands {
    const Operand a = training.get(w), b = inference.get(w);
    if (w.dims(a) != w.dims(b) || a.kind != b.kind)
      w.fail(fmt::format("[{}] in training, but [{}] otherwise", fmt::join(w.dims(a), ","), fmt::join(w.dims(b), ",")));
    return {w.call().training ? a : b};
  };
}

// A constant or a function of weights [1, ...], repeated for each sample.
OpBody rows(OpReader& r) {
  const OpArgument x = r.operand("x", 0);
  r.makes_batch = true;
  return [=](OpWriter& w) -> Operands {
    Operand in = x.get(w);
    std::vector<int64_t> to = w.dims(in);
    if (in.batched && in.id != kNone && x.tensor) w.fail("its input has a batch already");
    if (to.empty() || to[0] != 1) w.fail("its input must have a first dimension of 1");
    if (w.failed()) return {in};
    to[0] = w.call().batch;
    Operand made = w.broadcast(in, to);
    made.batched = true;
    return {made};
  };
}

constexpr std::array kOperations = {
    OpClass{"RandomNormal", [](OpReader& r) { return random(r, "random_normal"); }},
    OpClass{"RandomUniform", [](OpReader& r) { return random(r, "random_uniform"); }},
    OpClass{"ByPhase", by_phase},
    OpClass{"Rows", rows},
};

}  // namespace

std::span<const OpClass> traced_operations() {
  return kOperations;
}

Layer traced_weights(Config& c) {
  Layer layer;
  layer.least_inputs = layer.most_inputs = 0;
  const Json* list = c.value("weights");
  std::vector<WeightSpec> specs;
  if (!list || !list->is_array() || list->empty() || list->size() > kMostWeights)
    c.issues().reject(fmt::format("{}: 'weights' must be a list of at most {} weights", c.where(), kMostWeights));
  else
    for (const Json& one : *list)
      if (auto spec = read_traced_weight(one, c.where(), c.issues())) specs.push_back(std::move(*spec));
  layer.outputs = specs.size();
  const auto shape = [specs](auto, Issues&) -> Result<LayerShape> {
    LayerShape made;
    made.weights = specs;
    for (const WeightSpec& spec : specs) made.outputs.push_back(spec.shape.rank() == 0 ? Shape{1} : spec.shape);
    made.shared.assign(specs.size(), true);
    return made;
  };
  layer.shape = [shape](std::span<const Shape>, Issues& issues) { return shape(0, issues); };
  layer.build = [](const BuildCall& call) {
    std::vector<ValueId> values;
    for (ValueId weight : call.weights) values.push_back(with_dimension(call.b, weight));
    return LayerValues(std::move(values));
  };
  return layer;
}

std::function<Layer(Config&)> find_traced(std::string_view class_name) {
  for (const OpClass& entry : traced_operations())
    if (entry.name == class_name) return [parse = entry.parse](Config& c) { return operation_layer(c, parse); };
  return nullptr;
}

}  // namespace plimsoll::engine
