#include "device/failures.h"

#include <utility>

namespace plimsoll::engine {

void Failures::note(Error error) noexcept {
  const std::lock_guard lock(mutex_);
  if (!first_) first_ = std::move(error);
}

Status Failures::take() {
  const std::lock_guard lock(mutex_);
  std::optional<Error> noted = std::exchange(first_, std::nullopt);
  if (noted) return fail(std::move(*noted));
  return {};
}

}  // namespace plimsoll::engine
