#include "shrink/lite/convert.h"

#include <fmt/format.h>

#include <cstring>

#include "model/values.h"
#include "ops/op.h"
#include "shrink/lite/converter.h"

namespace plimsoll::engine::lite {
namespace {

// Nodes whose results do not depend on the elements of their inputs.
bool reads_shapes_alone(const Node& node) {
  return node.op == "fill" || node.op == "constant" || node.op == "iota" || node.op == "full_like";
}

ConvertNode find_conversion(const std::string& op) {
  for (const auto list : {window_conversions(), elementwise_conversions(), movement_conversions(),
                          attention_conversions(), recurrent_conversions()})
    for (const NodeConversion& one : list)
      if (one.op == op) return one.convert;
  return nullptr;
}

template <typename From, typename To>
void copy_elements(const void* from, void* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) static_cast<To*>(to)[i] = static_cast<To>(static_cast<const From*>(from)[i]);
}

}  // namespace

std::vector<int32_t> dims_of(const Shape& shape) {
  return {shape.dims.begin(), shape.dims.end()};
}

void Converter::refuse(const std::string& what) {
  refused_.insert(layer_.empty() ? what : fmt::format("{}: {}", layer_, what));
}

std::vector<float> Converter::floats(ValueId value) const {
  const Constant& constant = constants_.at(value);
  std::vector<float> made(static_cast<size_t>(constant.type.shape.elements()));
  const auto n = static_cast<int64_t>(made.size());
  if (constant.type.dtype == DType::kInt32)
    copy_elements<int32_t, float>(constant.data.data(), made.data(), n);
  else
    std::memcpy(made.data(), constant.data.data(), constant.data.size());
  return made;
}

int32_t Converter::add_tensor(const std::vector<int32_t>& shape, Type type) {
  Tensor made;
  made.name = fmt::format("{}{}{}", layer_, layer_.empty() ? "t" : "/", made_++);
  made.shape = shape;
  made.type = type;
  made.layer = layer_;
  lite_.tensors.push_back(std::move(made));
  return static_cast<int32_t>(lite_.tensors.size()) - 1;
}

int32_t Converter::add_constant(const std::vector<int32_t>& shape, std::vector<float> values, const std::string& name) {
  const int32_t made = add_tensor(shape);
  Tensor& tensor = lite_.tensor(made);
  tensor.name = fmt::format("{}/{}", tensor.name, name);
  tensor.data.resize(values.size() * sizeof(float));
  std::memcpy(tensor.data.data(), values.data(), tensor.data.size());
  return made;
}

int32_t Converter::add_integers(const std::vector<int32_t>& values, const std::string& name) {
  const int32_t made = add_tensor({static_cast<int32_t>(values.size())}, Type::kInt32);
  Tensor& tensor = lite_.tensor(made);
  tensor.name = fmt::format("{}/{}", tensor.name, name);
  tensor.data.resize(values.size() * sizeof(int32_t));
  std::memcpy(tensor.data.data(), values.data(), tensor.data.size());
  return made;
}

int32_t Converter::tensor(ValueId value) {
  if (const auto found = tensors_.find(value); found != tensors_.end()) return found->second;
  if (const auto found = constants_.find(value); found != constants_.end()) {
    const Constant& constant = found->second;
    const int32_t made =
        add_tensor(dims_of(constant.type.shape), constant.type.dtype == DType::kInt32 ? Type::kInt32 : Type::kFloat32);
    lite_.tensor(made).data = constant.data;
    if (!graph_.value(value).name.empty()) lite_.tensor(made).name = graph_.value(value).name;
    tensors_[value] = made;
    return made;
  }
  // A broadcast that somebody needs as a tensor: a sum with zeros.
  const ValueId source = repeated_.at(value);
  const std::vector<int32_t> dims = dims_of(shape(value));
  const int32_t zeros = add_constant(dims, std::vector<float>(static_cast<size_t>(shape(value).elements())), "zeros");
  const int32_t made = add(Op::kAdd, {tensor(source), zeros}, dims);
  tensors_[value] = made;
  return made;
}

int32_t Converter::unrepeated(ValueId value) {
  const auto found = repeated_.find(value);
  if (found == repeated_.end() || tensors_.count(value) != 0) return tensor(value);
  return unrepeated(found->second);
}

int32_t Converter::add(Op op, std::vector<int32_t> inputs, const std::vector<int32_t>& shape, const Options& options) {
  const Type type = op == Op::kCast                                               ? options.to
                    : op == Op::kGather || op == Op::kReshape || op == Op::kSlice ? lite_.tensor(inputs[0]).type
                                                                                  : Type::kFloat32;
  const int32_t made = add_tensor(shape, type);
  lite_.operators.push_back({op, std::move(inputs), {made}, options});
  return made;
}

int32_t Converter::reshape(int32_t tensor, const std::vector<int32_t>& shape) {
  if (shape_of(tensor) == shape) return tensor;
  return add(Op::kReshape, {tensor, add_integers(shape, "shape")}, shape);
}

