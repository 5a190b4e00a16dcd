#include "cli/run_log.h"

#include <cmath>
#include <cstdio>

#include "base/json_text.h"

namespace plimsoll::engine {

Result<RunLog> RunLog::open(const std::string& path, bool append) {
  RunLog log;
  if (path.empty()) return log;
  PLIMSOLL_ASSIGN(log.file_, LogFile::open(path, "--log", append));
  return log;
}

void RunLog::write(const nlohmann::ordered_json& line) {
  if (file_) file_.write(json_text(line, -1) + "\n");
}

void RunLog::step(const StepEvent& event) {
  if (!file_) return;
  // JSON has no NaN, so a diverged loss is written as null.
  char loss[40];
  if (std::isfinite(event.loss))
    std::snprintf(loss, sizeof loss, "%.17g", event.loss);
  else
    std::snprintf(loss, sizeof loss, "null");
  const int written = std::fprintf(file_.get(), "{\"event\":\"step\",\"step\":%ld,\"loss\":%s,\"seconds\":%.6f}\n",
                                   static_cast<long>(event.step), loss, event.seconds);
  file_.wrote(written >= 0);
}

}  // namespace plimsoll::engine
