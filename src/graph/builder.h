// Adds values and nodes to a graph. The ops infer the shapes through a function that the ops folder passes in
// (make_builder in ops/build.h), so graph/ does not depend on ops/.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "graph/graph.h"

namespace plimsoll::engine {

class GraphBuilder {
 public:
  using Infer =
      std::function<Result<std::vector<TensorType>>(const std::string& op, std::span<const TensorType>, const Attrs&)>;

  GraphBuilder(Graph graph, Infer infer) : graph_(std::move(graph)), infer_(std::move(infer)) {}

  const Graph& graph() const { return graph_; }
  Graph take() { return std::move(graph_); }

  // Tags for everything that is added: nodes and values get the layer, values made by nodes get the category, nodes get
  // the stage.
  struct Tags {
    std::string layer;
    Category category = Category::kActivations;
    Stage stage = Stage::kForward;
  };
  // Restores the previous tags when destroyed. Scopes must be destroyed in the reverse order of their creation.
  class [[nodiscard]] Scope {
   public:
    Scope(GraphBuilder& builder, Tags tags)
        : builder_(builder), before_(std::exchange(builder.tags_, std::move(tags))) {}
    ~Scope() { builder_.tags_ = std::move(before_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    GraphBuilder& builder_;
    Tags before_;
  };
  const Tags& tags() const { return tags_; }
  Scope in_layer(std::string layer) { return {*this, {std::move(layer), tags_.category, tags_.stage}}; }
  Scope in_category(Category category) { return {*this, {tags_.layer, category, tags_.stage}}; }
  Scope in_stage(Stage stage, Category category) { return {*this, {tags_.layer, category, stage}}; }

  ValueId input(const std::string& name, TensorType type, Category category, bool persistent);
  // Returns the persistent value with this name. Adds it if the graph does not have it yet.
  ValueId persistent(const std::string& name, const TensorType& type, Category category);

  // Adds a node. A shape error is stored and returned by status(); the node's outputs then get the first input's type,
  // so that building can continue and find further errors.
  std::vector<ValueId> add(const std::string& op, std::vector<ValueId> inputs, Attrs attrs = {},
                           const std::string& name = "");
  ValueId add1(const std::string& op, std::vector<ValueId> inputs, Attrs attrs = {}, const std::string& name = "") {
    return add(op, std::move(inputs), std::move(attrs), name).front();
  }

  void output(ValueId value) { graph_.outputs.push_back(value); }
  void update(ValueId persistent, ValueId value) { graph_.updates.push_back({persistent, value}); }
  void rename(ValueId value, const std::string& name);

  const Status& status() const { return status_; }

 private:
  std::string unique_name(const std::string& wish);

  Graph graph_;
  Infer infer_;
  Tags tags_;
  std::map<std::string, ValueId> names_;
  bool names_known_ = false;
  Status status_;
};

}  // namespace plimsoll::engine
