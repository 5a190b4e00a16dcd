// What no training survives, looked for while the bytes are still in the cache: elements that are not finite, and
// labels that name no class.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/tensor.h"

namespace plimsoll {

// The index of the first NaN or infinity among `count` elements; none for integers.
std::optional<int64_t> first_not_finite(DType dtype, const void* data, int64_t count);

// The index of the first element that is not a whole number in [0, classes). With `classes` 0 any label from 0 to
// 2^31-1 is one. Floating labels must be finite.
std::optional<int64_t> first_bad_label(DType dtype, const void* data, int64_t count, int64_t classes);

// One element as a number; exact but for integers beyond 2^53.
double element(DType dtype, const void* data, int64_t index);

// One element as a message shows it: "7", "0.5", "nan", "-inf".
std::string element_text(DType dtype, const void* data, int64_t index);

}  // namespace plimsoll
