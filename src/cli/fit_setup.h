// What `fit` makes sure of before it trains.
#pragma once

#include <optional>

#include "cli/fit_flags.h"
#include "execute/checkpoint_folder.h"

namespace plimsoll {

// The checkpoint folder, if there is one, for this run alone: P214 if another run uses it, or if it holds a checkpoint
// and --resume was not given. With --resume its newest checkpoint is whole afterwards.
Result<std::optional<FolderLock>> take_checkpoint_folder(const FitFlags& flags);

// What a resumed run must share with the one that wrote its checkpoint, and of its validation data what it should.
struct FitIdentity {
  nlohmann::json run = nlohmann::json::object(), validation;
};
Result<FitIdentity> identity_of(const FitFlags& flags, const OpenModel& open, const Sources& sources);

// P601 unless there is room for every file that the run will write, as far as the system tells.
Status try_space(const FitFlags& flags, const CallbackOptions& callbacks, const Session& session,
                 const OpenModel& open);

// What a second signal says is lost: everything after `step`, the last checkpoint; all of the run if there is none.
Error lost_by_signal(const FitFlags& flags, std::optional<int64_t> step);

}  // namespace plimsoll
