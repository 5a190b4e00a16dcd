// Writes event files of TensorBoard: TFRecord framing around the protocol buffer Event, of which scalars and histograms
// are written.
#pragma once

#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

namespace plimsoll::engine {

class EventFile {
 public:
  // Creates the folder and in it a new file events.out.tfevents.SECONDS.HOST.PID.v2. Readers take all files of a folder
  // as one run, so nothing that was there before is changed.
  static Result<EventFile> create(const std::string& folder);

  void scalar(std::string_view tag, int64_t step, double value);
  // Counts `values` in bins as TensorBoard's own summary does; values that are not finite are left out.
  void histogram(std::string_view tag, int64_t step, std::span<const float> values);
  void flush();
  // Fails with P601 if any write so far failed. A run goes on without its event files, and says so at its end.
  Status failed() const;

 private:
  void event(int64_t step, std::string_view summary);
  void record(std::string_view payload);

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  std::string summary_, event_, framed_;  // kept, so that a step allocates nothing
  bool failed_ = false;
};

}  // namespace plimsoll::engine
