#include "execute/weights.h"

#include <fmt/format.h>

#include <cstring>
#include <ctime>

#include "base/json.h"
#include "model/initializer.h"

namespace plimsoll::engine {
namespace {

// Returns the session's optimizer state values in the order of Keras's file: for each trainable weight, its moments.
std::vector<std::string> state_values(const Session& session) {
  std::vector<std::string> names;
  for (const Weight& weight : session.model().weights()) {
    if (!weight.trainable) continue;
    for (const std::string& state : state_names(session.model().optimizer()))
      if (session.has_persistent(weight.name + "/" + state)) names.push_back(weight.name + "/" + state);
  }
  return names;
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
  for (const std::string& name : state_values(session))
    PLIMSOLL_TRY(session.store(name, [](const TensorView& view) -> Status {
      std::memset(view.data, 0, static_cast<size_t>(view.type.bytes()));
      return {};
    }));
  return {};
}

Status check_weights(const Session& session, const KerasArchive& archive) {
  Error missing{ErrorCode::kWeightMissing,
                fmt::format("{}: weights that the model needs are not in the file", archive.path),
                {},
                {"save the model again from Keras"}};
  Error wrong{ErrorCode::kWeightShape,
              fmt::format("{}: weights in the file have other shapes than in the model", archive.path),
              {},
              {"save the model again from Keras"}};
  for (const Weight& weight : session.model().weights()) {
    if (!session.has_persistent(weight.name)) continue;
    const Dataset* dataset = archive.weights->find(weight.file_path);
    if (dataset == nullptr)
      missing.fact(fmt::format("{}: no dataset {} in model.weights.h5", weight.name, weight.file_path));
    else if (!(dataset->type.shape == weight.shape))
      wrong.fact(fmt::format("{}: {} is [{}], but the model needs [{}]", weight.name, weight.file_path,
                             to_text(dataset->type.shape), to_text(weight.shape)));
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

Status load_optimizer(Session& session, const WeightsFile& file, LoadReport& report) {
  const std::vector<std::string> names = state_values(session);
  std::vector<OptimizerVariable> variables = optimizer_variables(file);
  if (auto inner = optimizer_variables(file, kInnerOptimizerVars); !inner.empty()) {
    // If the outer optimizer was built, its own four variables come first, then all variables of the inner optimizer.
    if (session.model().optimizer().loss_scale) {
      PLIMSOLL_ASSIGN(const LossScaleState state, loss_scale_state(file));
      if (variables.size() == inner.size() + 4) PLIMSOLL_TRY(set_loss_scale(session, state.scale, state.steps));
    }
    variables = std::move(inner);
  }
  const bool scheduled = !session.model().optimizer().schedule.is_null();
  const size_t head = scheduled ? 1 : 2;
  if (variables.empty()) return {};
  PLIMSOLL_TRY(file.read_into(variables[0].path, {DType::kInt64, {}}, &report.optimizer.iteration));
  if (!scheduled && variables.size() > 1)
    PLIMSOLL_TRY(file.read_into(variables[1].path, {DType::kFloat64, {}}, &report.optimizer.learning_rate));
  if (names.empty()) return {};
  if (variables.size() <= head) {
    if (report.optimizer.iteration > 0) report.notes.push_back("the file has no optimizer moments; they start at zero");
    return {};
  }
  if (variables.size() != head + names.size()) {
    report.notes.push_back(fmt::format(
        "the file has {} optimizer variables, but this optimizer has {}: its state is reset, at iteration 0",
        variables.size(), head + names.size()));
    report.optimizer.iteration = 0;
    return {};
  }
  for (size_t i = 0; i < names.size(); ++i)
    PLIMSOLL_TRY(session.store(names[i], [&](const TensorView& view) {
      return file.read_into(variables[head + i].path, view.type, view.data);
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

  void add_plain(const Session& session, const HostView& values, std::string_view group, int index,
                 std::vector<WeightEntry>& entries) const {
    entries.push_back({optimizer_path(index++, group), {DType::kInt64, {}}, &iteration});
    if (session.model().optimizer().schedule.is_null())
      entries.push_back({optimizer_path(index++, group), {DType::kFloat32, {}}, &learning_rate});
    for (const std::string& name : state_values(session)) {
      const TensorView view = values[name];
      entries.push_back({optimizer_path(index++, group), view.type, view.data});
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
  PLIMSOLL_TRY(check_weights(session, archive));
  for (const Weight& weight : session.model().weights()) {
    if (!session.has_persistent(weight.name)) continue;
    PLIMSOLL_TRY(session.store(weight.name, [&](const TensorView& view) {
      return archive.weights->read_into(weight.file_path, view.type, view.data);
    }));
  }
  LoadReport report;
  report.optimizer.learning_rate = session.model().optimizer().learning_rate;
  PLIMSOLL_TRY(clear_state(session));
  if (keep_optimizer) PLIMSOLL_TRY(load_optimizer(session, *archive.weights, report));
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

Status save_model(const Session& session, const KerasArchive* source, const std::string& config_text,
                  const OptimizerState& state, const std::string& path) {
  PLIMSOLL_ASSIGN(const HostView values, session.look());
  std::vector<WeightEntry> entries;
  for (const Weight& weight : session.model().weights()) {
    if (!session.has_persistent(weight.name)) continue;
    const TensorView view = values[weight.name];
    entries.push_back({weight.file_path, view.type, view.data});
  }
  OptimizerEntries optimizer{state.iteration, static_cast<float>(state.learning_rate), {}};
  if (source != nullptr && has_loss_scale_state(*source)) {
    PLIMSOLL_ASSIGN(optimizer.kept, loss_scale_state(*source->weights));
  }
  optimizer.add(session, values, entries);
  const std::string metadata =
      source != nullptr && !source->metadata_text.empty() ? source->metadata_text : metadata_now();
  return write_keras(path, {config_text, metadata, entries, source != nullptr && source->weights ? source : nullptr});
}

Bytes expected_model_bytes(const Session& session, const KerasArchive* source, const std::string& config_text) {
  std::vector<WeightEntry> entries;
  const auto add = [&](const std::string& name, std::string path) {
    entries.push_back({std::move(path), session.slot(name)->type, nullptr});
  };
  for (const Weight& weight : session.model().weights())
    if (session.has_persistent(weight.name)) add(weight.name, weight.file_path);
  const bool scaled = session.has_persistent(kLossScale) || (source != nullptr && has_loss_scale_state(*source));
  int index = 8;  // skips the scalars of both optimizers, whose bytes are negligible
  for (int copies = scaled ? 2 : 1; copies > 0; --copies)
    for (const std::string& name : state_values(session)) add(name, optimizer_path(index++));
  const WeightsFile* old = source != nullptr && source->weights ? &*source->weights : nullptr;
  return expected_weights_bytes(entries, old) + static_cast<Bytes>(config_text.size()) + 64 * kKiB;
}

}  // namespace plimsoll::engine
