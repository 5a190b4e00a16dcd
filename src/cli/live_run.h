// What a run is doing now, for whoever looks at it from outside: `plimsoll top`, the log, Prometheus. Refreshed at most
// once per second, so that it costs a run nothing that can be seen.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "execute/fit.h"

namespace plimsoll::engine {

struct LiveFigures {
  int64_t epoch = 0, epochs = 0, step = 0;  // epoch counts from 0
  double loss = 0;
  double samples_per_second = 0;  // of the steps of this process in this epoch
  double seconds_left = -1;       // of the whole run, without validation; -1: unknown
  Bytes held_bytes = 0;           // in the memory that the budget limits
  Bytes swapped_bytes = 0;
};

class LiveRun {
 public:
  struct Setup {
    nlohmann::ordered_json plan;  // of the log's event "plan"
    std::string model;
    Bytes budget = 0, arena = 0;
    std::function<Bytes()> held;
    std::function<void(const std::string&)> note;
    std::string prometheus;  // file of --prometheus, or ""
  };
  // Fails with P601 or P602 if --prometheus cannot be written. A missing folder for `top` is no error.
  static Result<std::unique_ptr<LiveRun>> open(Setup setup);
  ~LiveRun();
  LiveRun(const LiveRun&) = delete;
  LiveRun& operator=(const LiveRun&) = delete;

  void on_epoch_begin(int64_t epoch, int64_t epochs);
  void on_step(const StepEvent& event);
  const LiveFigures& figures() const { return figures_; }
  Status failed() const;  // P601 if the last text for Prometheus could not be written

 private:
  explicit LiveRun(Setup setup) : setup_(std::move(setup)) {}
  void refresh();
  void warn_of_swap();
  std::string prometheus_text() const;

  Setup setup_;
  LiveFigures figures_;
  double epoch_seconds_ = 0, since_refresh_ = 0;
  int64_t epoch_samples_ = 0, epoch_steps_ = 0;
  bool refreshed_ = false, warned_ = false, failed_ = false;
  std::string status_path_;  // "": there is no folder for it
};

// The folder in which runs of this user say what they are doing, one file PID.json each: below $XDG_RUNTIME_DIR, or a
// folder of this user in /tmp. Fails if there is none that nobody else may write.
Result<std::string> runs_folder(bool create);

}  // namespace plimsoll::engine
