// conv3d, conv3d_input_grad and conv3d_weight_grad: their test cases.
#include "ops/convolution.h"
#include "ops/families.h"

namespace plimsoll::engine {
namespace {

const std::vector<std::string> kTwo = {"normal", "normal"}, kThree = {"normal", "normal", "normal"};

Attrs cube(int64_t pad) {
  return convolution_attrs({1, 1, 1}, Ints(6, pad), {1, 1, 1}, 1);
}

OpDef forward_op() {
  OpDef op = convolution_op(3);
  const Attrs uneven = convolution_attrs({2, 1, 3}, {1, 0, 0, 2, 1, 1}, {1, 2, 1}, 1);
  op.cases = {
      {"same3x3x3", {f32({2, 3, 4, 5, 3}), f32({3, 3, 3, 3, 5}), f32({5})}, cube(1), kThree, {0, 1, 2}},
      {"one_channel", {f32({2, 3, 5, 4, 1}), f32({2, 3, 3, 1, 7})}, cube(0), kTwo, {0, 1}},
      {"pointwise", {f32({2, 2, 3, 2, 16}), f32({1, 1, 1, 16, 16})}, cube(0), kTwo, {0, 1}},
      {"flat_kernel",  // a convolution of every plane by itself
       {f32({2, 3, 5, 4, 3}), f32({1, 3, 3, 3, 4}), f32({4})},
       convolution_attrs({1, 1, 1}, {0, 0, 1, 1, 1, 1}, {1, 1, 1}, 1),
       kThree,
       {0, 1, 2}},
      {"along_depth",
       {f32({2, 5, 2, 3, 3}), f32({3, 1, 1, 3, 4})},
       convolution_attrs({1, 1, 1}, {1, 1, 0, 0, 0, 0}, {1, 1, 1}, 1),
       kTwo,
       {0, 1}},
      {"uneven", {f32({2, 5, 4, 6, 2}), f32({2, 3, 2, 2, 3})}, uneven, kTwo, {0, 1}},
      {"dilated",
       {f32({1, 5, 5, 6, 2}), f32({3, 2, 3, 2, 3})},
       convolution_attrs({1, 1, 1}, {2, 2, 1, 1, 1, 1}, {2, 2, 1}, 1),
       kTwo,
       {0, 1}},
      {"groups",
       {f32({2, 3, 3, 4, 6}), f32({3, 2, 3, 3, 4}), f32({4})},
       convolution_attrs({1, 1, 1}, {1, 1, 0, 1, 1, 1}, {1, 1, 1}, 2),
       kThree,
       {0, 1, 2}},
      {"depthwise",
       {f32({1, 3, 4, 3, 5}), f32({3, 3, 3, 1, 5})},
       convolution_attrs({1, 1, 1}, Ints(6, 1), {1, 1, 1}, 5),
       kTwo,
       {0, 1}},
      {"wide", {f32({1, 4, 6, 8, 16}), f32({3, 3, 3, 16, 32}), f32({32})}, cube(1), kThree, {2}},
      {"many_tiles", {f32({2, 4, 8, 16, 16}), f32({3, 3, 3, 16, 32}), f32({32})}, cube(1), kThree, {}},
      {"two_planes",
       {f32({3, 5, 9, 10, 16}), f32({2, 3, 3, 16, 16})},
       convolution_attrs({1, 1, 1}, {0, 1, 1, 1, 0, 2}, {1, 1, 1}, 1),
       kTwo,
       {}},
      {"strided",
       {f32({1, 5, 6, 7, 16}), f32({3, 3, 3, 16, 16})},
       convolution_attrs({2, 2, 2}, {1, 1, 0, 1, 1, 1}, {1, 1, 1}, 1),
       kTwo,
       {}},
      {"one_pixel", {f32({3, 1, 1, 1, 2}), f32({3, 3, 3, 2, 3})}, cube(1), kTwo, {0, 1}},
      {"relu",
       {f32({2, 3, 4, 4, 3}), f32({3, 3, 3, 3, 8}), f32({8})},
       with_attr(cube(1), "activation", "relu"),
       kThree,
       {}},
      {"uneven_relu",
       {f32({3, 6, 5, 7, 4}), f32({3, 2, 3, 4, 7}), f32({7})},
       with_attr(uneven, "activation", "relu"),
       kThree,
       {}},
  };
  return op;
}

OpDef input_grad_op() {
  OpDef op = convolution_input_grad_op(3);
  const auto attrs = [](Ints strides, Ints pads, Ints dilations, int64_t groups, Ints size) {
    return with_attr(convolution_attrs(std::move(strides), std::move(pads), std::move(dilations), groups), "input_size",
                     std::move(size));
  };
  op.cases = {
      {"same3x3x3",
       {f32({2, 3, 4, 5, 5}), f32({3, 3, 3, 3, 5})},
       attrs({1, 1, 1}, Ints(6, 1), {1, 1, 1}, 1, {3, 4, 5}),
       kTwo,
       {0, 1}},
      {"transposed",
       {f32({1, 2, 3, 4, 17}), f32({3, 3, 2, 5, 17})},
       attrs({2, 2, 2}, {0, 1, 0, 1, 0, 0}, {1, 1, 1}, 1, {4, 6, 8}),
       kTwo,
       {0, 1}},
      {"rest",
       {f32({1, 2, 2, 1, 3}), f32({2, 2, 2, 1, 3})},
       attrs({3, 3, 3}, Ints(6, 0), {1, 1, 1}, 1, {7, 6, 4}),
       kTwo,
       {0, 1}},
      {"dilated",
       {f32({1, 4, 5, 4, 3}), f32({3, 3, 2, 2, 3})},
       attrs({1, 1, 1}, {2, 2, 2, 2, 1, 1}, {2, 2, 2}, 1, {4, 5, 4}),
       kTwo,
       {0, 1}},
      {"groups",
       {f32({2, 3, 4, 3, 4}), f32({3, 3, 3, 3, 4})},
       attrs({1, 1, 1}, Ints(6, 1), {1, 1, 1}, 2, {3, 4, 3}),
       kTwo,
       {0, 1}},
      {"wide",
       {f32({1, 4, 6, 8, 32}), f32({3, 3, 3, 16, 32})},
       attrs({1, 1, 1}, Ints(6, 1), {1, 1, 1}, 1, {4, 6, 8}),
       kTwo,
       {}},
      {"many_tiles",
       {f32({2, 4, 8, 16, 32}), f32({3, 3, 3, 16, 32})},
       attrs({1, 1, 1}, Ints(6, 1), {1, 1, 1}, 1, {4, 8, 16}),
       kTwo,
       {}},
      {"two_planes",
       {f32({3, 5, 9, 10, 16}), f32({2, 3, 3, 16, 16})},
       attrs({1, 1, 1}, {0, 1, 1, 1, 0, 2}, {1, 1, 1}, 1, {5, 9, 10}),
       kTwo,
       {}},
      {"wide_strided",
       {f32({1, 3, 3, 4, 16}), f32({3, 3, 3, 16, 16})},
       attrs({2, 2, 2}, {1, 1, 0, 1, 1, 1}, {1, 1, 1}, 1, {5, 6, 7}),
       kTwo,
       {}},
  };
  return op;
}

OpDef weight_grad_op() {
  OpDef op = convolution_weight_grad_op(3);
  const auto attrs = [](Ints strides, Ints pads, Ints dilations, int64_t groups, Ints kernel) {
    return with_attr(convolution_attrs(std::move(strides), std::move(pads), std::move(dilations), groups), "kernel",
                     std::move(kernel));
  };
  const Attrs same = attrs({1, 1, 1}, Ints(6, 1), {1, 1, 1}, 1, {3, 3, 3});
  op.cases = {
      {"same3x3x3", {f32({2, 3, 4, 5, 3}), f32({2, 3, 4, 5, 5})}, same, kTwo, {0, 1}},
      {"bias", {f32({2, 3, 4, 5, 3}), f32({2, 3, 4, 5, 5})}, with_attr(same, "bias", true), kTwo, {}},
      {"strided",
       {f32({1, 5, 7, 8, 3}), f32({1, 2, 3, 4, 17})},
       attrs({2, 2, 2}, {0, 0, 0, 0, 0, 1}, {1, 1, 1}, 1, {3, 3, 3}),
       kTwo,
       {0, 1}},
      {"uneven_bias",
       {f32({3, 4, 9, 8, 4}), f32({3, 4, 4, 6, 7})},
       with_attr(attrs({1, 2, 1}, {1, 0, 2, 1, 0, 2}, {1, 1, 2}, 1, {2, 5, 3}), "bias", true),
       kTwo,
       {}},
      {"groups_bias",
       {f32({2, 3, 4, 4, 6}), f32({2, 3, 4, 4, 4})},
       with_attr(attrs({1, 1, 1}, Ints(6, 1), {1, 1, 1}, 2, {3, 3, 3}), "bias", true),
       kTwo,
       {}},
      {"wide", {f32({2, 4, 6, 8, 16}), f32({2, 4, 6, 8, 32})}, with_attr(same, "bias", true), kTwo, {}},
      // Sums of 1,024 products, of integers: a library's engine may add them up in any order.
      {"many_tiles",
       {f32({2, 4, 8, 16, 16}), f32({2, 4, 8, 16, 32})},
       with_attr(same, "bias", true),
       {"integers:4", "integers:4"},
       {}},
      {"two_planes",
       {f32({3, 5, 9, 10, 16}), f32({3, 5, 9, 10, 16})},
       attrs({1, 1, 1}, {0, 1, 1, 1, 0, 2}, {1, 1, 1}, 1, {2, 3, 3}),
       kTwo,
       {}},
      {"pointwise",
       {f32({2, 2, 3, 3, 32}), f32({2, 2, 3, 3, 17})},
       attrs({1, 1, 1}, Ints(6, 0), {1, 1, 1}, 1, {1, 1, 1}),
       kTwo,
       {0, 1}},
  };
  return op;
}

}  // namespace

std::vector<OpDef> conv3d_ops() {
  return {forward_op(), input_grad_op(), weight_grad_op()};
}

}  // namespace plimsoll::engine
