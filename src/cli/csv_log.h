// `--csv-log FILE`: one line per epoch, as Keras's CSVLogger writes it.
#pragma once

#include <string>

#include "base/error.h"
#include "cli/log_file.h"
#include "execute/fit.h"

namespace plimsoll::engine {

class CsvLog {
 public:
  // "" writes nothing. `first_epoch`: of a resumed run the one it goes on with; lines of it and of later ones, left by
  // a run that was killed before its next checkpoint, are removed. 0 starts a new file.
  static Result<CsvLog> open(const std::string& path, int64_t first_epoch, bool with_learning_rate);
  void epoch(const EpochEvent& event);
  Status failed() const;

 private:
  LogFile file_;
  bool with_learning_rate_ = false, has_header_ = false;
};

}  // namespace plimsoll::engine
