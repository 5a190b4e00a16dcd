#include "execute/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <deque>

#include "base/json.h"
#include "execute/save_legacy.h"
#include "execute/weight_places.h"
#include "model/initializer.h"

namespace plimsoll::engine {

std::vector<StateVariable> state_of(const Session& session) {
  std::vector<NamedShape> weights;
  for (const Weight& weight : session.model().weights())
    if (weight.trainable) weights.push_back({weight.name, weight.shape});
  return state_variables(session.model().optimizer(), weights);
}

namespace {

// Returns whether the variable lies in the arena. Placeholders do not, nor does the state of a weight without a
// gradient.
bool is_held(const Session& session, const StateVariable& variable) {
  return !variable.value.empty() && session.has_persistent(variable.value);
}

void fill(const TensorView& view, double number) {
  if (view.type.dtype == DType::kFloat64)
    std::fill_n(view.as<double>(), view.elements(), number);
  else
    std::fill_n(view.as<float>(), view.elements(), static_cast<float>(number));
}

template <typename T>
Status store_scalar(Session& session, const char* name, T value) {
  if (!session.has_persistent(name)) return {};
  return session.store(name, [&](const TensorView& view) -> Status {
    if constexpr (std::is_same_v<T, int64_t>) {
      *view.as<int64_t>() = value;
    } else if (view.type.dtype == DType::kFloat64) {
      *view.as<double>() = value;
    } else {
      *view.as<float>() = static_cast<float>(value);
    }
    return {};
  });
}

Status set_loss_scale(Session& session, double scale, int64_t steps) {
  PLIMSOLL_TRY(store_scalar(session, kLossScale, scale));
  PLIMSOLL_TRY(store_scalar(session, kLossScaleSteps, steps));
  return store_scalar(session, kSkippedUpdates, int64_t{0});
}

Status clear_state(Session& session) {
  if (const auto& scaled = session.model().optimizer().loss_scale)
    PLIMSOLL_TRY(set_loss_scale(session, scaled->initial, 0));
  for (const StateVariable& variable : state_of(session)) {
    if (!is_held(session, variable)) continue;
    if (variable.initial == StateVariable::Initial::kNumber) {
      PLIMSOLL_TRY(session.store(variable.value, [&](const TensorView& view) -> Status {
        fill(view, variable.number);
        return {};
      }));
      continue;
    }
    PLIMSOLL_ASSIGN(const HostView values, session.look());
    const TensorView weight = values[variable.weight];
    PLIMSOLL_TRY(session.store(variable.value, [&](const TensorView& view) -> Status {
      std::memcpy(view.data, weight.data, static_cast<size_t>(view.type.bytes()));
      return {};
    }));
  }
  return {};
}

Status check_weights(const Session& session, const KerasArchive& archive, const std::vector<std::string>& places) {
  const WeightSource& file = *archive.tensors();
  Error missing{ErrorCode::kWeightMissing,
                fmt::format("{}: weights that the model needs are not in the file", archive.path),
                {},
                {"save the model again from Keras"}};
  Error wrong{ErrorCode::kWeightShape,
              fmt::format("{}: weights in the file have other shapes than in the model", archive.path),
              {},
              {"save the model again from Keras"}};
  const std::vector<Weight>& weights = session.model().weights();
  for (size_t i = 0; i < weights.size(); ++i) {
    const Weight& weight = weights[i];
    if (!session.has_persistent(weight.name)) continue;
    const auto type = file.type_of(places[i]);
    if (!type)
      missing.fact(fmt::format("{}: no dataset {} in {}", weight.name, places[i],
                               archive.zip && archive.weights_from.empty() ? "model.weights.h5" : file.label()));
    else if (!(type->shape == weight.shape))
      wrong.fact(fmt::format("{}: {} is [{}], but the model needs [{}]", weight.name, places[i], to_text(type->shape),
                             to_text(weight.shape)));
  }
  if (!missing.facts.empty()) return fail(std::move(missing));
  if (!wrong.facts.empty()) return fail(std::move(wrong));
  return {};
}

// The state of a LossScaleOptimizer. It also has its own iteration and learning rate, which always stay 0.
struct LossScaleState {
  int64_t steps = 0;
  double scale = LossScale{}.initial;
};

// Returns the loss scale state of a file, or the initial state if the file has none.
Result<LossScaleState> loss_scale_state(const WeightsFile& file) {
  const auto outer = optimizer_variables(file), inner = optimizer_variables(file, kInnerOptimizerVars);
  LossScaleState state;
  if (inner.empty() || outer.size() != inner.size() + 4) return state;
  PLIMSOLL_TRY(file.read_into(outer[2].path, {DType::kInt64, {}}, &state.steps));
  PLIMSOLL_TRY(file.read_into(outer[3].path, {DType::kFloat64, {}}, &state.scale));
  return state;
}

Status load_optimizer(Session& session, const KerasArchive& archive, LoadReport& report) {
  const std::vector<StateVariable> states = state_of(session);
  const WeightSource& file = *archive.tensors();
  // If the outer optimizer was built, its own four variables come first, then all variables of the inner optimizer.
  if (session.model().optimizer().loss_scale && has_loss_scale_state(archive)) {
    PLIMSOLL_ASSIGN(const LossScaleState scaling, loss_scale_state(*archive.weights));
    const size_t inner = optimizer_variables(*archive.weights, kInnerOptimizerVars).size();
    if (optimizer_variables(*archive.weights).size() == inner + 4)
      PLIMSOLL_TRY(set_loss_scale(session, scaling.scale, scaling.steps));
  }
  const bool scheduled = !session.model().optimizer().schedule.is_null();
  const StatePlaces places = state_places(archive, scheduled);
  if (places.iteration.empty()) return {};
  PLIMSOLL_TRY(file.read_into(places.iteration, {DType::kInt64, {}}, &report.optimizer.iteration));
  if (!scheduled && !places.learning_rate.empty())
    PLIMSOLL_TRY(file.read_into(places.learning_rate, {DType::kFloat64, {}}, &report.optimizer.learning_rate));
  if (states.empty()) return {};
  if (places.states.empty()) {
    if (report.optimizer.iteration > 0) report.notes.push_back("the file has no optimizer moments; they start at zero");
    return {};
  }
  if (places.states.size() != states.size()) {
    report.notes.push_back(fmt::format(
        "the file has {} optimizer variables, but this optimizer has {}: its state is reset, at iteration 0",
        places.states.size(), states.size()));
    report.optimizer.iteration = 0;
    return {};
  }
  // The state of a file whose optimizer is not known may belong to another one.
  for (size_t i = 0; i < states.size(); ++i) {
    const auto type = file.type_of(places.states[i]);
    if (!is_held(session, states[i]) || (type && type->shape == states[i].shape)) continue;
    report.notes.push_back("the optimizer variables in the file have other shapes: the state is reset, at iteration 0");
    report.optimizer.iteration = 0;
    return {};
  }
  for (size_t i = 0; i < states.size(); ++i)
    if (is_held(session, states[i]))
      PLIMSOLL_TRY(session.store(states[i].value, [&](const TensorView& view) {
        return file.read_into(places.states[i], view.type, view.data);
      }));
  return {};
}

// The optimizer's variables in Keras's order. Holds the scalars while they are written.
struct OptimizerEntries {
  int64_t iteration;
  float learning_rate;
  std::optional<LossScaleState> kept;  // from the source file; saved again even if this run does not use it
  int64_t unused_iteration = 0;        // iteration of the LossScaleOptimizer itself
  float unused_rate = 0, kept_scale = 0;
  int32_t placeholder = 0;
  std::deque<std::vector<float>> initial = {};  // state of weights without a gradient, which keeps its initial value

