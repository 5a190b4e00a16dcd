// What `fit` checks and prepares before it trains.
#pragma once

#include <optional>

#include "cli/fit_flags.h"
#include "execute/checkpoint_folder.h"

namespace plimsoll::engine {

// Locks the checkpoint folder, if --checkpoint was given. Fails with P214 if another run uses the folder, or if it
// holds a checkpoint and --resume was not given. With --resume, damaged checkpoints are set aside, so that the newest
// one is whole afterwards.
Result<std::optional<FolderLock>> take_checkpoint_folder(const FitFlags& flags);

// Returns the plan of the checkpoint to resume from, or the plan of --plan. Returns none if the plan must be searched
// for.
Result<std::optional<GivenPlan>> given_plan(const FitFlags& flags);

// `run`: settings and data that a resumed run must share with the run that wrote its checkpoint. `validation`: the
// validation data, which should be the same.
struct FitIdentity {
  nlohmann::json run = nlohmann::json::object(), validation;
};
Result<FitIdentity> identity_of(const FitFlags& flags, const Run& run);

// Fails with P601 if the disk has no room for all files that the run will write, as far as the system reports it.
Status try_space(const FitFlags& flags, const CallbackOptions& callbacks, const Run& run);

// Returns the error that a second signal prints. It says what is lost: the training after `step`, the step of the last
// checkpoint, or the whole run if there is no checkpoint.
Error lost_by_signal(const FitFlags& flags, std::optional<int64_t> step);

// The error of a run that does not fit, with the remedies of `plan` that `fit` takes, too.
Error shortage_with_remedies(const FitFlags& flags, Run& run);

}  // namespace plimsoll::engine
