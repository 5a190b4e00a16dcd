#include "api/config_text.h"
#include "api/trainer_state.h"
#include "api/words.h"
#include "base/json.h"
#include "data/random.h"
#include "device/process_memory.h"
#include "plimsoll/plimsoll.h"

#include <fmt/format.h>

#include <algorithm>

namespace plimsoll {
using namespace engine;
namespace {

Result<nlohmann::json> config_of(const std::string& text, const char* what) {
  auto json = parse_config(text);
  if (!json) json.error().what = fmt::format("the {}: {}", what, json.error().what);
  return json;
}

Result<Description> description_of(const Sequential& model, const OptimizerSpec& optimizer, const LossSpec& loss) {
  if (!model.fault().empty()) return fail(ErrorCode::kBadConfig, model.fault());
  PLIMSOLL_ASSIGN(nlohmann::json config, config_of(model.config(), "model"));
  PLIMSOLL_ASSIGN(nlohmann::json optimizer_json, config_of(optimizer.config, "optimizer"));
  PLIMSOLL_ASSIGN(nlohmann::json loss_json, config_of(loss.config, "loss"));
  return Description{std::move(config), json_object({{"optimizer", std::move(optimizer_json)},  //
                                                     {"loss", std::move(loss_json)}})};
}

template <typename Call>
auto on(const std::unique_ptr<TrainerState>& state, Call call) -> decltype(call(*state)) {
  if (state == nullptr) return fail(ErrorCode::kUsage, "this Trainer was moved from");
  return at_border([&] { return call(*state); });
}

}  // namespace

Trainer::Trainer(std::unique_ptr<TrainerState> state) : state_(std::move(state)) {}
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;
Trainer::~Trainer() = default;

Result<Trainer> Trainer::create(const Sequential& model, const OptimizerSpec& optimizer, const LossSpec& loss,
                                const TrainerOptions& options) {
  const Bytes resident_before = resident_bytes();
  return at_border([&]() -> Result<Trainer> {
    PLIMSOLL_ASSIGN(const Description description, description_of(model, optimizer, loss));
    PLIMSOLL_ASSIGN(auto state, TrainerState::create(description, options, resident_before));
    return Trainer(std::move(state));
  });
}

Result<double> Trainer::step(const Batch& batch) {
  return on(state_, [&](TrainerState& state) { return state.step(batch); });
}
Result<void> Trainer::begin(int64_t samples) {
  return on(state_, [&](TrainerState& state) { return state.begin(samples); });
}
Result<void> Trainer::accumulate(const Batch& batch) {
  return on(state_, [&](TrainerState& state) { return state.accumulate(batch); });
}
Result<double> Trainer::apply() {
  return on(state_, [&](TrainerState& state) { return state.apply(); });
}
Result<void> Trainer::save(const std::string& path) const {
  return on(state_, [&](TrainerState& state) { return state.save(path); });
}

std::string Trainer::plan() const {
  return state_ ? state_->plan_text() : "";
}
int64_t Trainer::arena_planned_bytes() const {
  return state_ ? state_->session().plan().arena_bytes : 0;
}
int64_t Trainer::arena_peak_bytes() const {
  return state_ ? state_->session().arena_peak_bytes() : 0;
}

std::vector<float> random_uniform(const std::vector<int64_t>& shape, uint64_t seed) {
  const auto checked = checked_shape(shape, "random_uniform");
  return checked ? random_uniform(*checked, seed) : std::vector<float>();
}

std::vector<Batch> batches(const std::vector<float>& x, const std::vector<int32_t>& labels, int64_t batch_size) {
  const auto samples = static_cast<int64_t>(labels.size());
  if (batch_size < 1) return {{x, labels, {}, batch_size}};
  if (samples == 0 || x.size() % labels.size() != 0) return {{x, labels, {}, samples}};
  const int64_t row = static_cast<int64_t>(x.size()) / samples;
  std::vector<Batch> list;
  for (int64_t first = 0; first < samples;) {
    const int64_t count = std::min(batch_size, samples - first);
    list.push_back({{x.data() + first * row, count * row}, {labels.data() + first, count}, {}, count});
    first += count;
  }
  return list;
}

}  // namespace plimsoll
