// How a fused kernel reads a smaller tensor that is repeated to the full size: by its place, without storing the
// repetition.
#include <array>

#include "backends/cuda/fused/writer.h"
#include "ops/strided.h"

namespace plimsoll::engine::cuda {
namespace {

// The divisor, magic number and shift of a division, as the struct Divider of common/device.cuh has them.
std::array<uint32_t, 3> division_by(int64_t divisor) {
  uint32_t shift = 0;
  while ((int64_t{1} << shift) < divisor) ++shift;
  const uint64_t excess = (uint64_t{1} << shift) - static_cast<uint64_t>(divisor);
  const uint64_t magic = (uint64_t{1} << 32) * excess / static_cast<uint64_t>(divisor) + 1;
  return {static_cast<uint32_t>(divisor), static_cast<uint32_t>(magic), shift};
}

// The dimensions of the fused shape, merged, with the strides of a smaller tensor that is repeated to it.
std::vector<StridedDim> repeated_dims(const Shape& small, const Shape& large) {
  return collapsed(broadcast_view(small, large)).dims;
}

}  // namespace

// The elements that a thread handles at once lie in one run of the innermost dimension of every repeated tensor.
int FusedWriter::repeated_width(int width) const {
  for (const Node& n : nodes_) {
    if (n.op != "broadcast" || graph_.type(n.inputs[0]).shape.elements() == 1 || is_full(n.inputs[0])) continue;
    const auto dims = repeated_dims(graph_.type(n.inputs[0]).shape, graph_.type(n.outputs[0]).shape);
    while (dims.back().extent % width != 0) width /= 2;
  }
  return width;
}

// Writes the index in the smaller tensor of a thread's first element; the others follow it, or are the same element.
std::string FusedWriter::repeated(size_t i) {
  const ValueId id = node().inputs[i];
  if (is_full(id)) return full(i);
  if (type(i).shape.elements() == 1) return scalar(i);
  const size_t index = input_index(i);
  if (parts_ > 0 || elements_ >= (int64_t{1} << 31)) {
    refuse("repeats a tensor in a group, or to more than 2^31 elements");
    return "";
  }
  const auto dims = repeated_dims(type(i).shape, graph_.type(node().outputs[0]).shape);
  const std::string at = fresh("b"), rest = fresh("r");
  std::string text = fmt::format("        unsigned {0} = 0, {1} = static_cast<unsigned>(at);\n", at, rest);
  for (size_t d = dims.size(); d-- > 0;) {
    const size_t n = kernel_.numbers.size();
    for (uint32_t number : division_by(dims[d].extent)) kernel_.numbers.push_back(number);
    kernel_.numbers.push_back(static_cast<uint32_t>(dims[d].stride));
    if (d == 0) {
      text += fmt::format("        {} += {} * numbers.v[{}];\n", at, rest, n + 3);
      continue;
    }
    const std::string above = fresh("r");
    text += fmt::format("        const unsigned {0} = (__umulhi({1}, numbers.v[{2}]) + {1}) >> numbers.v[{3}];\n",
                        above, rest, n + 1, n + 2);
    if (dims[d].stride != 0)
      text += fmt::format("        {} += ({} - {} * numbers.v[{}]) * numbers.v[{}];\n", at, rest, above, n, n + 3);
    text += fmt::format("        {} = {};\n", rest, above);
  }
  const std::string value = fresh("e");
  if (dims.back().stride == 0) {
    before_row(text + fmt::format("        const float {} = to_float(i{}[{}]);\n", value, index, at));
    return value;
  }
  before_row(text +
             fmt::format("        const Pack<{}> {} = load(i{} + {});\n", type_text(type(i).dtype), value, index, at));
  return fmt::format("to_float({}.v[k])", value);
}

}  // namespace plimsoll::engine::cuda
