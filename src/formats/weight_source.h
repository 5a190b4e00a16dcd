// Named tensors in a file: the HDF5 of Keras (formats/hdf5), or a checkpoint of TensorFlow (formats/saved_model).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/tensor.h"

namespace plimsoll::engine {

class WeightSource {
 public:
  WeightSource() = default;
  WeightSource(WeightSource&&) = default;
  WeightSource& operator=(WeightSource&&) = default;
  virtual ~WeightSource() = default;

  virtual const std::string& label() const = 0;                                // the file's name in messages
  virtual std::optional<TensorType> type_of(std::string_view path) const = 0;  // nullopt: there is no such tensor
  // Writes type.bytes() to `destination`. The shape must match the file (P207). The dtype may differ: values are
  // converted. Fails with P206 if there is no such tensor, P213 if it cannot be read.
  virtual Status read_into(std::string_view path, const TensorType& type, void* destination) const = 0;
};

}  // namespace plimsoll::engine
