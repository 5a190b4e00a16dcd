// What pooling over windows and over whole images have in common: a maximum gives the index of where it was found as a
// second output, and its gradient reads that index in place of the image.
#pragma once

#include "ops/util.h"

namespace plimsoll::engine {

using PoolingInfer = Result<Types> (*)(std::string_view name, bool with_index, InTypes in, const Attrs& attrs);

// An op of that name with its shape rule and reference. Costly to recompute; flops, bounds and cases are its own.
OpDef pooling_op(const std::string& name, bool with_index, PoolingInfer infer, void (*reference)(const ReferenceCall&));

// Its gradient: NAME_grad of (gradient, index if there is one) with the op's attributes and the image's size.
std::function<std::vector<ValueId>(const GradientCall&)> pooling_gradient(const std::string& name, bool with_index);

// A case of NAME_grad; `index` is the index's dtype and how it is drawn, for a maximum.
struct PoolingIndex {
  DType dtype;
  std::string fill;
};
OpCase pooling_grad_case(const std::string& label, const TensorType& dy, Attrs attrs,
                         const std::optional<PoolingIndex>& index);

}  // namespace plimsoll::engine
