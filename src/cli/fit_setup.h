// What `fit` makes sure of before it trains.
#pragma once

#include <optional>

#include "cli/fit_flags.h"
#include "execute/checkpoint_folder.h"

namespace plimsoll::engine {

// The checkpoint folder, if there is one, for this run alone: P214 if another run uses it, or if it holds a checkpoint
// and --resume was not given. With --resume its newest checkpoint is whole afterwards.
Result<std::optional<FolderLock>> take_checkpoint_folder(const FitFlags& flags);

// A plan made before: of the checkpoint to go on from, or saved by `plan`. None: it is searched for.
Result<std::optional<GivenPlan>> given_plan(const FitFlags& flags);

// What a resumed run must share with the one that wrote its checkpoint, and of its validation data what it should.
struct FitIdentity {
  nlohmann::json run = nlohmann::json::object(), validation;
};
Result<FitIdentity> identity_of(const FitFlags& flags, const Run& run);

// P601 unless there is room for every file that the run will write, as far as the system tells.
Status try_space(const FitFlags& flags, const CallbackOptions& callbacks, const Run& run);

// What a second signal says is lost: everything after `step`, the last checkpoint; all of the run if there is none.
Error lost_by_signal(const FitFlags& flags, std::optional<int64_t> step);

}  // namespace plimsoll::engine
