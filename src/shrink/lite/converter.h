// The state of convert(): which tensor a value of the graph has become. Private to shrink/lite.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "shrink/lite/convert.h"

namespace plimsoll::engine::lite {

class Converter {
 public:
  Converter(const Graph& graph, const WeightOf& weight_of) : graph_(graph), weight_of_(weight_of) {}

  Result<Model> run(const engine::Model& model);

  // For the functions that convert one kind of node.
  const Graph& graph() const { return graph_; }
  const Shape& shape(ValueId value) const { return graph_.type(value).shape; }
  bool is_constant(ValueId value) const { return constants_.count(value) != 0; }
  // The elements of a constant. Integers are converted.
  std::vector<float> floats(ValueId value) const;
  // The tensor of a value. A constant becomes one when it is asked for.
  int32_t tensor(ValueId value);
  // The tensor before a broadcast, for operators that repeat their operands themselves.
  int32_t unrepeated(ValueId value);
  std::vector<int32_t> shape_of(int32_t tensor) const { return lite_.tensor(tensor).shape; }

  int32_t add_constant(const std::vector<int32_t>& shape, std::vector<float> values, const std::string& name);
  int32_t add_integers(const std::vector<int32_t>& values, const std::string& name);
  int32_t add_tensor(const std::vector<int32_t>& shape, Type type = Type::kFloat32);
  // Adds an operator whose output is a new tensor of that shape.
  int32_t add(Op op, std::vector<int32_t> inputs, const std::vector<int32_t>& shape, const Options& options = {});
  int32_t reshape(int32_t tensor, const std::vector<int32_t>& shape);
  int32_t number(float value) { return add_constant({}, {value}, "number"); }
  void set(ValueId value, int32_t tensor) { tensors_[value] = tensor; }
  void refuse(const std::string& what);  // adds "LAYER: what" to the error
  const std::string& layer() const { return layer_; }
  Model& lite() { return lite_; }

 private:
  struct Constant {
    TensorType type;
    std::vector<std::byte> data;  // f32 or i32
  };

  Status evaluate(const Node& node);  // all of its inputs are constants
  void convert_node(const Node& node);

  const Graph& graph_;
  const WeightOf& weight_of_;
  Model lite_;
  std::map<ValueId, int32_t> tensors_;
  std::map<ValueId, ValueId> repeated_;  // results of broadcasts
  std::map<ValueId, Constant> constants_;
  std::set<std::string> refused_;
  std::string layer_;
  int made_ = 0;
};

using ConvertNode = void (*)(Converter&, const Node&);
struct NodeConversion {
  std::string_view op;
  ConvertNode convert;
};
std::span<const NodeConversion> window_conversions();       // convolutions, pooling, padding
std::span<const NodeConversion> elementwise_conversions();  // and normalisations
std::span<const NodeConversion> movement_conversions();     // and matrices, tables, sums
std::span<const NodeConversion> attention_conversions();
std::span<const NodeConversion> recurrent_conversions();

std::vector<int32_t> dims_of(const Shape& shape);

}  // namespace plimsoll::engine::lite
