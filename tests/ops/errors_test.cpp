// Shape rules reject inputs that do not match, and the message contains the values.
#include <gtest/gtest.h>

#include "ops/op.h"

namespace plimsoll::engine {
namespace {

using Ints = std::vector<int64_t>;

TensorType f32(std::initializer_list<int64_t> dims) {
  return {DType::kFloat32, Shape(dims)};
}
TensorType of(DType dtype, std::initializer_list<int64_t> dims) {
  return {dtype, Shape(dims)};
}

struct Wrong {
  std::string op;
  std::vector<TensorType> inputs;
  Attrs attrs;
  std::string message;
};

Attrs conv(Ints strides, Ints pads, int64_t groups) {
  return {{"strides", strides}, {"pads", pads}, {"dilations", Ints{1, 1}}, {"groups", groups}};
}

Attrs with(Attrs attrs, const std::string& key, Attr value) {
  attrs.set(key, std::move(value));
  return attrs;
}

std::vector<Wrong> wrongs() {
  const Attrs plain = conv({1, 1}, {0, 0, 0, 0}, 1);
  const Attrs pool = {{"pool", Ints{2, 2}}, {"strides", Ints{2, 2}}, {"pads", Ints{0, 0, 0, 0}}};
  return {
      {"conv2d",
       {f32({1, 8, 8, 3}), f32({3, 3, 4, 8})},
       plain,
       "must have 3 input channels (3 channels in 1 groups), not 4; got f32[1,8,8,3], f32[3,3,4,8]"},
      {"conv2d",
       {f32({1, 2, 2, 3}), f32({3, 3, 3, 8})},
       plain,
       "a 3x3 kernel with dilations 1,1 over 2x2 padded by 0,0,0,0 has no output"},
      {"conv2d",
       {f32({1, 8, 8, 3}), f32({3, 3, 1, 8})},
       conv({1, 1}, {0, 0, 0, 0}, 2),
       "groups=2 must divide 3 input and 8 output channels"},
      {"conv2d",
       {f32({1, 8, 8, 3}), f32({3, 3, 3, 8})},
       conv({0, 1}, {0, 0, 0, 0}, 1),
       "strides=[0,1] must be 2 numbers of at least 1"},
      {"conv2d", {f32({1, 8, 8, 3}), f32({3, 3, 3, 8}), f32({7})}, plain, "the bias must be [8]"},
      {"conv2d", {f32({1, 8, 8, 3}), f32({3, 3, 3, 8})}, {}, "needs attribute strides (list)"},
      {"conv2d", {f32({8, 8, 3}), f32({3, 3, 3, 8})}, plain, "input 0 must have 4 dimensions; got f32[8,8,3]"},
      {"conv2d",
       {f32({1, 8, 8, 3}), of(DType::kFloat64, {3, 3, 3, 8})},
       plain,
       "floating-point numbers of one dtype; got f32[1,8,8,3], f64[3,3,3,8]"},
      {"conv2d_input_grad",
       {f32({1, 6, 6, 8}), f32({3, 3, 3, 8})},
       with(plain, "input_size", Ints{9, 8}),
       "gives 7x6, but dy is 6x6"},
      {"conv2d_weight_grad",
       {f32({1, 8, 8, 3}), f32({2, 6, 6, 8})},
       with(plain, "kernel", Ints{3, 3}),
       "x has 1 samples, but dy has 2"},
      {"conv2d_pooled",
       {f32({1, 3, 8, 3}), f32({3, 3, 3, 8})},
       with(plain, "pool", Ints{2, 2}),
       "conv2d_pooled: max_pool2d: 2x2 windows with strides 2,2 over 1x6 padded by 0,0,0,0 have no output"},
      {"conv2d_pooled_weight_grad",
       {f32({2, 8, 8, 3}), f32({1, 3, 3, 8}), of(DType::kUInt8, {1, 3, 3, 8})},
       with(with(plain, "kernel", Ints{3, 3}), "pool", Ints{2, 2}),
       "dy must have the same dtype and number of images as x"},
      {"conv2d_pooled_weight_grad",
       {f32({2, 8, 8, 3}), f32({2, 4, 3, 8}), of(DType::kUInt8, {2, 4, 3, 8})},
       with(with(plain, "kernel", Ints{3, 3}), "pool", Ints{2, 2}),
       "give 3x3, but dy is 4x3"},
      {"matmul", {f32({4, 3}), f32({5, 6})}, {}, "inner sizes 3 and 5 must be equal; got f32[4,3], f32[5,6]"},
      {"matmul", {f32({4, 3})}, {}, "takes 2 to 3 inputs; got f32[4,3]"},
      {"bias_add",
       {f32({2, 5}), f32({4})},
       {},
       "input 1 must have one element per channel of input 0; got f32[2,5], f32[4]"},
      {"add", {f32({2, 5}), f32({5, 2})}, {}, "inputs 0 and 1 must have the same shape; got f32[2,5], f32[5,2]"},
      {"scale", {f32({2}), f32({1})}, {}, "input 1 must be a scalar"},
      {"cast", {f32({2})}, {{"dtype", "f33"}}, "dtype=\"f33\" is not a dtype"},
      {"relu_grad", {f32({2}), f32({2})}, {{"from", "output"}, {"threshold", 1.0}}, "from=\"output\" must be"},
      {"elu", {f32({2})}, {{"alpha", -1.0}}, "alpha=-1 must not be negative"},
      {"dropout",
       {f32({2, 3}), of(DType::kInt64, {2}), of(DType::kInt64, {1})},
       {{"rate", 1.0}, {"call", int64_t{0}}},
       "rate=1 must be at least 0 and below 1"},
      {"batch_norm_apply", {f32({2, 5}), f32({5}), f32({5})}, {{"epsilon", 1e-3}, {"scale", true}}, "takes 4 inputs"},
      {"max_pool2d",
       {f32({1, 1, 4, 3})},
       pool,
       "2x2 windows with strides 2,2 over 1x4 padded by 0,0,0,0 have no output"},
      {"max_pool2d",
       {f32({1, 4, 4, 3})},
       with(pool, "pads", Ints{2, 0, 0, 0}),
       "pads=[2,0,0,0] must be smaller than pool=[2,2]"},
      {"max_pool2d_grad",
       {f32({1, 2, 2, 3}), of(DType::kUInt8, {1, 2, 2, 3})},
       with(with(pool, "pool", Ints{16, 16}), "input_size", Ints{18, 18}),
       "input 1 must be i32"},
      {"reshape", {f32({2, 3})}, {{"shape", Ints{7}}}, "shape [7] has 7 elements, but the input has 6"},
      {"reshape", {f32({2, 3})}, {{"shape", Ints{-1, 6}}}, "every dimension must be positive, got [-1,6]"},
      {"concat",
       {f32({2, 3}), f32({3, 3})},
       {{"axis", int64_t{1}}},
       "inputs must differ only in dimension 1; got f32[2,3], f32[3,3]"},
      {"concat", {f32({2, 3})}, {{"axis", int64_t{2}}}, "axis=2 is not one of 2 dimensions"},
      {"slice",
       {f32({2, 3})},
       {{"axis", int64_t{1}}, {"begin", int64_t{2}}, {"size", int64_t{2}}},
       "2 to 4 is not inside dimension 1 of 3 elements"},
      {"broadcast", {f32({2, 3})}, {{"shape", Ints{2, 4}}}, "[2,3] does not broadcast to [2,4]"},
      {"reduce_to", {f32({2, 3})}, {{"shape", Ints{2}}}, "[2] does not broadcast to [2,3]"},
      {"crop2d", {f32({1, 4, 4, 1})}, {{"pads", Ints{2, 2, 0, 0}}}, "pads=[2,2,0,0] remove all of 4x4"},
      {"upsample2d",
       {f32({1, 4, 4, 1})},
       {{"size", Ints{2, 2}}, {"interpolation", "cubic"}},
       "interpolation=\"cubic\" must be"},
      {"upsample2d_grad",
       {f32({1, 5, 4, 1})},
       {{"size", Ints{2, 2}}, {"interpolation", "nearest"}},
       "5x4 is not a multiple of size 2,2"},
      {"softmax_cross_entropy",
       {f32({4, 10}), of(DType::kInt32, {5})},
       {{"sparse", true}},
       "sparse targets must be [4]; got f32[4,10], i32[5]"},
      {"softmax_cross_entropy", {f32({4, 10}), of(DType::kInt64, {4})}, {{"sparse", true}}, "input 1 must be i32"},
      {"softmax_cross_entropy_grad", {f32({3}), f32({4, 10}), f32({4, 10})}, {}, "dloss must be [4]"},
      {"match", {f32({4, 10}), f32({4, 10})}, {{"kind", "top5"}}, "kind=\"top5\" must be"},
      {"weighted_sum",
       {f32({7}), f32({}), f32({2})},
       {{"weighted", true}},
       "7 rows cannot be divided among the weights of 2 samples"},
      {"sgd", {f32({2}), f32({2}), f32({})}, {{"momentum", 0.9}}, "takes 4 inputs"},
      {"adam",
       {f32({2}), f32({3}), f32({2}), f32({2}), f32({}), of(DType::kInt64, {})},
       {},
       "inputs 0 and 1 must have the same shape"},
      {"sgd_rows", {f32({7, 4}), f32({3, 4})}, {}, "takes a table, dy, ids"},
      {"sgd_rows",
       {f32({7, 4}), f32({3, 4}), of(DType::kInt32, {2}), f32({})},
       {},
       "dy must have one row for each id; got f32[3,4], i32[2]"},
      {"adam_rows",
       {f32({7, 4}), f32({3, 5}), of(DType::kInt32, {3}), f32({7, 4}), f32({7, 4}), f32({}), of(DType::kInt64, {})},
       {{"beta_1", 0.9}, {"beta_2", 0.999}, {"epsilon", 1e-7}},
       "inputs 0 and 1 must have the same shape; got f32[7,4], f32[7,5]"},
      {"clip_value", {f32({2})}, {{"limit", 0.0}}, "limit=0 must be above 0"},
      {"fused", {f32({2})}, {}, "its outputs are those of its body"},
  };
}

class Refused : public ::testing::TestWithParam<Wrong> {};

TEST_P(Refused, WithTheValues) {
  const Wrong& wrong = GetParam();
  const auto inferred = op_def(wrong.op).infer(wrong.inputs, wrong.attrs);
  ASSERT_FALSE(inferred) << wrong.op << " accepts what should fail: " << wrong.message;
  EXPECT_NE(inferred.error().what.find(wrong.message), std::string::npos) << inferred.error().what;
  EXPECT_EQ(inferred.error().what.rfind(wrong.op, 0), 0u) << inferred.error().what;
}

INSTANTIATE_TEST_SUITE_P(Ops, Refused, ::testing::ValuesIn(wrongs()),
                         [](const auto& test) { return test.param.op + "_" + std::to_string(test.index); });

TEST(Ops, AttributesOfTheWrongKindAreRefusedNotThrown) {
  for (const OpDef& op : all_ops())
    for (const OpCase& one : op.cases)
      for (const auto& [key, value] : one.attrs.items()) {
        Attrs attrs = one.attrs;
        attrs.set(key, std::holds_alternative<std::string>(value) ? Attr(int64_t{1}) : Attr("wrong"));
        EXPECT_NO_THROW((void)op.infer(one.inputs, attrs)) << op.name << "/" << one.name << " " << key;
      }
}

}  // namespace
}  // namespace plimsoll::engine
