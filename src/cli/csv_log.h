// `--csv-log FILE`: one line per epoch, as Keras's CSVLogger writes it.
#pragma once

#include <string>

#include "base/error.h"
#include "cli/log_file.h"
#include "execute/fit.h"

namespace plimsoll::engine {

class CsvLog {
 public:
  // An empty path writes nothing. `first_epoch` is the epoch at which a resumed run continues, or 0 for a new file.
  // Lines of that epoch and later ones, left by a run that was killed before its next checkpoint, are removed.
  static Result<CsvLog> open(const std::string& path, int64_t first_epoch, bool with_learning_rate);
  void epoch(const EpochEvent& event);
  Status failed() const;

 private:
  LogFile file_;
  bool with_learning_rate_ = false, has_header_ = false;
};

}  // namespace plimsoll::engine
