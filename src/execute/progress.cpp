#include "execute/progress.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "formats/checkpoint/checkpoint.h"

namespace plimsoll {
namespace {

constexpr const char* kFormat = "plimsoll.checkpoint/1";

// Everything that lives between phases, micro-batch sums included; step scalars are set anew before each use.
bool belongs_in_checkpoint(const PersistentSlot& slot) {
  return slot.category != Category::kInputs || slot.name.rfind("tally:", 0) == 0;
}

nlohmann::json header_of(const Session& session, const Progress& p, const EpochSums& sums,
                         const nlohmann::json& identity) {
  return json_object({{"format", kFormat},
                      {"epoch", p.epoch},
                      {"window", p.window},
                      {"done", p.done},
                      {"steps", p.steps},
                      {"iteration", p.optimizer.iteration},
                      {"learning_rate", p.optimizer.learning_rate},
                      {"best", p.best},
                      {"waited", p.waited},
                      {"has_best", p.has_best},
                      {"epoch_sums", sums.to_json()},
                      {"weight_sums", session.weight_sums()},
                      {"identity", identity},
                      {"plan", to_json(session.plan())}});
}

Status read_header(const nlohmann::json& h, const std::string& path, Session& session, Progress& p, EpochSums& sums) {
  try {
    p.epoch = h.at("epoch");
    p.window = h.at("window");
    p.done = h.at("done");
    p.steps = h.at("steps");
    p.optimizer = {h.at("iteration"), h.at("learning_rate")};
    p.best = h.at("best");
    p.waited = h.at("waited");
    p.has_best = h.at("has_best");
    session.restore_weight_sums(h.at("weight_sums").get<std::vector<double>>());
    if (!sums.from_json(h.at("epoch_sums")))
      return fail(ErrorCode::kBadCheckpoint, fmt::format("{}: it sums other metrics than this model has", path));
  } catch (const nlohmann::json::exception& e) {
    return fail(ErrorCode::kBadCheckpoint, fmt::format("{}: header: {}", path, e.what()));
  }
  return {};
}

}  // namespace

void EpochSums::add(const std::vector<Tally>& tallies, const Sums& window, int64_t samples) {
  for (size_t i = 0; i < tallies.size(); ++i) {
    const Tally& tally = tallies[i];
    const double value = window.tallies[i];
    // The loss is a mean already, and Keras weighs it by the samples of its batch.
    const double weight = i == 0           ? static_cast<double>(samples)
                          : tally.weighted ? window.weights[static_cast<size_t>(tally.output)] *
                                                 static_cast<double>(tally.rows_per_sample)
                                           : static_cast<double>(samples * tally.rows_per_sample);
    sums_[i] += i == 0 ? value * weight : value;
    weights_[i] += weight;
  }
}

void EpochSums::means_into(std::vector<Metric>& metrics) const {
  for (size_t i = 0; i < sums_.size(); ++i) metrics[i].value = weights_[i] == 0 ? 0 : sums_[i] / weights_[i];
}

std::vector<Metric> EpochSums::means(const std::vector<Tally>& tallies) const {
  std::vector<Metric> metrics;
  for (const Tally& tally : tallies) metrics.push_back({tally.name, 0});
  means_into(metrics);
  return metrics;
}

void EpochSums::reset() {
  std::fill(sums_.begin(), sums_.end(), 0.0);
  std::fill(weights_.begin(), weights_.end(), 0.0);
}

bool EpochSums::from_json(const nlohmann::json& json) {
  const auto sums = json.at("sums").get<std::vector<double>>();
  const auto weights = json.at("weights").get<std::vector<double>>();
  if (sums.size() != sums_.size() || weights.size() != weights_.size()) return false;
  sums_ = sums;
  weights_ = weights;
  return true;
}

std::string checkpoint_path(const std::string& folder) {
  return folder + "/checkpoint.plimsoll";
}

Status save_checkpoint(const std::string& folder, const Session& session, const Progress& progress,
                       const EpochSums& sums, const nlohmann::json& identity) {
  if (mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST)
    return fail(Error{ErrorCode::kNotWritable,
                      fmt::format("the folder {} cannot be made: {}", folder, std::strerror(errno)),
                      {},
                      {"--checkpoint DIR of a folder you may write to"}});
  PLIMSOLL_ASSIGN(const HostView values, session.look());
  std::vector<CheckpointTensor> tensors;
  for (const PersistentSlot& slot : session.plan().persistent)
    if (belongs_in_checkpoint(slot)) tensors.push_back({slot.name, slot.type, values[slot.name].data});
  return write_checkpoint(checkpoint_path(folder), header_of(session, progress, sums, identity), tensors);
}

Result<Plan> plan_of_checkpoint(const std::string& folder) {
  PLIMSOLL_ASSIGN(const Checkpoint checkpoint, open_checkpoint(checkpoint_path(folder)));
  if (!checkpoint.header().contains("plan"))
    return fail(ErrorCode::kBadCheckpoint, fmt::format("{}: it carries no plan", checkpoint_path(folder)));
  auto plan = plan_from_json(checkpoint.header().at("plan"));
  if (!plan) return fail(ErrorCode::kBadCheckpoint, fmt::format("{}: {}", checkpoint_path(folder), plan.error().what));
  return plan;
}

Result<int64_t> step_of_checkpoint(const std::string& folder) {
  PLIMSOLL_ASSIGN(const Checkpoint checkpoint, open_checkpoint(checkpoint_path(folder)));
  const nlohmann::json steps = checkpoint.header().value("steps", nlohmann::json());
  if (!steps.is_number_integer())
    return fail(ErrorCode::kBadCheckpoint,
                fmt::format("{}: it does not say at which step it was made", checkpoint_path(folder)));
  return steps.get<int64_t>();
}

Result<bool> load_checkpoint(const std::string& folder, Session& session, Progress& progress, EpochSums& sums,
                             const nlohmann::json& identity) {
  const std::string path = checkpoint_path(folder);
  struct stat found {};
  if (stat(path.c_str(), &found) != 0 && errno == ENOENT) return false;
  PLIMSOLL_ASSIGN(const Checkpoint checkpoint, open_checkpoint(path));
  const nlohmann::json& header = checkpoint.header();
  if (header.value("format", "") != kFormat)
    return fail(ErrorCode::kBadCheckpoint, fmt::format("{}: not a checkpoint of format {}", path, kFormat));
  Error other{ErrorCode::kBadCheckpoint,
              fmt::format("{}: this checkpoint is of another run", path),
              {},
              {"the flags it was started with, or another --checkpoint folder"}};
  for (const auto& [key, value] : identity.items()) {
    const nlohmann::json was = header.value("identity", nlohmann::json::object()).value(key, nlohmann::json());
    if (was != value) other.fact(fmt::format("{}: {} then, {} now", key, was.dump(), value.dump()));
  }
  if (!other.facts.empty()) return fail(std::move(other));
  PLIMSOLL_TRY(read_header(header, path, session, progress, sums));
  for (const PersistentSlot& slot : session.plan().persistent)
    if (belongs_in_checkpoint(slot))
      PLIMSOLL_TRY(session.store(
          slot.name, [&](const TensorView& view) { return checkpoint.read_into(slot.name, slot.type, view.data); }));
  return true;
}

}  // namespace plimsoll
