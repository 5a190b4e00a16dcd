#include "graph/graph.h"

#include <array>

namespace plimsoll {
namespace {

constexpr std::array<std::string_view, 8> kCategories = {"weights", "gradients", "optimizer",   "activations",
                                                         "inputs",  "workspace", "temporaries", "fragmentation"};

constexpr std::array<std::string_view, 3> kStages = {"forward", "backward", "update"};

}  // namespace

std::string_view name_of(Stage stage) {
  return kStages[static_cast<size_t>(stage)];
}

std::optional<Stage> stage_from_name(std::string_view name) {
  for (size_t i = 0; i < kStages.size(); ++i)
    if (kStages[i] == name) return static_cast<Stage>(i);
  return std::nullopt;
}

std::string_view name_of(Category category) {
  return kCategories[static_cast<size_t>(category)];
}

std::optional<Category> category_from_name(std::string_view name) {
  for (size_t i = 0; i < kCategories.size(); ++i)
    if (kCategories[i] == name) return static_cast<Category>(i);
  return std::nullopt;
}

ValueId Graph::find(std::string_view wanted) const {
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i].name == wanted) return static_cast<ValueId>(i);
  return kNone;
}

std::vector<std::vector<NodeId>> readers_of(const Graph& graph) {
  std::vector<std::vector<NodeId>> readers(graph.values.size());
  for (size_t n = 0; n < graph.nodes.size(); ++n)
    for (ValueId id : graph.nodes[n].inputs) {
      auto& list = readers[static_cast<size_t>(id)];
      // A node that reads a value twice is one reader.
      if (list.empty() || list.back() != static_cast<NodeId>(n)) list.push_back(static_cast<NodeId>(n));
    }
  return readers;
}

}  // namespace plimsoll
