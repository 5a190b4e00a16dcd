// Layers that work along chosen axes of their input: the axes are moved to the end, where the ops have them, and back.
#pragma once

#include <string>
#include <vector>

#include "model/layer.h"

namespace plimsoll::engine {

// Reads an integer, a list of integers or null (an empty list). Keras writes a list for a built LayerNormalization.
std::vector<int64_t> read_axis_list(Config& config, const std::string& key, std::vector<int64_t> otherwise);

// Converts axes that count the batch to sorted non-negative ones. Fails with kBadGeometry if one is outside the input,
// is the batch, or is listed twice.
Result<std::vector<int64_t>> checked_axes(const std::vector<int64_t>& axes, const Shape& sample,
                                          const std::string& where);

// Returns x with these axes (sorted) last, as one dimension: [the other axes..., product of these]. No node is added
// for an axis that is already last.
ValueId axes_to_end(const BuildCall& call, ValueId x, const std::vector<int64_t>& axes);
// The inverse: gives y, made from the result of axes_to_end(), the shape of x.
ValueId axes_back(const BuildCall& call, ValueId y, ValueId x, const std::vector<int64_t>& axes);

// Returns y as `dims` by NumPy's rules; y itself if it has these dimensions.
ValueId broadcast_dims(const BuildCall& call, ValueId y, const std::vector<int64_t>& dims);
// Returns v with this shape, as a view.
ValueId viewed_as(const BuildCall& call, ValueId v, std::vector<int64_t> dims);

// x * gamma + beta with one number per channel; either may be kNone. It is fused like other element-wise nodes.
ValueId scale_channels(const BuildCall& call, ValueId x, ValueId gamma, ValueId beta);

}  // namespace plimsoll::engine
