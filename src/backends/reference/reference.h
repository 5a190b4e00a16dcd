// Runs every op by its own float64 reference function. The other backends are tested against it. Graphs must be built
// in f64.
#pragma once

#include <memory>

#include "device/kernel.h"

namespace plimsoll::engine {

std::unique_ptr<Backend> make_reference_backend();

}  // namespace plimsoll::engine
