#include "cli/fit_setup.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "data/identity.h"
#include "execute/best_weights.h"
#include "execute/progress.h"
#include "formats/file/file.h"

namespace plimsoll {
namespace {

// Files of the sizes that will be written, all at once; gone again when this goes.
class Reservation {
 public:
  Status add(const std::string& path, Bytes bytes) {
    PLIMSOLL_ASSIGN(AtomicFile file, AtomicFile::create(path));
    files_.push_back(std::move(file));
    auto room = files_.back().reserve(bytes);
    if (!room)
      return fail(std::move(room.error().fact("nothing was trained: this is found out before the first step")));
    return {};
  }

 private:
  std::vector<AtomicFile> files_;
};

}  // namespace

Result<std::optional<FolderLock>> take_checkpoint_folder(const FitFlags& flags) {
  if (flags.checkpoint.empty()) return std::nullopt;
  PLIMSOLL_ASSIGN(FolderLock lock, FolderLock::take(flags.checkpoint));
  if (!lock.locks())
    message(flags, fmt::format("note: the file system of {} has no locks: two runs in it would not be noticed",
                               flags.checkpoint));
  if (!flags.resume && holds_checkpoint(flags.checkpoint))
    return fail(
        Error{ErrorCode::kCheckpointInUse,
              fmt::format("{} holds the checkpoint of an earlier run, and --resume was not given", flags.checkpoint),
              {},
              {"--resume   continues that run", "--checkpoint OTHER_DIR   starts a new one"}});
  if (flags.resume) {
    PLIMSOLL_ASSIGN(const std::string told, settle_checkpoints(flags.checkpoint));
    if (!told.empty()) message(flags, told);
  }
  return lock;
}

Result<FitIdentity> identity_of(const FitFlags& flags, const OpenModel& open, const Sources& sources) {
  FitIdentity identity;
  if (flags.checkpoint.empty()) return identity;
  PLIMSOLL_ASSIGN(identity.run, data_identity(sources.train->data()));
  const auto given = [](bool is, nlohmann::json value) { return is ? std::move(value) : nlohmann::json(); };
  const nlohmann::json flags_and_model =
      json_object({{"model", open.model.name()},
                   {kSamplesIdentity, sources.train->samples()},
                   {kBatchIdentity, flags.job.batch_size},
                   {"--gradient-accumulation-steps", flags.job.accumulation_steps},
                   {"--seed", flags.seed},
                   {"--shuffle", flags.shuffle},
                   {"--steps-per-epoch", given(flags.steps_per_epoch > 0, flags.steps_per_epoch)},
                   {"--class-weight", given(!flags.class_weight.empty(), flags.class_weight)},
                   {kScheduleIdentity, open.model.optimizer().schedule}});
  for (const auto& [key, value] : flags_and_model.items())
    if (!value.is_null()) identity.run[key] = value;
  if (sources.validation) {
    PLIMSOLL_ASSIGN(identity.validation, data_identity(sources.validation->data()));
    identity.validation["samples"] = sources.validation->samples();
  }
  return identity;
}

Status try_space(const FitFlags& flags, const CallbackOptions& callbacks, const Session& session,
                 const OpenModel& open) {
  Reservation reservation;
  const Bytes model = expected_model_bytes(session, open.archive ? &*open.archive : nullptr, open.config_text);
  if (!flags.save.empty()) PLIMSOLL_TRY(reservation.add(flags.save, model));
  if (callbacks.save_best) PLIMSOLL_TRY(reservation.add(callbacks.save_best->path, model));
  const bool restores = callbacks.early_stopping && callbacks.early_stopping->restore_best;
  if (flags.checkpoint.empty())
    return restores ? reservation.add(best_weights_beside(flags.save), expected_best_weights_bytes(session)) : Status();
  // One is being written while as many as are kept are there already.
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
  return lost.fact("lost: all training of this run, nothing was saved yet")
      .remedy("after the first Ctrl-C, wait for the message that says where it is saved");
}

}  // namespace plimsoll
