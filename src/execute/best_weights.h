// Keeps the weights of the best epoch so far in a file, because a second copy in memory might not fit the budget.
#pragma once

#include <optional>

#include "execute/session.h"
#include "formats/file/file.h"

namespace plimsoll::engine {

class BestWeights {
 public:
  // The file is in the checkpoint folder `folder`, so that a resumed run finds it. Without a folder it is a temporary
  // file next to `beside`, or in $TMPDIR if `beside` is empty; the destructor removes it.
  BestWeights(std::string folder, std::string beside) : folder_(std::move(folder)), beside_(std::move(beside)) {}

  // `step` is the number of optimizer steps so far. It is part of the file's name.
  Status keep(const Session& session, int64_t step);
  Status restore(Session& session, int64_t step) const;

 private:
  std::string path_of(int64_t step) const;

  std::string folder_, beside_;
  std::optional<PathAside> aside_;
};

// Bytes of such a file, accurate to some KiB.
Bytes expected_best_weights_bytes(const Session& session);
// Without a checkpoint folder, the file is created next to this path: `saved`, or a path in $TMPDIR if that is empty.
std::string best_weights_beside(const std::string& saved);

}  // namespace plimsoll::engine
