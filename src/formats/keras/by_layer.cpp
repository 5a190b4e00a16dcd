#include "formats/keras/by_layer.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "formats/hdf5/reader.h"

namespace plimsoll::engine {
namespace {

constexpr const char* kModelWeights = "model_weights";
constexpr const char* kOptimizerWeights = "optimizer_weights";

std::string join(const std::string& group, const std::string& name) {
  return group.empty() ? name : group + "/" + name;
}

using Names = std::optional<std::vector<std::string>>;

// Reads a list of names. Keras splits long lists over several attributes: layer_names0, layer_names1, ...
Result<Names> read_names(GroupTexts& texts, const std::string& group, const std::string& attribute) {
  PLIMSOLL_ASSIGN(Names names, texts.read(group, attribute));
  for (int part = 0; !names || part > 0; ++part) {
    PLIMSOLL_ASSIGN(Names more, texts.read(group, fmt::format("{}{}", attribute, part)));
    if (!more) return names;
    if (!names) names.emplace();
    names->insert(names->end(), more->begin(), more->end());
  }
  return names;
}

// "Adam/dense/kernel/m:0" -> "Adam/dense/kernel/m"
std::string_view without_number(std::string_view name) {
  return name.ends_with(":0") ? name.substr(0, name.size() - 2) : name;
}

std::string_view last_part(std::string_view name) {
  name = without_number(name);
  const auto slash = name.rfind('/');
  return slash == std::string_view::npos ? name : name.substr(slash + 1);
}

// Puts the states in the order of Keras 3: m and v of each weight in turn, then amsgrad's maxima.
std::vector<std::string> by_weight(const std::vector<std::string>& states) {
  std::vector<std::string> first, second, rest;
  for (const std::string& name : states) {
    const auto slot = last_part(name);
    (slot == "m" ? first : slot == "v" ? second : rest).push_back(name);
  }
  if (first.size() != second.size()) return states;
  std::vector<std::string> sorted;
  for (size_t i = 0; i < first.size(); ++i) sorted.insert(sorted.end(), {first[i], second[i]});
  sorted.insert(sorted.end(), rest.begin(), rest.end());
  return sorted;
}

}  // namespace

OptimizerTensors sort_optimizer(const std::vector<std::string>& names, const std::string& group) {
  OptimizerTensors sorted;
  std::vector<std::string> states;
  for (size_t i = 0; i < names.size(); ++i) {
    sorted.listed.push_back(join(group, names[i]));
    const auto part = last_part(names[i]);
    if (i < 2 && (part == "iteration" || part == "iter")) {
      sorted.iteration = join(group, names[i]);
      if (part == "iter") sorted.order = StateOrder::kBySlot;
    } else if (i < 2 && part == "learning_rate") {
      sorted.learning_rate = join(group, names[i]);
    } else {
      states.push_back(names[i]);
    }
  }
  if (sorted.order == StateOrder::kBySlot) states = by_weight(states);
  for (const std::string& name : states) sorted.states.push_back(join(group, name));
  return sorted;
}

Result<std::optional<WeightsByLayer>> read_by_layer(const WeightsFile& file) {
  WeightsByLayer found;
  if (file.has_group(kModelWeights)) found.root = kModelWeights;
  GroupTexts texts(file);
  PLIMSOLL_ASSIGN(const Names layers, read_names(texts, found.root, "layer_names"));
  if (!layers) return std::nullopt;
  std::set<std::string> seen;
  std::set<const Dataset*> listed;
  for (const std::string& name : *layers) {
    if (!seen.insert(name).second)
      return bad_weights(file.label(), fmt::format("its layer_names list '{}' twice", name));
    const std::string group = join(found.root, name);
    PLIMSOLL_ASSIGN(const Names weights, read_names(texts, group, "weight_names"));
    if (!weights)
      return bad_weights(file.label(),
                         fmt::format("{}: the group of layer '{}' has no list of weight_names", group, name));
    found.layers.push_back({name, {}});
    for (const std::string& weight : *weights) {
      const Dataset* dataset = file.find(join(group, weight));
      if (dataset == nullptr)
        return fail(ErrorCode::kWeightMissing,
                    fmt::format("{}: the weight_names of layer '{}' list {}, but there is no such dataset",
                                file.label(), name, weight));
      // Every dataset is listed once, so the lists take no more memory than the paths of the file.
      if (!listed.insert(dataset).second)
        return bad_weights(file.label(), fmt::format("its weight_names list {} twice", dataset->path));
      found.layers.back().tensors.push_back(dataset->path);
    }
  }
  if (!file.has_group(kOptimizerWeights)) return found;
  PLIMSOLL_ASSIGN(const Names states, read_names(texts, kOptimizerWeights, "weight_names"));
  if (!states) return found;
  for (const std::string& name : *states) {
    const Dataset* dataset = file.find(join(kOptimizerWeights, name));
    if (dataset == nullptr || !listed.insert(dataset).second)
      return bad_weights(file.label(), fmt::format("the weight_names of its optimizer_weights list {}, which is {}",
                                                   name, dataset == nullptr ? "not there" : "listed before"));
  }
  found.optimizer = sort_optimizer(*states, kOptimizerWeights);
  return found;
}

}  // namespace plimsoll::engine
