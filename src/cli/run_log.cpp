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

void RunLog::step(const StepEvent& event, const LiveFigures& live) {
  if (!file_) return;
  // JSON has no NaN, so a diverged loss is written as null.
  char loss[40];
  if (std::isfinite(event.loss))
    std::snprintf(loss, sizeof loss, "%.17g", event.loss);
  else
    std::snprintf(loss, sizeof loss, "null");
  char left[40] = "";
  if (live.seconds_left >= 0) std::snprintf(left, sizeof left, ",\"seconds_left\":%.6g", live.seconds_left);
  const int written = std::fprintf(file_.get(),
                                   "{\"event\":\"step\",\"step\":%ld,\"loss\":%s,\"seconds\":%.6f,\"samples\":%ld,"
                                   "\"samples_per_second\":%.6g,\"held_bytes\":%ld%s}\n",
                                   static_cast<long>(event.step), loss, event.seconds, static_cast<long>(event.samples),
                                   live.samples_per_second, static_cast<long>(live.held_bytes), left);
  file_.wrote(written >= 0);
}

}  // namespace plimsoll::engine
