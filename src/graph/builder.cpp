#include "graph/builder.h"

#include <fmt/format.h>

namespace plimsoll::engine {

std::string GraphBuilder::unique_name(const std::string& wish) {
  if (!names_known_) {
    for (size_t i = 0; i < graph_.values.size(); ++i) names_[graph_.values[i].name] = static_cast<ValueId>(i);
    names_known_ = true;
  }
  if (!wish.empty() && names_.count(wish) == 0) return wish;
  for (size_t n = wish.empty() ? graph_.values.size() : 1;; ++n) {
    std::string name = wish.empty() ? fmt::format("{}", n) : fmt::format("{}.{}", wish, n);
    if (names_.count(name) == 0) return name;
  }
}

ValueId GraphBuilder::input(const std::string& name, TensorType type, Category category, bool persistent) {
  const auto id = static_cast<ValueId>(graph_.values.size());
  Value value;
  value.name = unique_name(name);
  value.type = std::move(type);
  value.category = category;
  value.layer = tags_.layer;
  value.persistent = persistent;
  names_[value.name] = id;
  graph_.values.push_back(std::move(value));
  graph_.inputs.push_back(id);
  return id;
}

ValueId GraphBuilder::persistent(const std::string& name, const TensorType& type, Category category) {
  if (const ValueId id = graph_.find(name); id != kNone) return id;
  return input(name, type, category, true);
}

std::vector<ValueId> GraphBuilder::add(const std::string& op, std::vector<ValueId> inputs, Attrs attrs,
                                       const std::string& name) {
  std::vector<TensorType> types;
  types.reserve(inputs.size());
  for (ValueId id : inputs) types.push_back(graph_.type(id));
  auto inferred = infer_(op, types, attrs);
  if (!inferred) {
    if (status_) {
      Error error = inferred.error();
      if (!tags_.layer.empty()) error.what = fmt::format("layer '{}': {}", tags_.layer, error.what);
      status_ = fail(std::move(error));
    }
    inferred = std::vector<TensorType>(3, types.empty() ? TensorType{} : types.front());
  }
  Node node{op, std::move(inputs), {}, std::move(attrs), tags_.layer, tags_.stage, nullptr};
  for (auto& type : *inferred) {
    const auto id = static_cast<ValueId>(graph_.values.size());
    Value value;
    value.name = unique_name(name);
    value.type = std::move(type);
    value.category = tags_.category;
    value.layer = tags_.layer;
    value.producer = static_cast<NodeId>(graph_.nodes.size());
    names_[value.name] = id;
    graph_.values.push_back(std::move(value));
    node.outputs.push_back(id);
  }
  graph_.nodes.push_back(node);
  return node.outputs;
}

void GraphBuilder::rename(ValueId value, const std::string& name) {
  names_.erase(graph_.value(value).name);
  graph_.value(value).name = unique_name(name);
  names_[graph_.value(value).name] = value;
}

}  // namespace plimsoll::engine
