#include "backends/cuda/runtime/failures.h"

#include <mutex>
#include <utility>

namespace plimsoll::cuda {
namespace {

std::mutex mutex;
std::optional<Error> first;

}  // namespace

void note_failure(Error error) noexcept {
  const std::lock_guard lock(mutex);
  if (!first) first = std::move(error);
}

std::optional<Error> take_failure() {
  const std::lock_guard lock(mutex);
  return std::exchange(first, std::nullopt);
}

}  // namespace plimsoll::cuda
