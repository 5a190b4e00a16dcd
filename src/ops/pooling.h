// Shared by pooling over windows and over whole images. Max pooling returns the index of the maximum as a second
// output, and its gradient reads that index instead of the image.
#pragma once

#include "ops/util.h"

namespace plimsoll::engine {

using PoolingInfer = Result<Types> (*)(std::string_view name, bool with_index, InTypes in, const Attrs& attrs);

// Returns an op with this name, shape rule and reference, marked as costly to recompute. The caller sets flops, bounds
// and cases.
OpDef pooling_op(const std::string& name, bool with_index, PoolingInfer infer, void (*reference)(const ReferenceCall&));

// Returns its gradient rule: NAME_grad of (gradient, index if there is one), with the op's attributes and the image's
// size.
std::function<std::vector<ValueId>(const GradientCall&)> pooling_gradient(const std::string& name, bool with_index);

// A case of NAME_grad. For max pooling, `index` gives the index's dtype and distribution.
struct PoolingIndex {
  DType dtype;
  std::string fill;
};
OpCase pooling_grad_case(const std::string& label, const TensorType& dy, Attrs attrs,
                         const std::optional<PoolingIndex>& index);

}  // namespace plimsoll::engine
