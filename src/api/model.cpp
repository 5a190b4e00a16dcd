// The public Model. Every call is checked, and its errors name the options of the C++ interface.
#include "plimsoll/model.h"

#include "api/model_state.h"
#include "api/words.h"
#include "device/process_memory.h"

namespace plimsoll {
namespace {

template <typename Call>
auto on(const std::unique_ptr<engine::ModelState>& state, Call call) -> decltype(call(*state)) {
  if (state == nullptr) return fail(ErrorCode::kUsage, "this Model was moved from");
  return engine::at_border([&] {
    state->run().backend().enter_thread();
    return call(*state);
  });
}

}  // namespace

Result<Plan> plan(const Description& description, const Options& options) {
  const engine::Bytes resident_before = engine::resident_bytes();
  return engine::at_border(
      [&] { return engine::ModelState::plan_only(engine::described(description), options, resident_before); });
}

Model::Model(std::unique_ptr<engine::ModelState> state) : state_(std::move(state)) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

Result<Model> Model::create(const Description& description, const Options& options) {
  const engine::Bytes resident_before = engine::resident_bytes();
  return engine::at_border([&]() -> Result<Model> {
    PLIMSOLL_ASSIGN(auto state, engine::ModelState::create(engine::described(description), options, resident_before));
    return Model(std::move(state));
  });
}

Result<Model> Model::load(const std::string& path, const Options& options) {
  PLIMSOLL_ASSIGN(const Description description, Description::load(path));
  return create(description, options);
}

Result<History> Model::fit(const Data& data, const FitOptions& options) {
  return on(state_, [&](engine::ModelState& state) { return state.fit(*this, data, options); });
}
Result<Logs> Model::step(const Batch& batch) {
  return on(state_, [&](engine::ModelState& state) { return state.step(batch); });
}
Result<void> Model::begin(int64_t samples) {
  return on(state_, [&](engine::ModelState& state) { return state.begin(samples); });
}
Result<void> Model::accumulate(const Batch& batch) {
  return on(state_, [&](engine::ModelState& state) { return state.accumulate(batch); });
}
Result<Logs> Model::apply() {
  return on(state_, [&](engine::ModelState& state) { return state.apply(); });
}
Result<Logs> Model::test(const Batch& batch) {
  return on(state_, [&](engine::ModelState& state) { return state.test(batch); });
}
Result<Logs> Model::metrics() const {
  return on(state_, [&](engine::ModelState& state) -> Result<Logs> { return state.metrics(); });
}
Result<void> Model::reset_metrics() {
  return on(state_, [&](engine::ModelState& state) -> Result<void> {
    state.reset_metrics();
    return {};
  });
}
Result<Logs> Model::evaluate(const Data& data) {
  return on(state_, [&](engine::ModelState& state) { return state.evaluate(data); });
}
Result<std::vector<Array>> Model::predict(const Data& data) {
  return on(state_, [&](engine::ModelState& state) { return state.predict(data); });
}
Result<void> Model::predict(const Data& data,
                            const std::function<Result<void>(size_t output, const ArrayView&)>& take) {
  return on(state_, [&](engine::ModelState& state) -> Result<void> {
    if (!take) return fail(ErrorCode::kUsage, "predict() was given an empty function");
    return state.predict(data, take);
  });
}

std::vector<WeightInfo> Model::weights() const {
  return state_ ? state_->weights() : std::vector<WeightInfo>();
}
Result<Array> Model::weight(const std::string& name) const {
  return on(state_, [&](engine::ModelState& state) { return state.weight(name); });
}
Result<void> Model::set_weight(const std::string& name, const ArrayView& values) {
  return on(state_, [&](engine::ModelState& state) { return state.set_weight(name, values); });
}
Result<double> Model::learning_rate() const {
  return on(state_, [&](engine::ModelState& state) -> Result<double> { return state.learning_rate(); });
}
Result<void> Model::set_learning_rate(double rate) {
  return on(state_, [&](engine::ModelState& state) { return state.set_learning_rate(rate); });
}
int64_t Model::iterations() const {
  return state_ ? state_->run().optimizer().iteration : 0;
}
Result<void> Model::set_iterations(int64_t iterations) {
  return on(state_, [&](engine::ModelState& state) { return state.set_iterations(iterations); });
}
std::vector<WeightInfo> Model::optimizer_variables() const {
  return state_ ? state_->optimizer_variables() : std::vector<WeightInfo>();
}
Result<Array> Model::optimizer_variable(const std::string& name) const {
  return on(state_, [&](engine::ModelState& state) { return state.optimizer_variable(name); });
}
Result<void> Model::set_optimizer_variable(const std::string& name, const ArrayView& values) {
  return on(state_, [&](engine::ModelState& state) { return state.set_optimizer_variable(name, values); });
}

Result<void> Model::save(const std::string& path) const {
  return on(state_, [&](engine::ModelState& state) { return state.save(path); });
}
Result<void> Model::save_checkpoint(const std::string& path) const {
  return on(state_, [&](engine::ModelState& state) { return state.save_checkpoint(path); });
}
Result<void> Model::load_checkpoint(const std::string& path) {
  return on(state_, [&](engine::ModelState& state) { return state.load_checkpoint(path); });
}

std::vector<std::string> Model::input_names() const {
  std::vector<std::string> names;
  if (state_)
    for (const engine::Port& port : state_->run().model().inputs()) names.push_back(port.name);
  return names;
}
std::vector<std::string> Model::output_names() const {
  std::vector<std::string> names;
  if (state_)
    for (const engine::Port& port : state_->run().model().outputs()) names.push_back(port.name);
  return names;
}
Plan Model::plan() const {
  return state_ ? state_->plan() : Plan();
}
int64_t Model::arena_peak_bytes() const {
  return state_ ? state_->run().session().arena_peak_bytes() : 0;
}

}  // namespace plimsoll
