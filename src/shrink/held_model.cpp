#include "shrink/held_model.h"

#include <fmt/format.h>

#include <ctime>
#include <filesystem>

#include "base/json.h"
#include "execute/weight_places.h"
#include "graph/builder.h"
#include "model/initializer.h"
#include "ops/build.h"
#include "ops/op.h"

namespace plimsoll::engine {
namespace {

std::string metadata_of(const KerasArchive* source) {
  if (source != nullptr && !source->metadata_text.empty() && !source->upgraded) return source->metadata_text;
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d@%H:%M:%S", &utc);
  return json_object({{"keras_version", "3.15.1"}, {"date_saved", text}}).dump();
}

// The datasets of the file. Holds the scalars while they are written.
struct Entries {
  int64_t iteration = 0;
  float learning_rate = 0;
  int32_t placeholder = 0;
  std::vector<WeightEntry> list;

  Entries(const HeldModel& held, bool with_state)
      : iteration(held.iteration), learning_rate(static_cast<float>(held.learning_rate)) {
    const auto data = [&](const std::string& name) -> const float* {
      const auto found = held.values.find(name);
      return found == held.values.end() ? nullptr : found->second.data();
    };
    for (const Weight& weight : held.model.weights())
      for (const std::string& path : {weight.file_path, weight.second_file_path})
        if (!path.empty()) list.push_back({path, {DType::kFloat32, weight.shape}, data(weight.name)});
    if (!held.compiled() || !held.options.needs_training) return;
    int index = 0;
    list.push_back({optimizer_path(index++), {DType::kInt64, {}}, &iteration});
    if (held.model.optimizer().schedule.is_null())
      list.push_back({optimizer_path(index++), {DType::kFloat32, {}}, &learning_rate});
    if (!with_state || !held.has_state) return;
    for (const StateVariable& variable : state_of(held.model)) {
      const bool empty = variable.value.empty();
      list.push_back({optimizer_path(index++),
                      {empty ? DType::kInt32 : DType::kFloat32, variable.shape},
                      empty ? static_cast<const void*>(&placeholder) : data(variable.value)});
    }
  }
};

const WeightsFile* old_weights(const KerasArchive* source) {
  return source != nullptr && source->weights && !source->by_layer ? &*source->weights : nullptr;
}

// A file that can be kept must have its weights at the same places.
const KerasArchive* kept_source(const KerasArchive* source) {
  return source != nullptr && source->format == ModelFormat::kKeras && old_weights(source) != nullptr ? source
                                                                                                      : nullptr;
}

std::string config_text(const HeldModel& held) {
  nlohmann::json config = held.description.config;
  if (held.description.compile_config.is_object()) config["compile_config"] = held.description.compile_config;
  return config.dump();
}

Status read_values(HeldModel& held, const KerasArchive& archive) {
  const WeightSource& file = *archive.tensors();
  PLIMSOLL_ASSIGN(const std::vector<std::string> places, weight_places(held.model, archive));
  const auto& weights = held.model.weights();
  for (size_t i = 0; i < weights.size(); ++i) {
    std::vector<float> values(static_cast<size_t>(weights[i].shape.elements()));
    PLIMSOLL_TRY(file.read_into(places[i], {DType::kFloat32, weights[i].shape}, values.data()));
    held.values.emplace(weights[i].name, std::move(values));
  }
  held.has_weights = true;
  return {};
}

Status read_state(HeldModel& held, const KerasArchive& archive) {
  const bool scheduled = !held.model.optimizer().schedule.is_null();
  held.learning_rate = held.model.optimizer().learning_rate;
  const WeightSource& file = *archive.tensors();
  if (has_loss_scale_state(archive) || held.model.optimizer().loss_scale) {
    held.notes.emplace_back("the optimizer's state starts anew: that of a LossScaleOptimizer is not sliced");
    return {};
  }
  const StatePlaces places = state_places(archive, scheduled);
  if (places.iteration.empty()) return {};
  PLIMSOLL_TRY(file.read_into(places.iteration, {DType::kInt64, {}}, &held.iteration));
  if (!scheduled && !places.learning_rate.empty())
    PLIMSOLL_TRY(file.read_into(places.learning_rate, {DType::kFloat64, {}}, &held.learning_rate));
  const std::vector<StateVariable> states = state_of(held.model);
  if (states.empty() || places.states.empty()) return {};
  bool fits = places.states.size() == states.size();
  for (size_t i = 0; fits && i < states.size(); ++i) {
    const auto type = file.type_of(places.states[i]);
    fits = states[i].value.empty() || (type && type->shape == states[i].shape);
  }
  if (!fits) {
    held.iteration = 0;
    held.notes.emplace_back("the optimizer's state in the file is of other shapes: it starts anew");
    return {};
  }
  for (size_t i = 0; i < states.size(); ++i) {
    if (states[i].value.empty()) continue;
    std::vector<float> values(static_cast<size_t>(states[i].shape.elements()));
    PLIMSOLL_TRY(file.read_into(places.states[i], {DType::kFloat32, states[i].shape}, values.data()));
    held.values.emplace(states[i].value, std::move(values));
  }
  held.has_state = true;
  return {};
}

}  // namespace

std::vector<StateVariable> state_of(const Model& model) {
  std::vector<NamedShape> weights;
  for (const Weight& weight : model.weights())
    if (weight.trainable) weights.push_back({weight.name, weight.shape});
  return state_variables(model.optimizer(), weights);
}

Bytes held_bytes(const Model& model, bool with_state) {
  Bytes bytes = 0;
  for (const Weight& weight : model.weights()) bytes += 4 * weight.shape.elements();
  if (with_state)
    for (const StateVariable& variable : state_of(model)) bytes += 4 * variable.shape.elements();
  return bytes;
}

bool is_compiled(const Description& description) {
  const auto has = [&](const char* key) {
    const nlohmann::json& config = description.compile_config;
    return config.is_object() && config.contains(key) && !config[key].is_null();
  };
  return has("optimizer") && has("loss");
}

ModelOptions readable(const Description& description, ModelOptions options) {
  const bool trains = is_compiled(description) || (options.optimizer && options.loss);
  options.needs_training = options.needs_training && trains;
  options.needs_loss = options.needs_loss && trains;
  return options;
}

Result<HeldModel> hold(Description description, const ModelOptions& options, const KerasArchive* archive) {
  const ModelOptions used = readable(description, options);
  PLIMSOLL_ASSIGN(Model model, Model::create(description, used));
  HeldModel held{std::move(description), used, std::move(model), {}, false, false, 0, 0, {}};
  if (archive == nullptr || archive->tensors() == nullptr) {
    for (const Weight& weight : held.model.weights()) {
      std::vector<float> values(static_cast<size_t>(weight.shape.elements()));
      PLIMSOLL_TRY(initialize(weight, 0, std::span(values)));
      held.values.emplace(weight.name, std::move(values));
    }
    return held;
  }
  PLIMSOLL_TRY(read_values(held, *archive));
  if (held.compiled() && used.needs_training) PLIMSOLL_TRY(read_state(held, *archive));
  return held;
}

Result<HeldModel> with_description(const HeldModel& from, Description description) {
  PLIMSOLL_ASSIGN(Model model, Model::create(description, from.options));
  return HeldModel{std::move(description), from.options,   std::move(model),   {},        from.has_weights,
                   from.has_state,         from.iteration, from.learning_rate, from.notes};
}

FileBytes file_bytes(const HeldModel& held, const KerasArchive* source) {
  // A zip holds a name twice per entry, with 30 + 46 bytes, and 22 at its end.
  constexpr Bytes kNames = 2 * (13 + 11 + 16), kHeaders = 3 * (30 + 46) + 22;
  const Bytes texts = static_cast<Bytes>(config_text(held).size() + metadata_of(source).size());
  const WeightsFile* old = kept_source(source) != nullptr ? old_weights(source) : nullptr;
  const auto bytes = [&](bool with_state) {
    const Entries entries(held, with_state);
    return texts + kNames + kHeaders + expected_weights_bytes(entries.list, old);
  };
  return {bytes(true), bytes(false)};
}

namespace {

Status write_entries(const HeldModel& held, const KerasArchive* source, const std::string& path, bool with_state) {
  const Entries entries(held, with_state);
  return write_keras(path, {config_text(held), metadata_of(source), entries.list, kept_source(source)});
}

}  // namespace

Result<FileBytes> measured_bytes(const HeldModel& held, const KerasArchive* source, const std::string& path) {
  const std::string aside = path + ".measured.keras";
  FileBytes made;
  for (const bool with_state : {true, false}) {
    const Status written = write_entries(held, source, aside, with_state);
    std::error_code failed;
    const auto bytes = written ? std::filesystem::file_size(aside, failed) : 0;
    std::error_code ignored;
    std::filesystem::remove(aside, ignored);
    PLIMSOLL_TRY(written);
    if (failed) return fail(ErrorCode::kWriteFailed, fmt::format("cannot write beside {}: {}", path, failed.message()));
    (with_state ? made.whole : made.without_state) = static_cast<Bytes>(bytes);
  }
  return made;
}

Status write_held(const HeldModel& held, const KerasArchive* source, const std::string& path) {
  return write_entries(held, source, path, true);
}

Result<double> multiplications(const Model& model) {
  GraphBuilder b = make_builder();
  model.build(b, 1, Precision(), Mode::kPredict, {});
  PLIMSOLL_TRY(b.status());
  double sum = 0;
  for (const Node& node : b.graph().nodes)
    for (const char* kind : {"conv", "matmul", "attention", "recurrent"})
      if (node.op.find(kind) != std::string::npos) {
        sum += flops_of(b.graph(), node) / 2;
        break;
      }
  return sum;
}

}  // namespace plimsoll::engine
