// `--log FILE.jsonl`: one JSON object per line, written when the event happens.
#pragma once

#include <string>

#include "cli/live_run.h"
#include "cli/log_file.h"
#include "execute/fit.h"

namespace plimsoll::engine {

class RunLog {
 public:
  static Result<RunLog> open(const std::string& path, bool append);  // an empty path writes nothing
  void write(const nlohmann::ordered_json& line);
  void step(const StepEvent& event, const LiveFigures& live);  // does not allocate memory
  Status failed() const { return file_.failed(); }

 private:
  LogFile file_;
};

}  // namespace plimsoll::engine