  void add_plain(const Session& session, const HostView& values, std::string_view group, int index,
                 std::vector<WeightEntry>& entries) {
    entries.push_back({optimizer_path(index++, group), {DType::kInt64, {}}, &iteration});
    if (session.model().optimizer().schedule.is_null())
      entries.push_back({optimizer_path(index++, group), {DType::kFloat32, {}}, &learning_rate});
    for (const StateVariable& variable : state_of(session)) {
      const std::string path = optimizer_path(index++, group);
      if (variable.value.empty()) {
        entries.push_back({path, {DType::kInt32, {}}, &placeholder});
      } else if (is_held(session, variable)) {
        const TensorView view = values[variable.value];
        entries.push_back({path, view.type, view.data});
      } else {
        const auto& numbers =
            initial.emplace_back(static_cast<size_t>(variable.shape.elements()), static_cast<float>(variable.number));
        entries.push_back({path, {DType::kFloat32, variable.shape}, numbers.data()});
      }
    }
  }

  void add(const Session& session, const HostView& values, std::vector<WeightEntry>& entries) {
    const bool scaled = session.has_persistent(kLossScale) && session.has_persistent(kLossScaleSteps) &&
                        session.has_persistent(kSkippedUpdates);
    if (!scaled && !kept) return add_plain(session, values, kOptimizerVars, 0, entries);
    entries.push_back({optimizer_path(0), {DType::kInt64, {}}, &unused_iteration});
    entries.push_back({optimizer_path(1), {DType::kFloat32, {}}, &unused_rate});
    if (scaled) {
      iteration -= *values[kSkippedUpdates].as<int64_t>();
      const TensorView steps = values[kLossScaleSteps], scale = values[kLossScale];
      entries.push_back({optimizer_path(2), steps.type, steps.data});
      entries.push_back({optimizer_path(3), scale.type, scale.data});
    } else {
      kept_scale = static_cast<float>(kept->scale);
      entries.push_back({optimizer_path(2), {DType::kInt64, {}}, &kept->steps});
      entries.push_back({optimizer_path(3), {DType::kFloat32, {}}, &kept_scale});
    }
    add_plain(session, values, kOptimizerVars, 4, entries);
    add_plain(session, values, kInnerOptimizerVars, 0, entries);
  }
};

std::string metadata_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d@%H:%M:%S", &utc);
  return json_object({{"keras_version", "3.15.1"}, {"date_saved", text}}).dump();
}

}  // namespace

