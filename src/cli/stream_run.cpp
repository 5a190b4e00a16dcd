#include "cli/stream_run.h"

#include <fmt/format.h>

#include <chrono>
#include <numeric>

#include "cli/data_flags.h"
#include "device/host_room.h"
#include "device/process_memory.h"
#include "formats/file/array_source.h"

namespace plimsoll::engine {
namespace {

// What the C++ runtime, OpenMP's threads and the writers of files take beyond the buffers of a stream.
constexpr Bytes kAround = 8 * kMiB;

std::vector<int64_t> dims_of(const StreamedArray& array) {
  std::vector<int64_t> dims{array.rows};
  dims.insert(dims.end(), array.sample.begin(), array.sample.end());
  if (array.text) dims.pop_back();
  return dims;
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

void add_stream_flags(CLI::App& command, StreamFlags& flags) {
  add_reading_flags(command, flags.read);
  command.add_option("--budget", flags.budget_text,
                     "memory for the whole process: 256MiB, 2GiB (default: what is free)");
  command.add_option("--shards", flags.shards, "number of TFRecord files to write")->check(whole_above_zero());
  command.add_flag("--json", flags.json, "print the result as JSON");
  command.add_flag("--quiet", flags.quiet, "print errors and results only");
}

Result<StreamRun> StreamRun::start(StreamFlags& flags) {
  StreamRun run(flags);
  run.budget_ = free_host_bytes() + resident_bytes();
  if (!flags.budget_text.empty()) {
    PLIMSOLL_ASSIGN(run.budget_, parse_bytes(flags.budget_text));
  }
  flags.read.note = [&flags](const std::string& text) {
    if (!flags.quiet) tell(text + "\n");
  };
  return run;
}

Status StreamRun::grant(Bytes bytes, std::vector<std::string> remedies) {
  const Bytes held = peak_resident_bytes();
  planned_ = held + bytes + kAround;
  if (planned_ <= budget_) return {};
  Error error{ErrorCode::kDoesNotFit,
              fmt::format("this needs {}, and the budget is {}", format_bytes(planned_), format_bytes(budget_)),
              {fmt::format("the program holds {} now; the work needs {} more", format_bytes(held),
                           format_bytes(bytes + kAround))},
              {fmt::format("--budget {}MiB", (planned_ + kMiB - 1) / kMiB)}};
  error.remedies.insert(error.remedies.end(), remedies.begin(), remedies.end());
  return fail(std::move(error));
}

void StreamRun::say(const std::string& text) const {
  if (!flags_->quiet) tell(text + "\n");
}

Status StreamRun::progress(const std::string& what, int64_t done, int64_t of) {
  if (stop_requested()) {
    if (drawn_at_ >= 0) draw("\n");
    return fail(ErrorCode::kInterrupted, "interrupted; nothing was written");
  }
  if (flags_->quiet || !can_redraw()) return {};
  const double time = now();
  if (done < of && time - drawn_at_ < 0.1) return {};
  drawn_at_ = time;
  draw(fmt::format("\r{} {}/{} rows{}", what, done, of, done == of ? "\n" : ""));
  return {};
}

Result<std::vector<std::string>> StreamRun::write(ArrayStream& from, const std::string& target) {
  WriteOptions options;
  options.shards = flags_->shards;
  options.progress = [&](int64_t done, int64_t of) { return progress("writing", done, of); };
  PLIMSOLL_ASSIGN(auto files, write_arrays(from, target, options));
  const Bytes peak = peak_resident_bytes() - held_by_tools();
  if (peak <= budget_) return files;
  return fail(
      Error{ErrorCode::kPeakAboveBudget,
            fmt::format("the process held {}, more than its budget of {}", format_bytes(peak), format_bytes(budget_)),
            {fmt::format("{} was written and is complete", fmt::join(files, ", "))},
            {}});
}

std::string arrays_text(const ArrayStream& stream) {
  std::string text;
  for (const StreamedArray& one : stream.arrays())
    text += fmt::format("{}{} {} {}", text.empty() ? "" : ", ", one.name, one.text ? "strings" : keras_name(one.dtype),
                        dims_text(dims_of(one)));
  return text;
}

nlohmann::ordered_json arrays_json(const ArrayStream& stream) {
  auto json = nlohmann::ordered_json::array();
  for (const StreamedArray& one : stream.arrays())
    json.push_back({{"name", one.name},
                    {"dtype", std::string(one.text ? "string" : keras_name(one.dtype))},
                    {"shape", dims_of(one)}});
  return json;
}

}  // namespace plimsoll::engine
