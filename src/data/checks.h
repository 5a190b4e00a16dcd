// Checks for data that ruins training: elements that are not finite, labels outside the classes, and ids outside an
// Embedding's table. They run while the
// bytes are still in the cache.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/tensor.h"

namespace plimsoll::engine {

// Returns the index of the first NaN or infinity among `count` elements; nullopt for integers.
std::optional<int64_t> first_not_finite(DType dtype, const void* data, int64_t count);

// Returns the index of the first element that is not an integer in [0, classes). If `classes` is 0, labels from 0 to
// 2^31-1 are valid. Floating-point labels must be finite.
std::optional<int64_t> first_bad_label(DType dtype, const void* data, int64_t count, int64_t classes);

// Returns one element as a number; exact except for integers beyond 2^53.
double element(DType dtype, const void* data, int64_t index);

// Returns one element of an array of integers; of u64 modulo 2^64.
int64_t integer_element(DType dtype, const void* data, int64_t index);

// Returns one element as text for messages: "7", "0.5", "nan", "-inf".
std::string element_text(DType dtype, const void* data, int64_t index);

// An array to check, and its name for messages.
struct CheckedArray {
  std::string_view label;  // its file, or the caller's name for it
  DType dtype;
  const Shape& sample;  // the shape of one sample
  bool is_labels = false;
  int64_t classes = 0;                        // number of classes of labels; 0: unknown
  std::optional<int64_t> ignored_class = {};  // this label is valid too
  bool is_ids = false;  // ids of an Embedding with `classes` rows; fractions are cut off, as in Keras
};

// Returns the index of the first element in `samples` samples that is not finite; if all are finite, of the first label
// outside the classes, or of the first id outside the table.
std::optional<int64_t> first_bad_element(const CheckedArray& array, const void* data, int64_t samples);
// Returns P403 or P404 for that element. `sample` is the number of its sample in the whole array.
Error bad_element(const CheckedArray& array, const void* data, int64_t index, int64_t sample);

}  // namespace plimsoll::engine