// Runs the op's own float64 reference. Weights are small beside activations and data, and only reshapes and products of
// weights come here.
Status Converter::evaluate(const Node& node) {
  const OpDef& op = op_def(node.op);
  std::vector<std::vector<double>> wide;
  const auto view = [&](const TensorType& type, const std::vector<std::byte>* data) {
    const int64_t n = type.shape.elements();
    wide.emplace_back(static_cast<size_t>(n));  // also enough for integers
    if (type.dtype == DType::kInt32) {
      if (data != nullptr) std::memcpy(wide.back().data(), data->data(), data->size());
      return TensorView{type, wide.back().data()};
    }
    if (data != nullptr) copy_elements<float, double>(data->data(), wide.back().data(), n);
    return TensorView{{DType::kFloat64, type.shape}, wide.back().data()};
  };
  wide.reserve(node.inputs.size() + node.outputs.size());
  std::vector<TensorView> inputs, outputs;
  for (const ValueId id : node.inputs) {
    const auto found = constants_.find(id);
    inputs.push_back(view(graph_.type(id), found == constants_.end() ? nullptr : &found->second.data));
  }
  for (const ValueId id : node.outputs) outputs.push_back(view(graph_.type(id), nullptr));
  op.reference({inputs, outputs, node.attrs, nullptr});
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    Constant made{graph_.type(node.outputs[i]), {}};
    const int64_t n = made.type.shape.elements();
    made.data.resize(static_cast<size_t>(n) * 4);
    if (made.type.dtype == DType::kInt32)
      std::memcpy(made.data.data(), outputs[i].data, made.data.size());
    else
      copy_elements<double, float>(outputs[i].data, made.data.data(), n);
    constants_[node.outputs[i]] = std::move(made);
  }
  return {};
}

void Converter::convert_node(const Node& node) {
  const ConvertNode conversion = find_conversion(node.op);
  const bool repeats = node.op == "broadcast";
  if (conversion == nullptr && !repeats) return refuse(fmt::format("the operation {} has no equivalent", node.op));
  for (const ValueId id : node.inputs)  // an operation before it was refused
    if (tensors_.count(id) == 0 && constants_.count(id) == 0 && repeated_.count(id) == 0) return;
  if (repeats) {
    repeated_[node.outputs[0]] = node.inputs[0];
    return;
  }
  conversion(*this, node);
}

Result<Model> Converter::run(const engine::Model& model) {
  for (const ValueId id : graph_.inputs) {
    const Value& value = graph_.value(id);
    const DType dtype = value.type.dtype;
    if (value.persistent) {
      if (value.category != Category::kWeights) continue;  // scalars of a step, which no prediction reads
      PLIMSOLL_ASSIGN(const TensorView weight, weight_of_(value.name));
      Constant constant{{DType::kFloat32, value.type.shape}, {}};
      constant.data.resize(static_cast<size_t>(weight.type.bytes()));
      std::memcpy(constant.data.data(), weight.data, constant.data.size());
      constants_[id] = std::move(constant);
      continue;
    }
    if (dtype != DType::kFloat32 && dtype != DType::kInt32) {
      refuse(fmt::format("the input {} is of type {}", value.name, name_of(dtype)));
      continue;
    }
    const int32_t made = add_tensor(dims_of(value.type.shape), dtype == DType::kInt32 ? Type::kInt32 : Type::kFloat32);
    lite_.tensor(made).name = value.name;
    tensors_[id] = made;
  }
  for (const Port& port : model.inputs()) {
    const auto found = tensors_.find(graph_.find(input_value(port.name)));
    if (found == tensors_.end()) continue;
    lite_.tensor(found->second).name = port.name;
    lite_.inputs.push_back(found->second);
  }
  for (const Node& node : graph_.nodes) {
    layer_ = node.layer;
    bool constant = reads_shapes_alone(node);
    if (!constant && !node.inputs.empty()) {
      constant = true;
      for (const ValueId id : node.inputs) constant = constant && constants_.count(id) != 0;
    }
    if (constant)
      PLIMSOLL_TRY(evaluate(node));
    else
      convert_node(node);
  }
  layer_.clear();
  if (!refused_.empty())
    return fail(
        Error{ErrorCode::kUnsupported,
              fmt::format("the model '{}' has parts that TensorFlow Lite cannot run, or that are not converted yet",
                          model.name()),
              {refused_.begin(), refused_.end()},
              {"docs/shrink.md lists what is converted"}});
  if (lite_.inputs.size() != model.inputs().size())
    return fail(ErrorCode::kInternal, "an input of the model is not an input of its graph");
  std::set<int32_t> taken(lite_.inputs.begin(), lite_.inputs.end());
  for (size_t i = 0; i < graph_.outputs.size(); ++i) {
    int32_t output = tensor(graph_.outputs[i]);
    // An output is a tensor of its own: not an input, a constant or another output.
    if (!taken.insert(output).second || lite_.tensor(output).constant())
      output = add(Op::kReshape, {output, add_integers(shape_of(output), "shape")}, shape_of(output));
    lite_.outputs.push_back(output);
  }
  simplify(lite_);
  for (size_t i = 0; i < lite_.outputs.size(); ++i) lite_.tensor(lite_.outputs[i]).name = model.outputs()[i].name;
  return std::move(lite_);
}

Result<Model> convert(const Graph& graph, const engine::Model& model, const WeightOf& weight_of) {
  return Converter(graph, weight_of).run(model);
}

}  // namespace plimsoll::engine::lite
