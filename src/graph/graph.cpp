#include "graph/graph.h"

#include <array>
#include <charconv>

namespace plimsoll::engine {
namespace {

constexpr std::array<std::string_view, 8> kCategories = {"weights", "gradients", "optimizer",   "activations",
                                                         "inputs",  "workspace", "temporaries", "fragmentation"};

constexpr std::array<std::string_view, 3> kStages = {"forward", "backward", "update"};
constexpr std::array<std::string_view, 3> kQueues = {"compute", "to_host", "from_host"};
constexpr std::array<std::string_view, 2> kSpaces = {"device", "host"};

// Returns the enumerator with this name. `names` is indexed by the enumerators' numbers.
template <typename Enum, size_t n>
std::optional<Enum> named(const std::array<std::string_view, n>& names, std::string_view name) {
  for (size_t i = 0; i < n; ++i)
    if (names[i] == name) return static_cast<Enum>(i);
  return std::nullopt;
}

}  // namespace

std::string_view name_of(Stage stage) {
  return kStages[static_cast<size_t>(stage)];
}

std::optional<Stage> stage_from_name(std::string_view name) {
  return named<Stage>(kStages, name);
}

std::string_view name_of(Queue queue) {
  return kQueues[static_cast<size_t>(queue)];
}

std::optional<Queue> queue_from_name(std::string_view name) {
  return named<Queue>(kQueues, name);
}

std::string to_text(Space space) {
  const auto number = static_cast<size_t>(space);
  return number < kSpaces.size() ? std::string(kSpaces[number]) : std::to_string(number);
}

std::optional<Space> space_from_text(std::string_view text) {
  if (const auto known = named<Space>(kSpaces, text)) return known;
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  if (!whole || number < static_cast<int>(kSpaces.size()) || number >= kMostSpaces) return std::nullopt;
  return static_cast<Space>(number);
}

std::string_view name_of(Category category) {
  return kCategories[static_cast<size_t>(category)];
}

std::optional<Category> category_from_name(std::string_view name) {
  return named<Category>(kCategories, name);
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
      // A node that reads a value twice counts as one reader.
      if (list.empty() || list.back() != static_cast<NodeId>(n)) list.push_back(static_cast<NodeId>(n));
    }
  return readers;
}

}  // namespace plimsoll::engine
