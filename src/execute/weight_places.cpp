#include "execute/weight_places.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace plimsoll::engine {
namespace {

// The weights of one layer of the outermost model, by their index in the model's list.
struct OwnLayer {
  std::string name;
  std::vector<size_t> weights;
};

std::vector<OwnLayer> own_layers(const Model& model) {
  std::vector<OwnLayer> own;
  std::map<std::string, size_t> index;
  for (size_t i = 0; i < model.weights().size(); ++i) {
    const std::string& layer = model.weights()[i].layer;
    const std::string name = layer.substr(0, layer.find('/'));
    const auto [at, is_new] = index.emplace(name, own.size());
    if (is_new) own.push_back({name, {}});
    own[at->second].weights.push_back(i);
  }
  return own;
}

// Keras 2 lists the trainable weights of a layer first.
void trainable_first(const Model& model, OwnLayer& layer) {
  std::stable_partition(layer.weights.begin(), layer.weights.end(),
                        [&](size_t weight) { return model.weights()[weight].trainable; });
}

class Matching {
 public:
  Matching(const Model& model, const WeightsByLayer& by_layer, const std::string& label)
      : model_(model), label_(label) {
    for (const LayerWeights& layer : by_layer.layers)
      if (!layer.tensors.empty()) stored_.push_back(&layer);
  }

  Result<std::vector<std::string>> run() {
    if (auto named = by_name()) return assign(*named);
    std::vector<OwnLayer> own = own_layers(model_);
    if (own.size() != stored_.size())
      return fail(mismatch(fmt::format("it has weights for {} layers, but {} layers of the model have weights",
                                       stored_.size(), own.size()),
                           own));
    return assign(own);
  }

 private:
  // Returns the model's layers in the file's order; nullopt if the names differ.
  std::optional<std::vector<OwnLayer>> by_name() const {
    std::vector<OwnLayer> own;
    std::map<std::string, size_t> index;
    for (const LayerWeights* layer : stored_) {
      index.emplace(layer->layer, own.size());
      own.push_back({layer->layer, {}});
    }
    for (size_t i = 0; i < model_.weights().size(); ++i) {
      // A layer's name may contain slashes, so the longest name that fits is the right one.
      std::string name = model_.weights()[i].layer;
      auto found = index.find(name);
      while (found == index.end() && name.find('/') != std::string::npos) {
        name.resize(name.rfind('/'));
        found = index.find(name);
      }
      if (found == index.end()) return std::nullopt;
      own[found->second].weights.push_back(i);
    }
    const bool all = std::none_of(own.begin(), own.end(), [](const OwnLayer& one) { return one.weights.empty(); });
    return all ? std::optional(std::move(own)) : std::nullopt;
  }

  Result<std::vector<std::string>> assign(std::vector<OwnLayer>& own) const {
    std::vector<std::string> places(model_.weights().size());
    for (size_t i = 0; i < own.size(); ++i) {
      trainable_first(model_, own[i]);
      const auto& tensors = stored_[i]->tensors;
      if (tensors.size() != own[i].weights.size())
        return fail(mismatch(fmt::format("layer '{}' has {} weights in the file, but layer '{}' of the model has {}",
                                         stored_[i]->layer, tensors.size(), own[i].name, own[i].weights.size()),
                             own));
      for (size_t k = 0; k < tensors.size(); ++k) places[own[i].weights[k]] = tensors[k];
    }
    return places;
  }

  Error mismatch(std::string what, const std::vector<OwnLayer>& own) const {
    Error error{ErrorCode::kWeightMissing, fmt::format("{}: {}", label_, what), {}, {}};
    const auto names = [](const auto& list, const auto& name) {
      constexpr size_t kShown = 8;
      std::string text;
      for (size_t i = 0; i < list.size() && i < kShown; ++i) text += (i == 0 ? "" : ", ") + name(list[i]);
      return list.size() > kShown ? text + ", ..." : text;
    };
    error.fact("layers with weights in the file: " + names(stored_, [](const auto* one) { return one->layer; }));
    error.fact("layers with weights in the model: " + names(own, [](const OwnLayer& one) { return one.name; }));
    return error.remedy("weights that were saved from this model");
  }

  const Model& model_;
  const std::string& label_;
  std::vector<const LayerWeights*> stored_;  // those that have weights
};

// Keras 2 names the parts of a layer with an underscore: "layers/multi_head_attention/_query_dense/vars/0".
std::string keras2_path(std::string path) {
  constexpr std::string_view kVars = "/vars/";
  const size_t vars = path.rfind(kVars),
               part = vars == std::string::npos || vars == 0 ? vars : path.rfind('/', vars - 1);
  return part == std::string::npos ? path : path.insert(part + 1, "_");
}

}  // namespace

Result<std::vector<std::string>> weight_places(const Model& model, const KerasArchive& archive) {
  if (archive.by_layer) return weight_places(model, *archive.by_layer, archive.tensors()->label());
  std::vector<std::string> places;
  for (const Weight& weight : model.weights()) {
    const std::string other = keras2_path(weight.file_path);
    const bool renamed =
        archive.weights && !archive.weights->type_of(weight.file_path) && archive.weights->type_of(other);
    places.push_back(renamed ? other : weight.file_path);
  }
  return places;
}

Result<std::vector<std::string>> weight_places(const Model& model, const WeightsByLayer& by_layer,
                                               const std::string& label) {
  return Matching(model, by_layer, label).run();
}

WeightsByLayer list_by_layer(const Model& model, const std::string& root) {
  WeightsByLayer lists;
  lists.root = root;
  for (OwnLayer& layer : own_layers(model)) {
    trainable_first(model, layer);
    lists.layers.push_back({layer.name, {}});
    const std::string group = root.empty() ? layer.name : root + "/" + layer.name;
    for (const size_t weight : layer.weights)
      lists.layers.back().tensors.push_back(group + "/" + model.weights()[weight].name);
  }
  return lists;
}

StatePlaces state_places(const KerasArchive& archive, bool scheduled) {
  if (archive.by_layer) {
    const OptimizerTensors& stored = archive.by_layer->optimizer;
    return {stored.iteration, stored.learning_rate, stored.states};
  }
  std::vector<OptimizerVariable> variables = optimizer_variables(*archive.weights);
  if (auto inner = optimizer_variables(*archive.weights, kInnerOptimizerVars); !inner.empty())
    variables = std::move(inner);
  StatePlaces places;
  for (size_t i = 0; i < variables.size(); ++i) {
    std::string& path = variables[i].path;
    if (i == 0)
      places.iteration = std::move(path);
    else if (i == 1 && !scheduled)
      places.learning_rate = std::move(path);
    else
      places.states.push_back(std::move(path));
  }
  return places;
}

}  // namespace plimsoll::engine
