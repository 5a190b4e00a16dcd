// Where samples come from. A source is read by position, so that resuming is asking for the same positions again.
#pragma once

#include <cstdint>
#include <vector>

#include "base/error.h"
#include "base/tensor.h"

namespace plimsoll::engine {

// Memory for `count` samples of each array, owned by the caller, in the source's own dtypes.
struct BatchBuffers {
  std::vector<void*> inputs;
  std::vector<void*> targets;
  std::vector<float*> weights;  // one an output, or empty: sample weights with class weights folded in
};

class BatchSource {
 public:
  virtual ~BatchSource() = default;

  virtual int64_t samples() const = 0;
  virtual const std::vector<TensorType>& input_types() const = 0;   // of one sample
  virtual const std::vector<TensorType>& target_types() const = 0;  // of one sample; empty for prediction
  virtual bool has_weights() const = 0;
  virtual Bytes buffer_bytes() const = 0;  // what it holds itself, beyond the caller's buffers

  // Samples first .. first+count-1 of the order that `epoch` has.
  virtual Status read(int64_t epoch, int64_t first, int64_t count, const BatchBuffers& into) = 0;
};

}  // namespace plimsoll::engine
