#include "cli/run_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>

#include "base/json_text.h"
#include "formats/file/file.h"

namespace plimsoll {

Result<RunLog> RunLog::open(const std::string& path, bool append) {
  RunLog log;
  log.path_ = path;
  if (path.empty()) return log;
  // O_NONBLOCK: a named pipe that nobody reads must not hang us. Once it is open, a reader may be as slow as it likes.
  Descriptor fd(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | (append ? O_APPEND : O_TRUNC), 0666));
  if (fd.get() < 0 && errno == ENXIO)
    return fail(Error{ErrorCode::kNotWritable,
                      fmt::format("cannot write the log {}: it is a pipe that nobody reads", path),
                      {},
                      {"--log FILE.jsonl, or start the reader first"}});
  if (fd.get() < 0 || ::fcntl(fd.get(), F_SETFL, append ? O_APPEND : 0) != 0)
    return fail(write_error(errno, path, "opening the log"));
  log.file_.reset(::fdopen(fd.get(), append ? "a" : "w"));
  if (!log.file_) return fail(write_error(errno, path, "opening the log"));
  fd.release();
  return log;
}

void RunLog::write(const nlohmann::ordered_json& line) {
  if (!file_) return;
  const std::string text = json_text(line, -1) + "\n";
  failed_ = std::fputs(text.c_str(), file_.get()) < 0 || std::fflush(file_.get()) != 0 || failed_;
}

void RunLog::step(const StepEvent& event) {
  if (!file_) return;
  // JSON has no NaN; a diverged loss is null there.
  char loss[40];
  if (std::isfinite(event.loss))
    std::snprintf(loss, sizeof loss, "%.17g", event.loss);
  else
    std::snprintf(loss, sizeof loss, "null");
  const int written = std::fprintf(file_.get(), "{\"event\":\"step\",\"step\":%ld,\"loss\":%s,\"seconds\":%.6f}\n",
                                   static_cast<long>(event.step), loss, event.seconds);
  failed_ = written < 0 || std::fflush(file_.get()) != 0 || failed_;
}

Status RunLog::failed() const {
  if (!failed_) return {};
  return fail(Error{ErrorCode::kWriteFailed,
                    fmt::format("{}: the log could not be written", path_),
                    {},
                    {"free space on that disk, or --log elsewhere"}});
}

}  // namespace plimsoll
