// What failed where nothing could be returned: a kernel's run() returns nothing, so what a library or a driver says
// when work is enqueued is kept here, and whoever next takes something from the device asks, so that nothing computed
// without it is used or saved. Each device in use has its own: of two in one process, neither reports the other's
// failure.
#pragma once

#include <mutex>
#include <optional>

#include "base/error.h"

namespace plimsoll::engine {

class Failures {
 public:
  void note(Error error) noexcept;  // the first is kept
  Status take();                    // the first since this was last asked

 private:
  std::mutex mutex_;
  std::optional<Error> first_;
};

}  // namespace plimsoll::engine
