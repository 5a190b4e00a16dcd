// Reads an operation from a file, and makes a layer of it.
#include <fmt/format.h>

#include <array>

#include "model/operation.h"
#include "ops/build.h"

namespace plimsoll::engine {

void OpReader::refuse(const std::string& what) {
  config.issues().unknown(fmt::format("{}: {}", config.where(), what));
}

void OpReader::reject(const std::string& what) {
  config.issues().reject(fmt::format("{}: {}", config.where(), what));
}

std::optional<OpArgument> OpReader::optional_operand(const std::string& name, size_t position) {
  const Json* value = arguments.value(name, position);
  if (!value) return std::nullopt;
  OpArgument made;
  made.tensor = arguments.tensor(*value);
  if (made.tensor) return made;
  const auto constant = read_constant(*value);
  if (constant) {
    made.constant = *constant;
    return made;
  }
  refuse(fmt::format("called with {}={}", name, arguments.shown(*value)));
  return std::nullopt;
}

OpArgument OpReader::operand(const std::string& name, size_t position) {
  const Json* value = arguments.value(name, position);
  if (auto made = optional_operand(name, position)) return *made;
  if (!value) reject(fmt::format("its call has no argument '{}'", name));
  OpArgument none;
  none.constant.values = {0};
  return none;
}

std::vector<OpArgument> OpReader::operands(const std::string& name, size_t position) {
  std::vector<OpArgument> list;
  const Json* value = arguments.value(name, position);
  if (!value || !value->is_array() || value->empty()) {
    reject(fmt::format("its argument '{}' must be a list of tensors", name));
    return list;
  }
  for (const Json& one : *value) {
    OpArgument made;
    made.tensor = arguments.tensor(one);
    if (!made.tensor) {
      const auto constant = read_constant(one);
      if (!constant) {
        refuse(fmt::format("called with {}={}", name, arguments.shown(one)));
        return {};
      }
      made.constant = *constant;
    }
    list.push_back(std::move(made));
  }
  return list;
}

std::optional<std::vector<int64_t>> OpReader::integers(const Json* value, const std::string& key) {
  if (!value) return std::nullopt;
  std::vector<int64_t> list;
  bool good = true;
  constexpr int64_t kMost = int64_t{1} << 31;
  const auto read = [&](const Json& one) {
    const auto n = as_integer(one);
    good = good && n && *n >= -kMost && *n <= kMost;
    list.push_back(n.value_or(0));
  };
  if (value->is_array())
    for (const Json& one : *value) read(one);
  else
    read(*value);
  if (good) return list;
  reject(fmt::format("'{}' must be an integer or a list of integers, got {}", key, shown(*value)));
  return std::nullopt;
}

std::optional<std::vector<int64_t>> OpReader::axes(const std::string& key) {
  return integers(config.value(key), key);
}

std::optional<TensorKind> OpReader::kind(const std::string& key) {
  const Json* value = config.value(key);
  if (!value) return std::nullopt;
  const std::string name = value->is_string() ? value->get<std::string>() : "";
  return kind_of_name(name.empty() ? shown(*value) : name);
}

std::optional<TensorKind> OpReader::kind_of_name(const std::string& name) {
  if (name == "float32" || name == "float") return TensorKind::kFloat;
  if (name == "float16" || name == "bfloat16") {
    half_cast = name;
    return TensorKind::kFloat;
  }
  if (name == "bool") return TensorKind::kTruth;
  if (name == "int32" || name == "int64" || name == "int") return TensorKind::kInteger;
  refuse(
      fmt::format("dtype={}: between operations, tensors are float32, the dtype of the file's mixed policy, int32, "
                  "int64 or bool",
                  name));
  return std::nullopt;
}

namespace {

// The number of samples in the scratch graph that shapes are computed with. Any would do: no operation looks at it.
constexpr int64_t kScratchBatch = 3;

Result<LayerShape> shape_of(const OpBody& body, std::span<const TensorSpec> in, size_t outputs, bool makes_batch,
                            const std::string& where, Issues& issues) {
  GraphBuilder b = make_builder();
  LayerShape shape;
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < in.size(); ++i) {
    shape.reads.push_back(in[i].kind);
    shape.reads_shared.push_back(in[i].shared);
    const DType dtype = in[i].kind == TensorKind::kInteger ? DType::kInt32 : DType::kFloat32;
    const Shape whole = in[i].shared ? in[i].sample : with_batch(kScratchBatch, in[i].sample);
    inputs.push_back(b.input(fmt::format("x{}", i), {dtype, whole}, Category::kActivations, false));
  }
  std::map<ValueId, ValueId> statistics;
  const BuildCall call{b, kScratchBatch, DType::kFloat32, true, true, 0, inputs, {}, {}, shape, statistics};
  OpWriter writer(call, where, &issues);
  const Operands made = body(writer);
  if (writer.error()) return tl::make_unexpected(*writer.error());
  if (writer.failed()) {  // listed as unsupported: any shape will do
    shape.outputs.assign(outputs, in.empty() ? Shape{} : in[0].sample);
    return shape;
  }
  if (!b.status()) {
    Error error = b.status().error();
    error.what = fmt::format("{}: {}", where, error.what);
    return tl::make_unexpected(std::move(error));
  }
  const bool shared = !writer.has_batch() && !makes_batch;
  for (const Operand& one : made) {
    std::vector<int64_t> dims = writer.dims(one);
    if (one.id == kNone || (!shared && (!one.batched || dims.empty() || dims[0] != kScratchBatch)))
      return fail(ErrorCode::kBadGeometry, fmt::format("{}: its result has no batch", where));
    if (!shared)
      dims.erase(dims.begin());
    else if (dims.empty())
      dims = {1};  // with_dimension
    PLIMSOLL_ASSIGN(Shape sample, checked_shape(std::move(dims), where));
    shape.outputs.push_back(std::move(sample));
    shape.kinds.push_back(one.kind);
    shape.shared.push_back(shared);
  }
  return shape;
}

}  // namespace

// Every tensor between layers has a dimension. One number that all samples share is a list of one: it broadcasts alike.
ValueId with_dimension(GraphBuilder& b, ValueId value) {
  if (b.graph().type(value).shape.rank() > 0) return value;
  return b.add1("reshape", {value}, {{"shape", std::vector<int64_t>{1}}});
}

Layer operation_layer(Config& config, const std::function<OpBody(OpReader&)>& parse) {
  OpReader reader(config);
  const OpBody body = parse(reader);
  Layer layer;
  layer.outputs = reader.outputs;
  if (!body) return layer;  // listed as unsupported
  reader.arguments.finish();
  layer.most_inputs = reader.arguments.call().tensors.size();
  layer.least_inputs = layer.most_inputs;
  layer.takes_integers = true;
  layer.half_cast = reader.half_cast;
  const std::string where = config.where();
  layer.typed_shape = [=, outputs = reader.outputs, makes_batch = reader.makes_batch](std::span<const TensorSpec> in,
                                                                                      Issues& issues) {
    return shape_of(body, in, outputs, makes_batch, where, issues);
  };
  layer.build = [=](const BuildCall& call) {
    OpWriter writer(call, where, nullptr);
    std::vector<ValueId> values;
    for (const Operand& one : body(writer)) values.push_back(with_dimension(call.b, one.id));
    return LayerValues(std::move(values));
  };
  return layer;
}

}  // namespace plimsoll::engine
