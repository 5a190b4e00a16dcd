// Runs a TensorFlow Lite model on the CPU, in float32 or on integers. Integer operators have the arithmetic of
// TensorFlow Lite's reference kernels: sums in int32, the same factors, the same roundings. Results of softmax, of the
// curved activations and of means may differ by one unit.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "formats/tflite/lite_model.h"

namespace plimsoll::engine::lite {

// Takes constants apart that are stored in fewer bits and widened when the model runs (float16 weights): they become
// float32 constants, which kernels can pack.
void widen_constants(Model& model);

// The memory of one run at a time.
struct Buffers {
  std::vector<std::byte> memory, scratch;
  std::vector<void*> at;      // per tensor
  std::byte* room = nullptr;  // in `scratch`, aligned

  template <typename T>
  T* as(int32_t tensor) const {
    return static_cast<T*>(at[static_cast<size_t>(tensor)]);
  }
};
using Kernel = std::function<void(const Buffers&)>;

// A model made ready to run. It refers to the model, which must outlive it. Several threads may run it at once, each
// with its own buffers.
class Program {
 public:
  // Checks every operator's types and shapes. Fails with P205 if some are not supported (one error lists all), with
  // P203 if they do not fit together. `keep`: every tensor keeps its memory, so that all can be looked at afterwards;
  // otherwise tensors that are not needed at the same time share memory.
  static Result<Program> create(const Model& model, const std::string& name, bool keep = false);

  // Memory of one Buffers, and what the program holds itself: weights in the order of the kernels.
  Bytes buffer_bytes() const { return arena_ + scratch_; }
  Bytes packed_bytes() const { return packed_; }
  Buffers make_buffers() const;
  void run(const Buffers& buffers) const {
    for (const Kernel& kernel : kernels_) kernel(buffers);
  }
  void run_one(size_t op, const Buffers& buffers) const { kernels_[op](buffers); }
  const Model& model() const { return *model_; }

 private:
  Status place(bool keep);

  const Model* model_ = nullptr;
  std::vector<Kernel> kernels_;
  std::vector<Bytes> offsets_;  // per tensor; -1: a constant
  Bytes arena_ = 0, scratch_ = 0, packed_ = 0;
};

}  // namespace plimsoll::engine::lite
