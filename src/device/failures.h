// Keeps errors that could not be returned. A kernel's run() returns nothing, so an error from a library or driver is
// stored here when the work is enqueued. Code that reads results from the device calls take() first, so that no result
// of failed work is used or saved. Each device in use has its own Failures: of two devices in one process, neither
// reports the other's failure.
#pragma once

#include <mutex>
#include <optional>

#include "base/error.h"

namespace plimsoll::engine {

class Failures {
 public:
  void note(Error error) noexcept;  // keeps only the first error
  Status take();                    // returns the first error since the last call of take()

 private:
  std::mutex mutex_;
  std::optional<Error> first_;
};

}  // namespace plimsoll::engine
