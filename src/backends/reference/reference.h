// Runs every op by its own float64 reference: the yardstick of the other backends. Graphs must be built in f64.
#pragma once

#include <memory>

#include "device/kernel.h"

namespace plimsoll::engine {

std::unique_ptr<Backend> make_reference_backend();

}  // namespace plimsoll::engine
