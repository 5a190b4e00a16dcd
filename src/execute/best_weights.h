// The weights of the best epoch so far, in a file: a second copy in memory would not fit the budget.
#pragma once

#include <optional>

#include "execute/session.h"
#include "formats/file/file.h"

namespace plimsoll::engine {

class BestWeights {
 public:
  // In the checkpoint folder, so that a resumed run finds them; without one in a file beside `beside`, or in $TMPDIR
  // if that is empty, that goes with this object.
  BestWeights(std::string folder, std::string beside) : folder_(std::move(folder)), beside_(std::move(beside)) {}

  // `step`: optimizer steps made, which name them.
  Status keep(const Session& session, int64_t step);
  Status restore(Session& session, int64_t step) const;

 private:
  std::string path_of(int64_t step) const;

  std::string folder_, beside_;
  std::optional<PathAside> aside_;
};

// Bytes of such a file, up to some KiB.
Bytes expected_best_weights_bytes(const Session& session);
// Where it lies without a checkpoint folder: beside which file.
std::string best_weights_beside(const std::string& saved);

}  // namespace plimsoll::engine
