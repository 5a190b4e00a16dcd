#include "cli/live_run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/json.h"
#include "base/json_text.h"
#include "base/printable.h"
#include "device/process_memory.h"
#include "formats/file/file.h"

namespace plimsoll::engine {
namespace {

constexpr double kRefreshSeconds = 1;
constexpr Bytes kNoticeableSwap = 4 * kMiB;

// Writes beside the file and renames, so that a reader sees a whole text. It is not synced: it is gone in a second.
bool replace_file(const std::string& path, const std::string& text) {
  const std::string aside = path + ".tmp";
  const Descriptor file(::open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (file.get() < 0) return false;
  if (::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) return false;
  return ::rename(aside.c_str(), path.c_str()) == 0;
}

// Whether it is a folder of this user that nobody else may write.
bool is_private(const std::string& folder) {
  struct stat info {};
  return ::lstat(folder.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() &&
         (info.st_mode & 022) == 0;
}

}  // namespace

Result<std::string> runs_folder(bool create) {
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  const std::string folder = runtime != nullptr && *runtime == '/' ? std::string(runtime) + "/plimsoll"
                                                                   : fmt::format("/tmp/plimsoll-runs-{}", ::geteuid());
  if (create) ::mkdir(folder.c_str(), 0700);
  if (is_private(folder)) return folder;
  return fail(ErrorCode::kNotWritable, fmt::format("{} is no folder of this user alone", folder));
}

Result<std::unique_ptr<LiveRun>> LiveRun::open(Setup setup) {
  if (!setup.prometheus.empty()) PLIMSOLL_TRY(PathAside::create(setup.prometheus));
  std::unique_ptr<LiveRun> live(new LiveRun(std::move(setup)));
  if (const auto folder = runs_folder(true)) live->status_path_ = fmt::format("{}/{}.json", *folder, ::getpid());
  live->refresh();
  return live;
}

LiveRun::~LiveRun() {
  if (!status_path_.empty()) ::unlink(status_path_.c_str());
}

void LiveRun::on_epoch_begin(int64_t epoch, int64_t epochs) {
  figures_.epoch = epoch;
  figures_.epochs = epochs;
  epoch_seconds_ = 0;
  epoch_samples_ = epoch_steps_ = 0;
}

void LiveRun::on_step(const StepEvent& event) {
  epoch_seconds_ += event.seconds;
  since_refresh_ += event.seconds;
  epoch_samples_ += event.samples;
  ++epoch_steps_;
  figures_.step = event.step;
  figures_.loss = event.loss;
  if (epoch_seconds_ > 0) figures_.samples_per_second = static_cast<double>(epoch_samples_) / epoch_seconds_;
  if (event.windows > 0) {
    const int64_t left = (figures_.epochs - event.epoch) * event.windows - event.window;
    figures_.seconds_left = static_cast<double>(left) * epoch_seconds_ / static_cast<double>(epoch_steps_);
  }
  if (refreshed_ && since_refresh_ < kRefreshSeconds) return;
  refreshed_ = true;
  since_refresh_ = 0;
  refresh();
}

void LiveRun::refresh() {
  figures_.held_bytes = setup_.held();
  figures_.swapped_bytes = swapped_bytes();
  warn_of_swap();
  if (!status_path_.empty()) {
    nlohmann::ordered_json status = ordered_object({{"schema", "plimsoll.run/1"},
                                                    {"pid", ::getpid()},
                                                    {"model", setup_.model},
                                                    {"budget_bytes", setup_.budget},
                                                    {"held_bytes", figures_.held_bytes},
                                                    {"swapped_bytes", figures_.swapped_bytes},
                                                    {"epoch", figures_.epoch + 1},
                                                    {"epochs", figures_.epochs},
                                                    {"step", figures_.step},
                                                    {"samples_per_second", figures_.samples_per_second},
                                                    {"plan", setup_.plan}});
    if (std::isfinite(figures_.loss)) status["loss"] = figures_.loss;
    if (figures_.seconds_left >= 0) status["seconds_left"] = figures_.seconds_left;
    if (!replace_file(status_path_, json_text(status, -1) + "\n")) status_path_.clear();
  }
  if (!setup_.prometheus.empty()) failed_ = !replace_file(setup_.prometheus, prometheus_text());
}

// The budget is what this process may hold. It says nothing about what the machine still has, so pages may be swapped.
void LiveRun::warn_of_swap() {
  if (warned_ || figures_.swapped_bytes < kNoticeableSwap || !setup_.note) return;
  warned_ = true;
  setup_.note(fmt::format(
      "note: {} of this process are swapped out, so its steps wait for the disk: other programs need the machine's "
      "memory (plimsoll top shows them), or the budget is larger than what is free",
      format_bytes(figures_.swapped_bytes)));
}

std::string LiveRun::prometheus_text() const {
  std::string label = printable(setup_.model);
  for (size_t at = 0; (at = label.find_first_of("\"\\", at)) != std::string::npos; at += 2) label.insert(at, "\\");
  std::string text;
  const auto gauge = [&](const char* name, const char* help, double value) {
    text += fmt::format("# HELP plimsoll_{0} {1}\n# TYPE plimsoll_{0} gauge\nplimsoll_{0}{{model=\"{2}\"}} {3}\n", name,
                        help, label, std::isnan(value) ? "NaN" : fmt::format("{:.9g}", value));
  };
  gauge("budget_bytes", "memory the process may hold", static_cast<double>(setup_.budget));
  gauge("held_bytes", "memory the process holds", static_cast<double>(figures_.held_bytes));
  gauge("arena_bytes", "planned bytes of the arena", static_cast<double>(setup_.arena));
  gauge("swapped_bytes", "memory of the process that is swapped out", static_cast<double>(figures_.swapped_bytes));
  gauge("epoch", "current epoch, from 1", static_cast<double>(figures_.epoch + 1));
  gauge("step", "optimizer steps made", static_cast<double>(figures_.step));
  gauge("loss", "loss of the last batch", figures_.loss);
  gauge("samples_per_second", "of this epoch", figures_.samples_per_second);
  if (figures_.seconds_left >= 0) gauge("seconds_left", "of the run, without validation", figures_.seconds_left);
  return text;
}

Status LiveRun::failed() const {
  if (!failed_) return {};
  return fail(ErrorCode::kWriteFailed, fmt::format("--prometheus {} could not be written", setup_.prometheus));
}

}  // namespace plimsoll::engine
