#pragma once

#include "device/device.h"
#include "lower/lower.h"

namespace plimsoll::engine {

// Backward nodes that read a forward value compute it inside their own kernels, where that is faster than reading it
// and where everything that it is computed from is there anyway. So it takes less time and no more memory. `values`:
// how many readers were changed. The results are identical bit for bit.
struct InsideReaders {
  LoweredGraph graph;
  int64_t values = 0;
};
InsideReaders compute_inside_readers(const LoweredGraph& ordered, const Device& device);

}  // namespace plimsoll::engine
