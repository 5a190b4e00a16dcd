// conv2d, conv2d_input_grad (which is also the transposed convolution) and conv2d_weight_grad: their test cases.
#include "ops/convolution.h"
#include "ops/families.h"

namespace plimsoll::engine {
namespace {

OpDef forward_op() {
  OpDef op = convolution_op(2);
  const std::vector<std::string> two = {"normal", "normal"}, three = {"normal", "normal", "normal"};
  const Attrs same = convolution_attrs({1, 1}, {1, 1, 1, 1}, {1, 1}, 1);
  op.cases = {
      {"same3x3", {f32({2, 5, 6, 3}), f32({3, 3, 3, 5}), f32({5})}, same, three, {0, 1, 2}},
      {"one_channel",
       {f32({2, 6, 6, 1}), f32({3, 3, 1, 17})},
       convolution_attrs({1, 1}, {0, 0, 0, 0}, {1, 1}, 1),
       two,
       {0, 1}},
      {"pointwise",
       {f32({2, 3, 4, 17}), f32({1, 1, 17, 5})},
       convolution_attrs({1, 1}, {0, 0, 0, 0}, {1, 1}, 1),
       two,
       {0, 1}},
      {"strided",
       {f32({1, 7, 8, 3}), f32({3, 3, 3, 4}), f32({4})},
       convolution_attrs({2, 2}, {0, 1, 0, 1}, {1, 1}, 1),
       three,
       {0, 1, 2}},
      {"uneven",
       {f32({2, 6, 5, 2}), f32({2, 3, 2, 3})},
       convolution_attrs({2, 1}, {1, 0, 0, 2}, {1, 1}, 1),
       two,
       {0, 1}},
      {"dilated",
       {f32({2, 7, 7, 3}), f32({3, 3, 3, 2})},
       convolution_attrs({1, 1}, {2, 2, 2, 2}, {2, 2}, 1),
       two,
       {0, 1}},
      {"groups",
       {f32({2, 5, 5, 6}), f32({3, 3, 3, 4}), f32({4})},
       convolution_attrs({1, 1}, {1, 1, 1, 1}, {1, 1}, 2),
       three,
       {0, 1, 2}},
      {"depthwise",
       {f32({2, 5, 5, 5}), f32({3, 3, 1, 5}), f32({5})},
       convolution_attrs({1, 1}, {1, 1, 1, 1}, {1, 1}, 5),
       three,
       {0, 1, 2}},
      {"depthwise_strided",
       {f32({1, 6, 7, 3}), f32({3, 3, 1, 3})},
       convolution_attrs({2, 2}, {0, 1, 1, 1}, {1, 1}, 3),
       two,
       {0, 1}},
      {"depth_multiplier",
       {f32({2, 5, 5, 3}), f32({3, 3, 1, 6})},
       convolution_attrs({1, 1}, {1, 1, 1, 1}, {1, 1}, 3),
       two,
       {0, 1}},
      {"wide", {f32({2, 8, 8, 32}), f32({3, 3, 32, 32}), f32({32})}, same, three, {2}},
      {"first_layer",
       {f32({1, 16, 16, 3}), f32({7, 7, 3, 16})},
       convolution_attrs({2, 2}, {3, 3, 3, 3}, {1, 1}, 1),
       two,
       {1}},
      {"relu", {f32({2, 5, 5, 3}), f32({3, 3, 3, 8}), f32({8})}, with_attr(same, "activation", "relu"), three, {}},
      {"uneven_relu",
       {f32({3, 9, 8, 4}), f32({5, 3, 4, 7}), f32({7})},
       with_attr(convolution_attrs({2, 1}, {2, 1, 0, 2}, {1, 2}, 1), "activation", "relu"),
       three,
       {}},
  };
  return op;
}

OpDef input_grad_op() {
  OpDef op = convolution_input_grad_op(2);
  const std::vector<std::string> two = {"normal", "normal"};
  const auto attrs = [](Ints strides, Ints pads, Ints dilations, int64_t groups, Ints size) {
    return with_attr(convolution_attrs(std::move(strides), std::move(pads), std::move(dilations), groups), "input_size",
                     std::move(size));
  };
  op.cases = {
      {"same3x3", {f32({2, 5, 6, 5}), f32({3, 3, 3, 5})}, attrs({1, 1}, {1, 1, 1, 1}, {1, 1}, 1, {5, 6}), two, {0, 1}},
      {"transposed",
       {f32({1, 3, 4, 17}), f32({3, 3, 5, 17})},
       attrs({2, 2}, {0, 1, 0, 1}, {1, 1}, 1, {6, 8}),
       two,
       {0, 1}},
      {"upsampling2x2",
       {f32({2, 3, 3, 4}), f32({2, 2, 3, 4})},
       attrs({2, 2}, {0, 0, 0, 0}, {1, 1}, 1, {6, 6}),
       two,
       {0, 1}},
      {"rest", {f32({1, 2, 2, 3}), f32({2, 2, 1, 3})}, attrs({3, 3}, {0, 0, 0, 0}, {1, 1}, 1, {7, 6}), two, {0, 1}},
      {"dilated", {f32({1, 5, 5, 3}), f32({3, 3, 2, 3})}, attrs({1, 1}, {2, 2, 2, 2}, {2, 2}, 1, {5, 5}), two, {0, 1}},
      {"groups", {f32({2, 4, 4, 4}), f32({3, 3, 3, 4})}, attrs({1, 1}, {1, 1, 1, 1}, {1, 1}, 2, {4, 4}), two, {0, 1}},
      {"depthwise",
       {f32({2, 3, 3, 5}), f32({3, 3, 1, 5})},
       attrs({2, 2}, {1, 1, 1, 1}, {1, 1}, 5, {5, 6}),
       two,
       {0, 1}},
  };
  return op;
}

OpDef weight_grad_op() {
  OpDef op = convolution_weight_grad_op(2);
  const std::vector<std::string> two = {"normal", "normal"};
  const auto attrs = [](Ints strides, Ints pads, Ints dilations, int64_t groups, Ints kernel) {
    return with_attr(convolution_attrs(std::move(strides), std::move(pads), std::move(dilations), groups), "kernel",
                     std::move(kernel));
  };
  op.cases = {
      {"same3x3", {f32({2, 5, 6, 3}), f32({2, 5, 6, 5})}, attrs({1, 1}, {1, 1, 1, 1}, {1, 1}, 1, {3, 3}), two, {0, 1}},
      {"bias",
       {f32({2, 5, 6, 3}), f32({2, 5, 6, 5})},
       with_attr(attrs({1, 1}, {1, 1, 1, 1}, {1, 1}, 1, {3, 3}), "bias", true),
       two,
       {}},
      {"strided", {f32({1, 7, 8, 3}), f32({1, 3, 4, 17})}, attrs({2, 2}, {0, 0, 0, 1}, {1, 1}, 1, {3, 3}), two, {0, 1}},
      {"dilated", {f32({1, 7, 7, 2}), f32({1, 7, 7, 3})}, attrs({1, 1}, {2, 2, 2, 2}, {2, 2}, 1, {3, 3}), two, {0, 1}},
      {"uneven_bias",
       {f32({3, 9, 8, 4}), f32({3, 4, 6, 7})},
       with_attr(attrs({2, 1}, {2, 1, 0, 2}, {1, 2}, 1, {5, 3}), "bias", true),
       two,
       {}},
      {"groups_bias",
       {f32({2, 4, 4, 6}), f32({2, 4, 4, 4})},
       with_attr(attrs({1, 1}, {1, 1, 1, 1}, {1, 1}, 2, {3, 3}), "bias", true),
       two,
       {}},
      {"depthwise",
       {f32({2, 5, 5, 5}), f32({2, 5, 5, 5})},
       attrs({1, 1}, {1, 1, 1, 1}, {1, 1}, 5, {3, 3}),
       two,
       {0, 1}},
      {"pointwise",
       {f32({2, 3, 3, 32}), f32({2, 3, 3, 17})},
       attrs({1, 1}, {0, 0, 0, 0}, {1, 1}, 1, {1, 1}),
       two,
       {0, 1}},
      // Along one dimension: more pixels than a block of the CPU's kernel, padded before, at both ends, strided,
      // dilated.
      {"causal",
       {f32({2, 1, 300, 17}), f32({2, 1, 300, 36})},
       with_attr(attrs({1, 1}, {0, 0, 4, 0}, {1, 1}, 1, {1, 5}), "bias", true),
       two,
       {}},
      {"sequence",
       {f32({3, 1, 140, 16}), f32({3, 1, 138, 32})},
       with_attr(attrs({1, 1}, {0, 0, 0, 0}, {1, 1}, 1, {1, 3}), "bias", true),
       two,
       {}},
      {"sequence_strided",
       {f32({2, 1, 41, 3}), f32({2, 1, 14, 5})},
       attrs({1, 3}, {0, 0, 1, 2}, {1, 1}, 1, {1, 5}),
       two,
       {0, 1}},
      {"sequence_dilated",
       {f32({2, 1, 20, 5}), f32({2, 1, 20, 7})},
       with_attr(attrs({1, 1}, {0, 0, 6, 0}, {1, 3}, 1, {1, 3}), "bias", true),
       two,
       {}},
      {"sequence_only_padding",  // the last taps never meet a pixel
       {f32({2, 1, 3, 5}), f32({2, 1, 12, 6})},
       attrs({1, 1}, {0, 0, 12, 0}, {1, 1}, 1, {1, 4}),
       two,
       {0, 1}},
      {"sequence_wide",
       {f32({2, 1, 20, 120}), f32({2, 1, 20, 300})},
       with_attr(attrs({1, 1}, {0, 0, 2, 1}, {1, 1}, 1, {1, 4}), "bias", true),
       two,
       {}},
      {"sequence_wide_dilated",
       {f32({1, 1, 30, 120}), f32({1, 1, 24, 300})},
       attrs({1, 1}, {0, 0, 0, 0}, {1, 2}, 1, {1, 4}),
       two,
       {}},
  };
  return op;
}

}  // namespace

std::vector<OpDef> conv2d_ops() {
  return {forward_op(), input_grad_op(), weight_grad_op()};
}

}  // namespace plimsoll::engine
