#include "cli/fit_setup.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/advice.h"
#include "base/json.h"
#include "cli/plan_flags.h"
#include "data/identity.h"
#include "execute/best_weights.h"
#include "execute/progress.h"
#include "formats/file/file.h"
#include "formats/json/parse.h"
#include "formats/limits.h"

namespace plimsoll::engine {
namespace {

// Reserves disk space for all files that will be written. The destructor removes the reserved files.
class Reservation {
 public:
  Status add(const std::string& path, Bytes bytes) {
    PLIMSOLL_ASSIGN(AtomicFile file, AtomicFile::create(path));
    files_.push_back(std::move(file));
    auto room = files_.back().reserve(bytes);
    if (!room)
      return fail(std::move(room.error().fact("nothing was trained yet: disk space is checked before the first step")));
    return {};
  }

 private:
  std::vector<AtomicFile> files_;
};

Result<Plan> read_plan(const std::string& path) {
  PLIMSOLL_ASSIGN(const File file, File::open_read(path));
  const auto no_plan = [&](std::string_view what) {
    return fail(Error{ErrorCode::kBadPlan,
                      fmt::format("{}: {}, expected a plan saved by plimsoll plan --save", path, what),
                      {},
                      {"plimsoll plan ... --save FILE"}});
  };
  if (file.size() > limits::kJsonBytes) return no_plan(fmt::format("too large ({})", format_bytes(file.size())));
  std::string text(static_cast<size_t>(file.size()), '\0');
  PLIMSOLL_TRY(file.pread_exact(0, std::as_writable_bytes(std::span(text))));
  const auto json = parse_json(text, path, ErrorCode::kBadPlan);
  if (!json) return no_plan("not JSON");
  if (!json->is_object() || !json->contains("format")) return no_plan("this JSON is not a plan");
  auto plan = plan_from_json(*json);
  if (!plan) plan.error().what = fmt::format("{}: {}", path, plan.error().what);
  return plan;
}

nlohmann::json bucket_limits(const LengthBuckets* buckets) {
  nlohmann::json limits = nlohmann::json::array();
  if (buckets == nullptr) return limits;
  for (const LengthBucket& bucket : buckets->list) limits.push_back(bucket.steps);
  return limits;
}

}  // namespace

Result<std::optional<FolderLock>> take_checkpoint_folder(const FitFlags& flags) {
  if (flags.checkpoint.empty()) return std::nullopt;
  return take_checkpoint_folder(flags.checkpoint, flags.resume, [&](const std::string& note) { message(flags, note); });
}

Result<std::optional<GivenPlan>> given_plan(const FitFlags& flags) {
  const bool resuming = flags.resume && holds_checkpoint(flags.checkpoint);
  if (!resuming && flags.plan.empty()) return std::nullopt;
  GivenPlan given{{}, resuming ? checkpoint_path(flags.checkpoint) : flags.plan, resuming};
  PLIMSOLL_ASSIGN(given.plan, resuming ? plan_of_checkpoint(flags.checkpoint) : read_plan(flags.plan));
  PLIMSOLL_TRY(check_plan(given));
  return given;
}

Result<FitIdentity> identity_of(const FitFlags& flags, const Run& run) {
  const RunOptions& options = run.options();
  const RunData& data = run.data();
  FitIdentity identity;
  if (flags.checkpoint.empty()) return identity;
  PLIMSOLL_ASSIGN(identity.run, data_identity(data.source->data()));
  const auto given = [](bool is, nlohmann::json value) { return is ? std::move(value) : nlohmann::json(); };
  const nlohmann::json flags_and_model =
      json_object({{"model", run.model().name()},
                   {kSamplesIdentity, data.source->samples()},
                   {kBatchIdentity, options.batch_size},
                   {"--gradient-accumulation-steps", options.accumulation_steps},
                   {"--seed", options.seed},
                   {"--shuffle", options.data.shuffle},
                   {"--steps-per-epoch", given(flags.steps_per_epoch > 0, flags.steps_per_epoch)},
                   {"--class-weight", given(!options.data.class_weight.empty(), options.data.class_weight)},
                   {"--buckets", given(run.buckets() != nullptr, bucket_limits(run.buckets()))},
                   {"--cache-pixels", given(options.data.read.cache.round_pixels, "uint8")},
                   {"--padding", given(run.buckets() != nullptr, options.data.padding)},
                   {kScheduleIdentity, run.model().optimizer().schedule}});
  for (const auto& [key, value] : flags_and_model.items())
    if (!value.is_null()) identity.run[key] = value;
  if (data.validation) {
    PLIMSOLL_ASSIGN(identity.validation, data_identity(data.validation->data()));
    identity.validation["samples"] = data.validation->samples();
  }
  return identity;
}

Status try_space(const FitFlags& flags, const CallbackOptions& callbacks, const Run& run) {
  Reservation reservation;
  const Session& session = run.session();
  const Bytes model = expected_model_bytes(session, run.opened().file_archive(), run.opened().config_text);
  if (!flags.save.empty()) PLIMSOLL_TRY(reservation.add(flags.save, model));
  if (callbacks.save_best) PLIMSOLL_TRY(reservation.add(callbacks.save_best->path, model));
  const bool restores = callbacks.early_stopping && callbacks.early_stopping->restore_best;
  if (flags.checkpoint.empty())
    return restores ? reservation.add(best_weights_beside(flags.save), expected_best_weights_bytes(session)) : Status();
  // While a new checkpoint is written, all kept ones still exist.
  constexpr int64_t kMostTried = 16;
  const int64_t there =
      holds_checkpoint(flags.checkpoint) ? 1 + static_cast<int64_t>(older_checkpoints(flags.checkpoint).size()) : 0;
  const Bytes bytes = expected_checkpoint_bytes(session);
  for (int64_t i = std::clamp<int64_t>(flags.keep_checkpoints + 1 - there, 1, kMostTried); i > 0; --i)
    PLIMSOLL_TRY(reservation.add(checkpoint_path(flags.checkpoint), bytes));
  for (int i = restores ? 2 : 0; i > 0; --i)
    PLIMSOLL_TRY(reservation.add(best_weights_path(flags.checkpoint, 0), expected_best_weights_bytes(session)));
  return {};
}

Error lost_by_signal(const FitFlags& flags, std::optional<int64_t> step) {
  Error lost{ErrorCode::kNotSaved, "interrupted twice: ended without saving", {}, {}};
  if (step)
    return lost.fact(fmt::format("lost: the training after step {}, the last checkpoint", *step))
        .remedy(fmt::format("--resume   continues from {}", checkpoint_path(flags.checkpoint)));
  return lost.fact("lost: all training of this run; nothing was saved yet")
      .remedy("after the first Ctrl-C, wait for the message that says where the training is saved");
}

Error shortage_with_remedies(const FitFlags& flags, Run& run) {
  AdviceRequest request;
  request.model = flags.options.model;
  request.flags = typed_flags(*flags.command);
  request.batch_table = request.changed_models = false;
  const Result<Advice> advice = run.within_planning_limit([&]() -> Result<Advice> { return advise(run, request); });
  if (!advice) return advice.error();
  Error error = shortage(run.request(), run.found());
  error.remedies = remedy_lines(*advice);
  const bool alone = std::any_of(advice->remedies.begin(), advice->remedies.end(), [&](const PricedRemedy& remedy) {
    return remedy.flags == advice->command_changes && remedy.fits;
  });
  if (!alone && !advice->command_changes.empty())
    error.remedy(fmt::format("{}   together: needs {}, fits, {}", advice->command_changes,
                             format_bytes(advice->command_peak_bytes), advice->command_note));
  error.remedy(fmt::format("plimsoll plan {}   with the same flags: every remedy with its price", flags.options.model));
  return error;
}

}  // namespace plimsoll::engine
