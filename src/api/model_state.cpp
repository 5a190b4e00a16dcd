#include "api/model_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>

#include "api/model_options.h"
#include "api/saved_config.h"
#include "api/words.h"
#include "base/checked.h"
#include "base/digest.h"
#include "base/suggest.h"
#include "data/checks.h"
#include "execute/progress.h"
#include "execute/state_file.h"
#include "execute/weight_places.h"
#include "model/config.h"

namespace plimsoll::engine {
namespace {

// A session measures the memory of the process before and after its construction, so only one may be constructed at a
// time.
std::mutex& creation() {
  static std::mutex mutex;
  return mutex;
}

// Opens a description, with its file if it was loaded from one. The optimizer state in the file is used only if the
// optimizer is the same.
Result<OpenModel> open_described(const DescribedModel& described, const ModelOptions& overrides) {
  const Description& description = described.description;
  if (described.file.empty()) return open_description(description, "", overrides);
  PLIMSOLL_ASSIGN(KerasArchive archive, open_keras(described.file));
  PLIMSOLL_ASSIGN(Model model, Model::create(description, overrides));
  nlohmann::json config = description.config;
  if (description.compile_config.is_object()) config["compile_config"] = description.compile_config;
  const auto optimizer = [](const nlohmann::json& of) {
    const nlohmann::json* compiled = member(of, "compile_config");
    const nlohmann::json* found = compiled != nullptr ? member(*compiled, "optimizer") : nullptr;
    return found != nullptr ? *found : nlohmann::json();
  };
  const bool same_optimizer = optimizer(config) == optimizer(archive.config);
  std::string text = config == archive.config ? archive.config_text : config.dump();
  text = saved_config(config, std::move(text), overrides, model, has_loss_scale_state(archive));
  return OpenModel{described.file, std::move(archive), std::move(text), std::move(model), same_optimizer};
}

}  // namespace

Logs logs_of(const std::vector<Metric>& metrics) {
  std::vector<plimsoll::MetricValue> list;
  for (const Metric& metric : metrics) list.push_back({metric.name, metric.value, metric.elements});
  return Logs(std::move(list));
}

ModelState::ModelState(std::unique_ptr<Run> run)
    : run_(std::move(run)), reader_(run_->model(), run_->request().graph.data), running_(run_->session().tallies()) {}

Result<std::unique_ptr<Run>> ModelState::plan_run(const DescribedModel& described, const plimsoll::Options& options,
                                                  Bytes resident_before, WrapBackend wrap_backend) {
  PLIMSOLL_ASSIGN(RunOptions made, run_options(options));
  const auto held = checked_add(resident_before, options.reserved_bytes);
  if (!held) return fail(ErrorCode::kUsage, "Options::reserved_bytes is too large to count");
  made.resident_before = *held;
  made.wrap_backend = std::move(wrap_backend);
  const nlohmann::json* compiled_loss = member(described.description.compile_config, "loss");
  made.overrides.needs_loss = options.trains || (compiled_loss != nullptr && !compiled_loss->is_null());
  PLIMSOLL_ASSIGN(OpenModel open, open_described(described, made.overrides));
  if (!options.trains) {
    // A model without a loss cannot be evaluated. If there is no file, the caller sets the weights.
    const auto& outputs = open.model.outputs();
    const bool loss = std::any_of(outputs.begin(), outputs.end(), [](const Port& port) { return port.has_loss; });
    if (!loss) made.mode = Mode::kPredict;
    made.weights_from_caller = true;
  }
  PLIMSOLL_ASSIGN(auto run, Run::open(std::move(open), std::move(made)));
  PLIMSOLL_TRY(run->search());
  return run;
}

Result<plimsoll::Plan> ModelState::plan_only(const DescribedModel& described, const plimsoll::Options& options,
                                             Bytes resident_before) {
  PLIMSOLL_ASSIGN(const auto run, plan_run(described, options, resident_before));
  plimsoll::Plan plan = plan_data(*run);
  if (!plan.fits) plan.remedies = in_api_words(does_not_fit(run->request(), run->found())).remedies;
  return plan;
}

Result<std::unique_ptr<ModelState>> ModelState::create(const DescribedModel& described,
                                                       const plimsoll::Options& options, Bytes resident_before,
                                                       WrapBackend wrap_backend) {
  const std::lock_guard lock(creation());
  PLIMSOLL_ASSIGN(auto run, plan_run(described, options, resident_before, std::move(wrap_backend)));
  if (!run->found().fits) return fail(does_not_fit(run->request(), run->found()));
  PLIMSOLL_TRY(run->backend().check_room(0));  // fails for a GPU profile, which can only be planned for
  PLIMSOLL_TRY(run->start());
  std::unique_ptr<ModelState> state(new ModelState(std::move(run)));
  PLIMSOLL_TRY(state->load_nested(described.nested));
  return state;
}

Status ModelState::load_nested(const std::vector<NestedWeights>& nested) {
  for (const auto& [file, prefix] : nested) {
    PLIMSOLL_ASSIGN(const KerasArchive archive, open_keras(file));
    if (archive.tensors() == nullptr) continue;
    std::map<std::string, std::string> places;  // only for files whose weights are not at Keras 3's paths
    if (archive.by_layer) {
      ModelOptions options;
      options.needs_training = options.needs_loss = false;
      PLIMSOLL_ASSIGN(const Model model, Model::create({archive.config, nullptr}, options));
      PLIMSOLL_ASSIGN(const auto listed, weight_places(model, archive));
      for (size_t i = 0; i < listed.size(); ++i) places.emplace(model.weights()[i].file_path, listed[i]);
    }
    for (const Weight& weight : run_->model().weights()) {
      if (!weight.file_path.starts_with(prefix) || !session().has_persistent(weight.name)) continue;
      std::string path = weight.file_path.substr(prefix.size());
      if (const auto place = places.find(path); place != places.end()) path = place->second;
      PLIMSOLL_TRY(session().store(weight.name, [&](const TensorView& view) {
        return archive.tensors()->read_into(path, view.type, view.data);
      }));
    }
  }
  return {};
}

Status ModelState::check_trains() const {
  if (run_->options().mode == Mode::kTrain) return {};
  return fail(
      Error{ErrorCode::kUsage, "this model was made with Options::trains = false", {}, {"options.trains = true"}});
}

Status ModelState::check_between(const char* call) const {
  if (fitting_) return fail(ErrorCode::kUsage, fmt::format("{} inside a callback of fit()", call));
  if (window_ > 0)
    return fail(ErrorCode::kUsage,
                fmt::format("{} inside a window of {} samples: apply() has to end it first", call, window_));
  return {};
}

Status ModelState::begin(int64_t samples) {
  PLIMSOLL_TRY(check_trains());
  if (window_ > 0)
    return fail(
        Error{ErrorCode::kUsage,
              fmt::format("a window of {} samples is in progress, and {} of them were accumulated", window_, done_),
              {},
              {"accumulate() the rest, then apply()"}});
  PLIMSOLL_TRY(check_between("begin()"));
  const int64_t most = cut().effective;
  if (samples < 1 || samples > most)
    return fail(Error{ErrorCode::kUsage,
                      fmt::format("begin({}): a window has from 1 to {} samples", samples, most),
                      {fmt::format("Options::batch_size {} x gradient_accumulation_steps {}",
                                   run_->options().batch_size, run_->request().accumulation_steps)},
                      {}});
  return start(samples);
}

Status ModelState::start(int64_t samples) {
  PLIMSOLL_TRY(run_->begin(samples));
  window_ = samples;
  done_ = 0;
  return {};
}

Status ModelState::accumulate(const Batch& batch) {
  if (window_ == 0) return fail(ErrorCode::kUsage, "accumulate() without begin(): no window is in progress");
  PLIMSOLL_ASSIGN(const BoundBatch bound, reader_.bind(batch, run_->options().batch_size, true));
  if (bound.samples > window_ - done_)
    return fail(ErrorCode::kUsage, fmt::format("the window was begun for {} samples, this batch makes {}", window_,
                                               done_ + bound.samples));
  if (cut().micro == cut().effective && bound.samples < window_)
    return fail(Error{ErrorCode::kUsage,
                      "this model was planned for windows of one batch each",
                      {},
                      {"options.gradient_accumulation_steps above 1", "step() for each batch"}});
  PLIMSOLL_TRY(run_->prepare(session().plan().gradient_phase(), bound.samples));
  return run_batch(bound);
}

Result<Logs> ModelState::apply() {
  if (window_ == 0) return fail(ErrorCode::kUsage, "apply() without begin(): no window is in progress");
  if (done_ != window_)
    return fail(ErrorCode::kUsage,
                fmt::format("apply(): the window was begun for {} samples, {} were given", window_, done_));
  return finish();
}

Result<Logs> ModelState::step(const Batch& batch) {
  PLIMSOLL_TRY(check_trains());
  PLIMSOLL_TRY(check_between("step()"));
  const int64_t most = run_->options().batch_size;
  PLIMSOLL_ASSIGN(const BoundBatch bound, reader_.bind(batch, most, true));
  PLIMSOLL_TRY(run_->prepare(session().plan().gradient_phase(), bound.samples));
  PLIMSOLL_TRY(start(bound.samples));
  PLIMSOLL_TRY(run_batch(bound));
  return finish();
}

Status ModelState::run_batch(const BoundBatch& batch) {
  const Status status =
      run_->accumulate(batch.samples, [&](const BatchRequest& piece, const BatchBuffers& into) -> Status {
        reader_.copy(batch, piece.first, piece.count, 0, into);
        return {};
      });
  if (status)
    done_ += batch.samples;
  else
    window_ = done_ = 0;  // its sums are incomplete; the next begin() clears them
  return status;
}

Logs ModelState::report(const Sums& sums, int64_t samples) {
  running_.add(session().tallies(), sums, samples);
  EpochSums own(session().tallies());
  own.add(session().tallies(), sums, samples);
  return logs_of(own.means(session().tallies()));
}

Logs ModelState::metrics() const {
  return logs_of(running_.means(session().tallies()));
}

Result<Logs> ModelState::finish() {
  const int64_t samples = window_;
  window_ = done_ = 0;
  PLIMSOLL_TRY(run_->apply());
  PLIMSOLL_ASSIGN(const Sums* sums, session().collect());
  Logs logs = report(*sums, samples);
  if (std::isfinite(logs.loss()) || !run_->options().refuse_divergence) return logs;
  return fail(Error{ErrorCode::kDataNotFinite,
                    fmt::format("the loss is {}: training has diverged", logs.loss()),
                    {"every element of the batch is finite", "the weights are no longer usable"},
                    {"a smaller learning rate: optimizers::Adam({.learning_rate = 1e-4})",
                     "scale the inputs to about 1: layers::Rescaling(1.0 / 255)"}});
}

const Weight* ModelState::find_weight(const std::string& name) const {
  const auto& list = run_->model().weights();
  const auto found = std::find_if(list.begin(), list.end(), [&](const Weight& weight) { return weight.name == name; });
  return found != list.end() && session().has_persistent(name) ? &*found : nullptr;
}

namespace {

Error no_weight(const std::string& name, const Model& model) {
  std::vector<std::string> names;
  for (const Weight& weight : model.weights()) names.push_back(weight.name);
  Error error{ErrorCode::kUsage, fmt::format("the model has no weight '{}'", name), {}, {}};
  if (const std::string meant = suggestion(name, names); !meant.empty())
    return error.remedy("did you mean '" + meant + "'?");
  return error.remedy("weights() lists their names");
}

}  // namespace

std::vector<WeightInfo> ModelState::weights() const {
  std::vector<WeightInfo> list;
  for (const Weight& weight : run_->model().weights())
    if (const PersistentSlot* slot = session().slot(weight.name))
      list.push_back({weight.name, weight.shape.dims, std::string(keras_name(slot->type.dtype)), weight.trainable});
  return list;
}

Result<Array> ModelState::copy_of(const std::string& value, const Shape& shape) const {
  PLIMSOLL_ASSIGN(const HostView values, session().look());
  const TensorView view = values[value];
  return Array::copy_of({view.data, view.elements(), keras_name(view.type.dtype), shape.dims});
}

Status ModelState::set_value(const std::string& value, const Shape& shape, const std::string& label,
                             const ArrayView& values) {
  if (!values.given()) return fail(ErrorCode::kDataShape, label + ": no array is given");
  PLIMSOLL_ASSIGN(const DType dtype, check_view(values, label));
  if (values.shape() != shape.dims)
    return fail(ErrorCode::kDataShape, fmt::format("{} has the shape {}, the array has {}", label,
                                                   shape_text(shape.dims), shape_text(values.shape())));
  if (const auto at = first_not_finite(dtype, values.data(), values.elements()))
    return fail(ErrorCode::kDataNotFinite,
                fmt::format("{}: element {} is {}", label, *at, element_text(dtype, values.data(), *at)));
  return session().store(value, [&](const TensorView& view) -> Status {
    convert_elements(dtype, values.data(), view.type.dtype, view.data, view.elements());
    return {};
  });
}

Result<Array> ModelState::weight(const std::string& name) const {
  const Weight* weight = find_weight(name);
  if (weight == nullptr) return fail(no_weight(name, run_->model()));
  return copy_of(name, weight->shape);
}

Status ModelState::set_weight(const std::string& name, const ArrayView& values) {
  const Weight* weight = find_weight(name);
  if (weight == nullptr) return fail(no_weight(name, run_->model()));
  return set_value(name, weight->shape, fmt::format("weight '{}'", name), values);
}

double ModelState::learning_rate() const {
  const OptimizerState& state = run_->optimizer();
  const Optimizer& optimizer = run_->model().optimizer();
  return optimizer.schedule.is_null() ? state.learning_rate : learning_rate_at(optimizer, state.iteration);
}

Status ModelState::set_learning_rate(double rate) {
  PLIMSOLL_TRY(check_trains());
  if (!run_->model().optimizer().schedule.is_null())
    return fail(Error{ErrorCode::kUsage,
                      "a schedule sets the learning rate of this model's optimizer",
                      {},
                      {"an optimizer with a constant rate: optimizers::Adam({.learning_rate = 1e-3})"}});
  if (!std::isfinite(rate) || rate < 0)
    return fail(ErrorCode::kUsage, fmt::format("a learning rate is a number above or equal to 0, got {}", rate));
  run_->optimizer().learning_rate = rate;
  return {};
}

Status ModelState::set_iterations(int64_t iterations) {
  PLIMSOLL_TRY(check_trains());
  if (iterations < 0)
    return fail(ErrorCode::kUsage, fmt::format("set_iterations({}): the number cannot be negative", iterations));
  run_->optimizer().iteration = iterations;
  return {};
}

std::vector<WeightInfo> ModelState::optimizer_variables() const {
  std::vector<WeightInfo> list;
  if (run_->options().mode != Mode::kTrain) return list;
  for (const StateVariable& variable : state_of(session())) {
    const PersistentSlot* slot = variable.value.empty() ? nullptr : session().slot(variable.value);
    if (slot == nullptr)
      list.push_back({"", variable.shape.dims, variable.value.empty() ? "int32" : "float32", false});
    else
      list.push_back({variable.value, variable.shape.dims, std::string(keras_name(slot->type.dtype)), false});
  }
  return list;
}

Result<StateVariable> ModelState::find_state(const std::string& name) const {
  PLIMSOLL_TRY(check_trains());
  if (!name.empty() && session().has_persistent(name))
    for (StateVariable& variable : state_of(session()))
      if (variable.value == name) return std::move(variable);
  return fail(Error{ErrorCode::kUsage,
                    fmt::format("the optimizer has no variable '{}'", name),
                    {},
                    {"optimizer_variables() lists their names"}});
}

Result<Array> ModelState::optimizer_variable(const std::string& name) const {
  PLIMSOLL_ASSIGN(const StateVariable variable, find_state(name));
  return copy_of(name, variable.shape);
}

Status ModelState::set_optimizer_variable(const std::string& name, const ArrayView& values) {
  PLIMSOLL_ASSIGN(const StateVariable variable, find_state(name));
  return set_value(name, variable.shape, fmt::format("optimizer variable '{}'", name), values);
}

Status ModelState::save(const std::string& path) const {
  if (window_ > 0)
    return fail(ErrorCode::kUsage,
                fmt::format("save() inside a window of {} samples: apply() has to end it first", window_));
  return run_->save(path);
}

// Identifies the model that a state belongs to, by its architecture and optimizer. The batch and the budget may differ.
nlohmann::json ModelState::identity() const {
  Digest digest;
  for (const Weight& weight : run_->model().weights()) {
    const std::string text = fmt::format("{}:{};", weight.name, to_text(weight.shape));
    digest.add(std::as_bytes(std::span(text)));
  }
  return {{"model", run_->model().name()}, {"weights", digest.text()}, {"precision", run_->options().precision}};
}

Status ModelState::save_checkpoint(const std::string& path) const {
  if (window_ > 0)
    return fail(ErrorCode::kUsage,
                fmt::format("save_checkpoint() inside a window of {} samples: apply() has to end it first", window_));
  return write_state(session(), run_->optimizer(), identity(), path);
}

Status ModelState::load_checkpoint(const std::string& path) {
  PLIMSOLL_TRY(check_between("load_checkpoint()"));
  PLIMSOLL_ASSIGN(run_->optimizer(), read_state(session(), identity(), path));
  return {};
}

plimsoll::Plan ModelState::plan() const {
  return plan_data(*run_);
}

}  // namespace plimsoll::engine
