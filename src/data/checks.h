// What no training survives, looked for while the bytes are still in the cache: elements that are not finite, and
// labels that name no class.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/tensor.h"

namespace plimsoll::engine {

// The index of the first NaN or infinity among `count` elements; none for integers.
std::optional<int64_t> first_not_finite(DType dtype, const void* data, int64_t count);

// The index of the first element that is not a whole number in [0, classes). With `classes` 0 any label from 0 to
// 2^31-1 is one. Floating labels must be finite.
std::optional<int64_t> first_bad_label(DType dtype, const void* data, int64_t count, int64_t classes);

// One element as a number; exact but for integers beyond 2^53.
double element(DType dtype, const void* data, int64_t index);

// One element as a message shows it: "7", "0.5", "nan", "-inf".
std::string element_text(DType dtype, const void* data, int64_t index);

// An array as both checks and their messages need it.
struct CheckedArray {
  std::string_view label;  // its file, or what the caller knows it by
  DType dtype;
  const Shape& sample;  // the shape of one sample
  bool is_labels = false;
  int64_t classes = 0;  // of labels; 0: unknown
};

// The index of the first element of `samples` samples that is not finite, or else of the first label that names no
// class.
std::optional<int64_t> first_bad_element(const CheckedArray& array, const void* data, int64_t samples);
// P403 or P404 for that element, where `sample` is the number of its sample in the whole array.
Error bad_element(const CheckedArray& array, const void* data, int64_t index, int64_t sample);

}  // namespace plimsoll::engine