Result<LoadReport> load_weights(Session& session, const KerasArchive& archive, bool keep_optimizer) {
  const std::vector<Weight>& weights = session.model().weights();
  PLIMSOLL_ASSIGN(const std::vector<std::string> places, weight_places(session.model(), archive));
  PLIMSOLL_TRY(check_weights(session, archive, places));
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!session.has_persistent(weights[i].name)) continue;
    PLIMSOLL_TRY(session.store(weights[i].name, [&](const TensorView& view) {
      return archive.tensors()->read_into(places[i], view.type, view.data);
    }));
  }
  LoadReport report;
  report.optimizer.learning_rate = session.model().optimizer().learning_rate;
  PLIMSOLL_TRY(clear_state(session));
  if (keep_optimizer) PLIMSOLL_TRY(load_optimizer(session, archive, report));
  return report;
}

Status initialize_weights(Session& session, uint64_t seed) {
  for (const Weight& weight : session.model().weights()) {
    if (!session.has_persistent(weight.name)) continue;
    PLIMSOLL_TRY(session.store(weight.name, [&](const TensorView& view) {
      const auto count = static_cast<size_t>(view.elements());
      return view.type.dtype == DType::kFloat64 ? initialize(weight, seed, std::span(view.as<double>(), count))
                                                : initialize(weight, seed, std::span(view.as<float>(), count));
    }));
  }
  return clear_state(session);
}

Status use_averages(Session& session) {
  if (!session.model().optimizer().ema_momentum) return {};
  for (const Weight& weight : session.model().weights()) {
    const std::string average = average_value(weight.name);
    if (!session.has_persistent(average)) continue;
    PLIMSOLL_ASSIGN(const HostView values, session.look());
    const TensorView from = values[average];
    PLIMSOLL_TRY(session.store(weight.name, [&](const TensorView& view) -> Status {
      std::memcpy(view.data, from.data, static_cast<size_t>(view.type.bytes()));
      return {};
    }));
  }
  return {};
}

Result<SaveFormat> save_format(const std::string& path, const std::string& flag) {
  if (path.ends_with(".keras")) return SaveFormat::kKeras;
  if (path.ends_with(".weights.h5")) return SaveFormat::kWeights;
  if (path.ends_with(".h5") || path.ends_with(".hdf5")) return SaveFormat::kLegacyH5;
  const size_t dot = path.rfind('.'), slash = path.rfind('/');
  const bool has_ending = dot != std::string::npos && (slash == std::string::npos || dot > slash);
  return fail(Error{ErrorCode::kUsage,
                    fmt::format("{} {}: the file name must end in .keras, .weights.h5 or .h5", flag, path),
                    {},
                    {fmt::format("{} {}.keras", flag, has_ending ? path.substr(0, dot) : path)}});
}

