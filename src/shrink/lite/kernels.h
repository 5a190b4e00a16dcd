// What the kernels of the interpreter are made from. Private to shrink/lite.
#pragma once

#include <fmt/format.h>

#include "shrink/lite/interpreter.h"

namespace plimsoll::engine::lite {

// An operator that is to be made ready. Everything in it may come from a hostile file, except that indices are valid.
struct Prepare {
  const Model& model;
  const Operator& node;
  Bytes scratch = 0;  // set by the kernel: bytes that it needs while it runs
  Bytes packed = 0;   // set by the kernel: bytes that it holds

  size_t inputs() const { return node.inputs.size(); }
  bool has(size_t i) const { return i < inputs() && node.inputs[i] >= 0; }
  const Tensor& in(size_t i) const { return model.tensor(node.inputs[i]); }
  const Tensor& out() const { return model.tensor(node.outputs[0]); }
  int32_t at(size_t i) const { return node.inputs[i]; }
  int32_t out_at() const { return node.outputs[0]; }
  const Options& options() const { return node.options; }

  bool floats() const { return in(0).type == Type::kFloat32 && out().type == Type::kFloat32; }
  bool int8() const {
    return in(0).type == Type::kInt8 && out().type == Type::kInt8 && in(0).quantization.scales.size() == 1 &&
           out().quantization.scales.size() == 1;
  }
};

Error bad_operator(const Prepare& p, const std::string& what);   // P203
Error not_supported(const Prepare& p, const std::string& what);  // P205

// The values of a constant list of integers, such as a shape. Fails if the input is missing or not constant.
Result<std::vector<int64_t>> constant_list(const Prepare& p, size_t input);
// Fails unless the operator has the inputs and an output of that shape.
Status need_inputs(const Prepare& p, size_t least, size_t most);
Status need_shape(const Prepare& p, const std::vector<int64_t>& shape);

template <typename T>
T activated(T x, Activation activation) {
  switch (activation) {
    case Activation::kRelu:
      return x > 0 ? x : T(0);
    case Activation::kRelu6:
      return x > 0 ? (x < 6 ? x : T(6)) : T(0);
    case Activation::kReluN1To1:
      return x > -1 ? (x < 1 ? x : T(1)) : T(-1);
    case Activation::kTanh:
      return std::tanh(x);
    default:
      return x;
  }
}

using MakeKernel = Result<Kernel> (*)(Prepare&);
struct KernelRow {
  Op op;
  MakeKernel make;
};
std::span<const KernelRow> window_kernels();
std::span<const KernelRow> matrix_kernels();
std::span<const KernelRow> elementwise_kernels();
std::span<const KernelRow> movement_kernels();

}  // namespace plimsoll::engine::lite
