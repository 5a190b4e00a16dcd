// Shared by the commands that stream data from files to files: their budget, their progress, and how they end.
#pragma once

#include "cli/command.h"
#include "data/write_arrays.h"

namespace plimsoll::engine {

struct StreamFlags {
  ReadOptions read;
  std::string budget_text;
  int64_t shards = 1;
  bool json = false, quiet = false;
};
// Adds the flags for reading, --budget, --shards, --json and --quiet.
void add_stream_flags(CLI::App& command, StreamFlags& flags);

class StreamRun {
 public:
  // Fails with kUsage for a bad --budget.
  static Result<StreamRun> start(StreamFlags& flags);

  // Fails with P301 if the process, which holds what it holds now, may not take `bytes` more.
  Status grant(Bytes bytes, std::vector<std::string> remedies);
  // Draws "12/60 rows" after `what` on a terminal. Fails with P501 if a signal has asked the program to stop.
  Status progress(const std::string& what, int64_t done, int64_t of);
  // Writes `from` to `target`, and fails with P304 if the process held more than its budget.
  Result<std::vector<std::string>> write(ArrayStream& from, const std::string& target);

  Bytes planned() const { return planned_; }
  void say(const std::string& text) const;

 private:
  explicit StreamRun(StreamFlags& flags) : flags_(&flags) {}
  StreamFlags* flags_;
  Bytes budget_ = 0, planned_ = 0;
  double drawn_at_ = -1;
};

// "x uint8 (60000, 28, 28), y int32 (60000,)"
std::string arrays_text(const ArrayStream& stream);
nlohmann::ordered_json arrays_json(const ArrayStream& stream);

}  // namespace plimsoll::engine
