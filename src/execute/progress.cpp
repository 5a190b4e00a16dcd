#include "execute/progress.h"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <numeric>
#include <set>

#include "base/checked.h"
#include "base/json_numbers.h"
#include "model/values.h"

namespace plimsoll::engine {
namespace {

using Json = nlohmann::json;

// A checkpoint holds every value that lives between phases, including micro-batch sums. Step scalars are left out,
// because they are set again before each use.
bool belongs_in_checkpoint(const PersistentSlot& slot) {
  return slot.category != Category::kInputs || is_tally_value(slot.name);
}

Json numbers_to_json(const std::vector<double>& numbers) {
  Json list = Json::array();
  for (const double number : numbers) list.push_back(number_to_json(number));
  return list;
}

// Reads a list into `numbers`. Returns false if the list has another length or an element is not a valid number.
bool numbers_from_json(const Json& list, bool finite, std::vector<double>& numbers) {
  if (!list.is_array() || list.size() != numbers.size()) return false;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const auto number = number_from_json(list[i]);
    if (!number || (finite && !std::isfinite(*number))) return false;
    numbers[i] = *number;
  }
  return true;
}

Json header_of(const Session& session, const RunState& state, const Progress& p, const FitOptions& options) {
  return json_object({{"format", kCheckpointFormat},
                      {"epoch", p.epoch},
                      {"window", p.window},
                      {"done", p.done},
                      {"steps", p.steps},
                      {"iteration", p.optimizer.iteration},
                      {"learning_rate", p.optimizer.learning_rate},
                      {"given_learning_rate", options.learning_rate ? Json(*options.learning_rate) : Json()},
                      {"callbacks", state.callbacks.to_json()},
                      {"epoch_sums", state.sums.to_json()},
                      {"weight_sums", numbers_to_json(session.weight_sums())},
                      {"identity", options.identity},
                      {"validation", options.validation_identity},
                      {"plan", to_json(session.plan())}});
}

std::string shown(const Json& value) {
  if (value.is_null()) return "none";
  return value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Returns one line per key that differs. A key that only one side has counts as a difference.
std::vector<std::string> identity_differences(const Json& then, const Json& now, bool rate_given) {
  std::set<std::string> keys;
  for (const Json* side : {&then, &now})
    for (const auto& [key, value] : side->items()) keys.insert(key);
  const auto differs = [&](const std::string& key) { return then.value(key, Json()) != now.value(key, Json()); };
  constexpr std::string_view kContents = "contents of ";
  std::vector<std::string> lines;
  for (const std::string& key : keys) {
    if (!differs(key) || (key == kScheduleIdentity && rate_given)) continue;
    // If an array's shape differs, its contents differ too, and a second line would add nothing.
    if (key.starts_with(kContents) && differs(key.substr(kContents.size()))) continue;
    // If the user did not set the batch size, it follows from the number of samples.
    if (key == kBatchIdentity && differs(kSamplesIdentity)) continue;
    lines.push_back(fmt::format("{}: {} in the checkpoint, {} now", key, shown(then.value(key, Json())),
                                shown(now.value(key, Json()))));
  }
  return lines;
}

// Reads the header of a checkpoint and validates every value. The CRC proves nothing, because an attacker who changes a
// number can recompute it.
class HeaderReader {
 public:
  HeaderReader(const Json& header, const std::string& path) : header_(header), path_(path) {}

  const Json& at(const char* key) const {
    static const Json none;
    const auto found = header_.find(key);
    return found == header_.end() ? none : *found;
  }

  tl::unexpected<Error> bad(const std::string& what) const {
    return fail(Error{ErrorCode::kBadCheckpoint,
                      fmt::format("{}: {}", path_, what),
                      {},
                      {"--checkpoint OTHER_DIR without --resume   starts again"}});
  }

  Result<int64_t> whole(const char* key, int64_t least, int64_t most) const {
    if (const auto number = whole_number(at(key), least, most)) return *number;
    return bad(fmt::format("its header has {} for \"{}\", a whole number from {} to {} was expected", shown(at(key)),
                           key, least, most));
  }

  Result<Progress> progress(const RunCut& cut) const {
    Progress p;
    PLIMSOLL_ASSIGN(p.epoch, whole("epoch", 0, kMostSteps));
    PLIMSOLL_ASSIGN(p.window, whole("window", 0, cut.windows));
    const int64_t size = p.window < cut.windows ? cut.window_size(p.window) : 1;
    PLIMSOLL_ASSIGN(p.done, whole("done", 0, size - 1));
    if (p.done % cut.batch.micro != 0)
      return bad(fmt::format("its position is {} samples into a window, which is not a multiple of the micro-batch {}",
                             p.done, cut.batch.micro));
    PLIMSOLL_ASSIGN(p.steps, whole("steps", 0, kMostSteps));
    const auto before = checked_multiply(p.epoch, cut.windows);
    if (is_unknown(cut) ? p.steps < p.window : !before || checked_add(*before, p.window) != p.steps)
      return bad(fmt::format("its step is {}, but its position is {} epochs of {} steps plus {} steps", p.steps,
                             p.epoch, cut.windows, p.window));
    PLIMSOLL_ASSIGN(p.optimizer.iteration, whole("iteration", p.steps, kMostSteps));
    const auto rate = number_from_json(at("learning_rate"));
    if (!rate || !std::isfinite(*rate))
      return bad(fmt::format("its learning rate is {}, a number was expected", shown(at("learning_rate"))));
    p.optimizer.learning_rate = *rate;
    return p;
  }

 private:
  const Json& header_;
  const std::string& path_;
};

Status check_identity(const HeaderReader& header, const std::string& path, const FitOptions& options) {
  const Json& then = header.at("identity");
  if (!then.is_object()) return header.bad("it does not say which run it belongs to");
  auto lines = identity_differences(then, options.identity, options.learning_rate.has_value());
  if (lines.empty()) return {};
  return fail(Error{ErrorCode::kBadCheckpoint,
                    fmt::format("{}: this checkpoint belongs to another run", path),
                    std::move(lines),
                    {"use the flags and data that the run was started with", "use another --checkpoint folder"}});
}

// A learning rate on the command line replaces the checkpoint's rate. If the run already had the same flag before, the
// checkpoint's rate stays, because --reduce-lr-on-plateau may have reduced it since.
void choose_learning_rate(const HeaderReader& header, const FitOptions& options, Progress& progress,
                          std::vector<std::string>& notes) {
  if (!options.learning_rate || header.at("given_learning_rate") == *options.learning_rate) return;
  notes.push_back(
      fmt::format("learning rate {:g}, was {:g}", *options.learning_rate, progress.optimizer.learning_rate));
  progress.optimizer.learning_rate = *options.learning_rate;
}

}  // namespace

EpochSums::EpochSums(const std::vector<Tally>& tallies) : tallies_(tallies), weights_(tallies.size(), 0) {
  size_t numbers = 0;
  for (const Tally& tally : tallies) numbers += tally.size();
  sums_.assign(numbers, 0);
}

void EpochSums::add(const std::vector<Tally>& tallies, const Sums& window, int64_t samples) {
  size_t next = 0;
  for (size_t i = 0; i < tallies.size(); ++i) {
    const Tally& tally = tallies[i];
    // The loss is already a mean. Keras weights it by the number of samples in its batch.
    const double weight = tally.per_batch  ? static_cast<double>(samples)
                          : tally.weighted ? window.weights[static_cast<size_t>(tally.output)] *
                                                 static_cast<double>(tally.rows_per_sample)
                                           : static_cast<double>(samples * tally.rows_per_sample);
    for (const size_t end = next + tally.size(); next < end; ++next)
      sums_[next] += tally.per_batch ? window.tallies[next] * weight : window.tallies[next];
    weights_[i] += weight;
  }
}

void EpochSums::add(const EpochSums& other) {
  for (size_t i = 0; i < sums_.size(); ++i) sums_[i] += other.sums_[i];
  for (size_t i = 0; i < weights_.size(); ++i) weights_[i] += other.weights_[i];
}

void EpochSums::means_into(std::vector<Metric>& metrics) const {
  size_t next = 0;
  for (size_t i = 0; i < tallies_.size(); ++i) {
    const Tally& tally = tallies_[i];
    const double mean = weights_[i] == 0 ? 0 : sums_[next] / weights_[i];
    const auto sums = std::span(sums_).subspan(next, tally.size());
    metrics[i].value = tally.result ? tally.result(sums) : tally.of_mean ? tally.of_mean(mean) : mean;
    if (tally.elements) {
      std::vector<double>& each = metrics[i].elements;
      each = tally.elements(sums);
      metrics[i].value = std::accumulate(each.begin(), each.end(), 0.0) / static_cast<double>(each.size());
    }
    next += tally.size();
  }
}

std::vector<Metric> EpochSums::means(const std::vector<Tally>& tallies) const {
  std::vector<Metric> metrics;
  for (const Tally& tally : tallies) metrics.push_back({tally.name});
  means_into(metrics);
  return metrics;
}

void EpochSums::reset() {
  std::fill(sums_.begin(), sums_.end(), 0.0);
  std::fill(weights_.begin(), weights_.end(), 0.0);
}

Json EpochSums::to_json() const {
  return json_object({{"sums", numbers_to_json(sums_)}, {"weights", numbers_to_json(weights_)}});
}

// Sums may be infinite or NaN, because the loss may have diverged. Weights must be finite.
bool EpochSums::from_json(const Json& json) {
  if (!json.is_object() || !json.contains("sums") || !json.contains("weights")) return false;
  return numbers_from_json(json.at("sums"), false, sums_) && numbers_from_json(json.at("weights"), true, weights_);
}

Status save_checkpoint(CheckpointRotation& rotation, const Session& session, const RunState& state,
                       const Progress& next, const FitOptions& options) {
  PLIMSOLL_ASSIGN(const HostView values, session.look());
  std::vector<CheckpointTensor> tensors;
  for (const PersistentSlot& slot : session.persistent())
    if (belongs_in_checkpoint(slot)) tensors.push_back({slot.name, slot.type, values[slot.name].data});
  return rotation.write(next.steps, state.callbacks.best_step, header_of(session, state, next, options), tensors);
}

Bytes expected_checkpoint_bytes(const Session& session) {
  Bytes bytes = 64 * kKiB + static_cast<Bytes>(to_json(session.plan()).dump().size());
  for (const PersistentSlot& slot : session.persistent())
    if (belongs_in_checkpoint(slot)) bytes += align_up(slot.type.bytes()) + 256;  // 256: its entry in the tensor table
  return bytes;
}

Result<Plan> plan_of_checkpoint(const std::string& folder) {
  const std::string path = checkpoint_path(folder);
  PLIMSOLL_ASSIGN(const Checkpoint checkpoint, open_stored(path));
  if (!checkpoint.header().contains("plan"))
    return fail(ErrorCode::kBadCheckpoint, fmt::format("{}: it contains no plan", path));
  auto plan = plan_from_json(checkpoint.header().at("plan"));
  if (!plan) return fail(ErrorCode::kBadCheckpoint, fmt::format("{}: {}", path, plan.error().what));
  return plan;
}

Result<int64_t> step_of_checkpoint(const std::string& folder) {
  const std::string path = checkpoint_path(folder);
  PLIMSOLL_ASSIGN(const Checkpoint checkpoint, open_stored(path));
  return HeaderReader(checkpoint.header(), path).whole("steps", 0, kMostSteps);
}

Result<int64_t> epoch_of_checkpoint(const std::string& folder) {
  const std::string path = checkpoint_path(folder);
  PLIMSOLL_ASSIGN(const Checkpoint checkpoint, open_stored(path));
  return HeaderReader(checkpoint.header(), path).whole("epoch", 0, kMostSteps);
}

Status check_checkpoint(const std::string& folder, const FitOptions& options) {
  const std::string path = checkpoint_path(folder);
  PLIMSOLL_ASSIGN(const Checkpoint checkpoint, open_stored(path));
  return check_identity(HeaderReader(checkpoint.header(), path), path, options);
}

Result<bool> load_checkpoint(Session& session, RunState& state, const RunCut& cut, const FitOptions& options,
                             std::vector<std::string>& notes) {
  if (!holds_checkpoint(options.checkpoint_folder)) return false;
  const std::string path = checkpoint_path(options.checkpoint_folder);
  PLIMSOLL_ASSIGN(const Checkpoint checkpoint, open_stored(path));
  const HeaderReader header(checkpoint.header(), path);
  PLIMSOLL_TRY(check_identity(header, path, options));
  PLIMSOLL_ASSIGN(state.progress, header.progress(cut));
  if (!state.sums.from_json(header.at("epoch_sums"))) return header.bad("its metrics differ from those of this model");
  std::vector<double> weight_sums(session.weight_sums().size());
  if (!numbers_from_json(header.at("weight_sums"), true, weight_sums))
    return header.bad("it does not have one sum of sample weights per output");
  session.restore_weight_sums(std::move(weight_sums));
  if (!state.callbacks.from_json(header.at("callbacks"), notes))
    return header.bad("its state of early stopping, the learning rate or the best model is not valid");
  choose_learning_rate(header, options, state.progress, notes);
  if (header.at("validation") != options.validation_identity)
    notes.push_back(
        "the validation data differ from those of the checkpoint: earlier val_ metrics were measured on other data");
  for (const PersistentSlot& slot : session.persistent())
    if (belongs_in_checkpoint(slot))
      PLIMSOLL_TRY(session.store(
          slot.name, [&](const TensorView& view) { return checkpoint.read_into(slot.name, slot.type, view.data); }));
  return true;
}

}  // namespace plimsoll::engine
