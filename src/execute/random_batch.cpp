#include "execute/random_batch.h"

#include <algorithm>
#include <cstring>

#include "model/values.h"

namespace plimsoll::engine {
namespace {

// A linear congruential generator; see Numerical Recipes, 7.1.
class Numbers {
 public:
  double share() { return static_cast<double>(next() >> 8) * 0x1p-24; }  // in [0, 1)
  int64_t below(int64_t limit) { return static_cast<int64_t>(share() * static_cast<double>(limit)); }

 private:
  uint32_t next() { return state_ = state_ * 1664525U + 1013904223U; }
  uint32_t state_ = 12345;
};

// Integers are below `limit`.
void fill(Numbers& numbers, DType dtype, int64_t elements, int64_t limit, void* into) {
  const auto write = [&]<typename T>(T, auto&& next) { std::generate_n(static_cast<T*>(into), elements, next); };
  const auto whole = [&] { return numbers.below(limit); };
  switch (dtype) {
    case DType::kFloat32:
      return write(float{}, [&] { return static_cast<float>(numbers.share()); });
    case DType::kFloat64:
      return write(double{}, [&] { return numbers.share(); });
    case DType::kInt32:
      return write(int32_t{}, [&] { return static_cast<int32_t>(whole()); });
    case DType::kInt64:
      return write(int64_t{}, whole);
    case DType::kUInt8:
      return write(uint8_t{}, [&] { return static_cast<uint8_t>(std::min<int64_t>(whole(), 255)); });
    default:
      std::fill_n(static_cast<std::byte*>(into), elements * size_of(dtype), std::byte{0});
  }
}

// The number of rows of the smallest table that reads this input, or 2.
int64_t ids_of(const PhasePlan& phase, const std::string& input) {
  const ValueId id = phase.graph.find(input_value(input));
  int64_t least = 0;
  for (const Node& node : phase.graph.nodes)
    if (node.op == "embedding" && node.inputs[1] == id) {
      const int64_t rows = phase.graph.type(node.inputs[0]).shape[0];
      least = least == 0 ? rows : std::min(least, rows);
    }
  return least == 0 ? 2 : least;
}

}  // namespace

RandomBatch::RandomBatch(const Model& model, const DataTypes& types, const PhasePlan& phase, int64_t samples) {
  Numbers numbers;
  const auto add = [&](std::vector<Array>& list, DType dtype, const Shape& sample, int64_t limit) {
    const Bytes per_sample = TensorType{dtype, sample}.bytes();
    Array& array =
        list.emplace_back(Array{per_sample, std::vector<std::byte>(static_cast<size_t>(samples * per_sample))});
    fill(numbers, dtype, samples * sample.elements(), limit, array.data.data());
  };
  for (size_t i = 0; i < model.inputs().size(); ++i) {
    const Port& port = model.inputs()[i];
    add(inputs_, types.inputs[i], port.sample, types.inputs[i] == DType::kUInt8 ? 256 : ids_of(phase, port.name));
  }
  for (const Port& port : model.outputs())
    if (port.has_loss && targets_.size() < types.targets.size())
      add(targets_, types.targets[targets_.size()], port.target, std::max<int64_t>(port.classes, 2));
}

void RandomBatch::read(int64_t count, const BatchBuffers& into) const {
  const auto copy = [&](const std::vector<Array>& arrays, const std::vector<void*>& buffers) {
    for (size_t i = 0; i < arrays.size() && i < buffers.size(); ++i)
      if (buffers[i] != nullptr)
        std::memcpy(buffers[i], arrays[i].data.data(), static_cast<size_t>(count * arrays[i].per_sample));
  };
  copy(inputs_, into.inputs);
  copy(targets_, into.targets);
  for (float* weights : into.weights) std::fill_n(weights, count, 1.0F);
}

}  // namespace plimsoll::engine
