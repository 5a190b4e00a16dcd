#include "execute/save_legacy.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>

#include "execute/weight_places.h"
#include "formats/json/parse.h"
#include "formats/keras/upgrade.h"

namespace plimsoll::engine {
namespace {

constexpr const char* kModelWeights = "model_weights";
constexpr const char* kOptimizerWeights = "optimizer_weights";

bool is_keras3(const KerasArchive& source) {
  return source.legacy.keras_version.starts_with("3");
}

std::string slot_of(const StateVariable& state) {
  return state.value.substr(state.value.rfind('/') + 1);
}

// Orders the states "WEIGHT/SLOT" by slot instead of by weight.
void sort_by_slot(std::vector<StateVariable>& states) {
  std::map<std::string, size_t> slots;  // in the order of their first appearance
  for (const StateVariable& state : states) slots.emplace(slot_of(state), slots.size());
  std::stable_sort(states.begin(), states.end(), [&](const StateVariable& a, const StateVariable& b) {
    return slots.at(slot_of(a)) < slots.at(slot_of(b));
  });
}

// The optimizer's variables, with the memory of its scalars.
struct StoredOptimizer {
  int64_t iteration = 0;
  float learning_rate = 0;
  std::vector<std::string> listed = {};  // paths, in the file's order
  int32_t placeholder = 0;
  std::deque<std::vector<float>> initial = {};  // state of weights without a gradient, which keeps its initial value

  void add(const Session& session, const HostView& values, const KerasArchive& source, bool same_optimizer,
           std::vector<WeightEntry>& entries) {
    if (session.has_persistent(kSkippedUpdates)) iteration -= *values[kSkippedUpdates].as<int64_t>();
    std::vector<StateVariable> states = state_of(session);
    const OptimizerTensors* old = source.by_layer ? &source.by_layer->optimizer : nullptr;
    const bool scheduled = !session.model().optimizer().schedule.is_null();
    if (same_optimizer && old != nullptr && !old->listed.empty() && old->states.size() == states.size() &&
        !old->iteration.empty() && (old->learning_rate.empty() || !scheduled)) {
      listed = old->listed;
      entries.push_back({old->iteration, {DType::kInt64, {}}, &iteration});
      if (!old->learning_rate.empty()) entries.push_back({old->learning_rate, {DType::kFloat32, {}}, &learning_rate});
      for (size_t i = 0; i < states.size(); ++i) put(session, values, old->states[i], states[i], entries);
      return;
    }
    const auto path = [&](const std::string& name) {
      listed.push_back(fmt::format("{}/{}", kOptimizerWeights, name));
      return listed.back();
    };
    entries.push_back({path("iteration"), {DType::kInt64, {}}, &iteration});
    if (is_keras3(source) && !scheduled)
      entries.push_back({path("learning_rate"), {DType::kFloat32, {}}, &learning_rate});
    // The optimizers of Keras 2 up to 2.10 do not say that they are new.
    const bool by_slot =
        !is_keras3(source) && source.legacy.training_config.find("is_legacy_optimizer") == std::string::npos;
    if (by_slot) sort_by_slot(states);
    for (size_t i = 0; i < states.size(); ++i)
      put(session, values,
          path(states[i].value.empty() ? fmt::format("placeholder_{}", i) : "states/" + states[i].value), states[i],
          entries);
  }

 private:
  void put(const Session& session, const HostView& values, const std::string& path, const StateVariable& state,
           std::vector<WeightEntry>& entries) {
    if (state.value.empty()) {
      entries.push_back({path, {DType::kInt32, {}}, &placeholder});
    } else if (session.has_persistent(state.value)) {
      const TensorView view = values[state.value];
      entries.push_back({path, view.type, view.data});
    } else {
      const auto& numbers =
          initial.emplace_back(static_cast<size_t>(state.shape.elements()), static_cast<float>(state.number));
      entries.push_back({path, {DType::kFloat32, state.shape}, numbers.data()});
    }
  }
};

}  // namespace

Status save_legacy(const Session& session, const KerasArchive& source, const std::string& config_text,
                   const OptimizerState& state, const std::string& path) {
  const Model& model = session.model();
  const bool whole = source.format == ModelFormat::kLegacyH5;
  const std::string root = whole ? kModelWeights : "";
  // The names of the file that the weights came from, if it has the same layout.
  const bool same_layout = source.weights && source.by_layer && source.by_layer->root == root;
  const WeightsByLayer lists = same_layout ? *source.by_layer : list_by_layer(model, root);
  PLIMSOLL_ASSIGN(const std::vector<std::string> places, weight_places(model, lists, path));
  PLIMSOLL_ASSIGN(const HostView values, session.look());
  std::vector<WeightEntry> entries;
  for (size_t i = 0; i < places.size(); ++i) {
    const std::string& name = model.weights()[i].name;
    if (!session.has_persistent(name)) continue;
    const TensorView view = values[name];
    entries.push_back({places[i], view.type, view.data});
  }
  LegacyTexts texts = source.legacy;
  StoredOptimizer optimizer{state.iteration, static_cast<float>(state.learning_rate)};
  if (whole) {
    const bool unchanged = config_text == source.config_text;
    if (!unchanged) {
      PLIMSOLL_ASSIGN(const nlohmann::json config, parse_json(config_text, path));
      const auto compiled = config.find("compile_config");
      texts.training_config = training_of(compiled != config.end() ? *compiled : nlohmann::json()).dump();
    }
    optimizer.add(session, values, source, unchanged, entries);
  }
  return write_weights_file(path, entries, same_layout ? &*source.weights : nullptr,
                            legacy_attributes(texts, lists, optimizer.listed));
}

}  // namespace plimsoll::engine