Status check_save(const std::string& path, const KerasArchive* source, const std::string& flag) {
  if (path.empty()) return {};
  PLIMSOLL_ASSIGN(const SaveFormat format, save_format(path, flag));
  if (format != SaveFormat::kLegacyH5) return {};
  const bool weights_alone = source != nullptr && source->format == ModelFormat::kJson;
  if (weights_alone || (source != nullptr && source->format == ModelFormat::kLegacyH5)) return {};
  const std::string stem = path.substr(0, path.rfind('.'));
  return fail(Error{ErrorCode::kUsage,
                    fmt::format("{} {}: only a model that comes from a .h5 file is saved as .h5", flag, path),
                    {},
                    {fmt::format("{} {}.keras   the whole model", flag, stem),
                     fmt::format("{} {}.weights.h5   the weights alone", flag, stem)}});
}

Status save_model(const Session& session, const KerasArchive* source, const std::string& config_text,
                  const OptimizerState& state, const std::string& path) {
  PLIMSOLL_TRY(check_save(path, source, "save"));
  PLIMSOLL_ASSIGN(const SaveFormat format, save_format(path, "save"));
  if (format == SaveFormat::kLegacyH5) return save_legacy(session, *source, config_text, state, path);
  PLIMSOLL_ASSIGN(const HostView values, session.look());
  std::vector<WeightEntry> entries;
  for (const Weight& weight : session.model().weights()) {
    if (!session.has_persistent(weight.name)) continue;
    const TensorView view = values[weight.name];
    entries.push_back({weight.file_path, view.type, view.data});
    if (!weight.second_file_path.empty()) entries.push_back({weight.second_file_path, view.type, view.data});
  }
  OptimizerEntries optimizer{state.iteration, static_cast<float>(state.learning_rate), {}};
  if (source != nullptr && has_loss_scale_state(*source)) {
    PLIMSOLL_ASSIGN(optimizer.kept, loss_scale_state(*source->weights));
  }
  optimizer.add(session, values, entries);
  const bool same_layout = source != nullptr && source->weights && !source->by_layer;
  if (format == SaveFormat::kWeights)
    return write_weights_file(path, entries, same_layout ? &*source->weights : nullptr);
  const std::string metadata =
      source != nullptr && !source->metadata_text.empty() && !source->upgraded ? source->metadata_text : metadata_now();
  const bool keeps = source != nullptr && (same_layout || source->zip);
  return write_keras(path, {config_text, metadata, entries, keeps ? source : nullptr});
}

Bytes expected_model_bytes(const Session& session, const KerasArchive* source, const std::string& config_text) {
  std::vector<WeightEntry> entries;
  const auto add = [&](const std::string& name, std::string path) {
    entries.push_back({std::move(path), session.slot(name)->type, nullptr});
  };
  for (const Weight& weight : session.model().weights()) {
    if (!session.has_persistent(weight.name)) continue;
    add(weight.name, weight.file_path);
    if (!weight.second_file_path.empty()) add(weight.name, weight.second_file_path);
  }
  const bool scaled = session.has_persistent(kLossScale) || (source != nullptr && has_loss_scale_state(*source));
  int index = 8;  // skips the scalars of both optimizers, whose bytes are negligible
  for (int copies = scaled ? 2 : 1; copies > 0; --copies)
    for (const StateVariable& variable : state_of(session))
      entries.push_back({optimizer_path(index++), {DType::kFloat32, variable.shape}, nullptr});
  const WeightsFile* old = source != nullptr && source->weights && !source->by_layer ? &*source->weights : nullptr;
  const size_t texts = config_text.size() + (source != nullptr ? source->legacy.model_config.size() : 0);
  return expected_weights_bytes(entries, old) + static_cast<Bytes>(texts) + 64 * kKiB;
}

}  // namespace plimsoll::engine
