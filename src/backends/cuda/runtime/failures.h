// A kernel's run() returns nothing: what a library says when work is enqueued is kept here, and Backend::finish() asks.
#pragma once

#include <optional>

#include "base/error.h"

namespace plimsoll::cuda {

void note_failure(Error error) noexcept;  // the first is kept
std::optional<Error> take_failure();

}  // namespace plimsoll::cuda
