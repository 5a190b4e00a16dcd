// Convolution over 2 or 3 spatial dimensions, its input gradient (which is also the transposed convolution) and its
// weight gradient. conv2d.cpp and conv3d.cpp add the test cases of their rank.
#pragma once

#include "ops/util.h"

namespace plimsoll::engine {

OpDef convolution_op(size_t rank);
OpDef convolution_input_grad_op(size_t rank);
OpDef convolution_weight_grad_op(size_t rank);

void reference_convolution(const ReferenceCall& call);
void reference_convolution_input_grad(const ReferenceCall& call);
void reference_convolution_weight_grad(const ReferenceCall& call);

// Attributes of test cases.
Attrs convolution_attrs(Ints strides, Ints pads, Ints dilations, int64_t groups);
Attrs with_attr(Attrs attrs, const std::string& key, Attr value);

}  // namespace plimsoll::engine
