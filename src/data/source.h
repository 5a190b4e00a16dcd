// Sources of samples. A source is read by position, so resuming means requesting the same positions again.
#pragma once

#include <cstdint>
#include <vector>

#include "base/error.h"
#include "base/tensor.h"
#include "data/rows.h"

namespace plimsoll::engine {

// The caller's memory for `count` samples of each array, in the source's dtypes.
struct BatchBuffers {
  std::vector<void*> inputs;
  std::vector<void*> targets;
  std::vector<float*> weights;  // empty, or one per output: sample weights multiplied by class weights
};

class BatchSource {
 public:
  virtual ~BatchSource() = default;

  virtual int64_t samples() const = 0;
  virtual const std::vector<TensorType>& input_types() const = 0;   // types of one sample
  virtual const std::vector<TensorType>& target_types() const = 0;  // types of one sample; empty for prediction
  virtual bool has_weights() const = 0;
  virtual Bytes buffer_bytes() const = 0;  // bytes that it holds itself, beyond the caller's buffers

  // What its rows took so far, and how many threads read them side by side.
  virtual RowTimes row_times() const { return {}; }
  virtual int readers() const { return 1; }

  // Reads samples first .. first+count-1 in the order of `epoch`.
  virtual Status read(int64_t epoch, int64_t first, int64_t count, const BatchBuffers& into) = 0;
};

}  // namespace plimsoll::engine
