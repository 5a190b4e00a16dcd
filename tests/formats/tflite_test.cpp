#include <gtest/gtest.h>

#include <algorithm>

#include "formats/tflite/lite_model.h"

namespace plimsoll::engine::lite {
namespace {

Tensor tensor(const std::string& name, std::vector<int32_t> shape, Type type, std::vector<float> scales = {}) {
  Tensor t;
  t.name = name;
  t.shape = std::move(shape);
  t.type = type;
  t.quantization.zeros.assign(scales.size(), 0);
  t.quantization.scales = std::move(scales);
  return t;
}

// An int8 convolution with a scale per filter, and a concatenation.
Model small_model() {
  Model m;
  m.tensors = {tensor("x", {1, 4, 5, 2}, Type::kInt8, {0.5F}),
               tensor("w", {3, 3, 3, 2}, Type::kInt8, {0.1F, 0.2F, 0.3F}),
               tensor("b", {3}, Type::kInt32, {0.05F, 0.1F, 0.15F}), tensor("y", {1, 2, 2, 3}, Type::kInt8, {0.25F}),
               tensor("z", {1, 2, 2, 6}, Type::kInt8, {0.25F})};
  m.tensors[0].quantization.zeros = {-7};
  m.tensors[1].data.resize(54, std::byte{3});
  m.tensors[2].data.resize(12, std::byte{1});
  Operator conv{Op::kConv, {0, 1, 2}, {3}, {}};
  conv.options.stride = {1, 2};
  conv.options.activation = Activation::kRelu6;
  Operator join{Op::kConcat, {3, 3}, {4}, {}};
  join.options.axis = 3;
  m.operators = {conv, join};
  m.inputs = {0};
  m.outputs = {4};
  m.description = "test";
  return m;
}

std::vector<std::byte> file_of(const Model& model) {
  auto file = encode(model);
  EXPECT_TRUE(file) << (file ? "" : to_text(file.error()));
  return file ? *file : std::vector<std::byte>();
}

TEST(Tflite, WhatIsWrittenIsRead) {
  const Model model = small_model();
  const auto file = file_of(model);
  ASSERT_GT(file.size(), 100U);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(file.data()) + 4, 4), "TFL3");
  const auto found = decode(file, "m.tflite");
  ASSERT_TRUE(found) << to_text(found.error());
  ASSERT_EQ(found->tensors.size(), model.tensors.size());
  for (size_t i = 0; i < model.tensors.size(); ++i) {
    EXPECT_EQ(found->tensors[i].name, model.tensors[i].name);
    EXPECT_EQ(found->tensors[i].shape, model.tensors[i].shape);
    EXPECT_EQ(found->tensors[i].type, model.tensors[i].type);
    EXPECT_EQ(found->tensors[i].data, model.tensors[i].data);
    EXPECT_EQ(found->tensors[i].quantization.scales, model.tensors[i].quantization.scales);
    EXPECT_EQ(found->tensors[i].quantization.zeros, model.tensors[i].quantization.zeros);
  }
  EXPECT_EQ(found->operators[0].options.stride, model.operators[0].options.stride);
  EXPECT_EQ(found->operators[0].options.activation, Activation::kRelu6);
  EXPECT_EQ(found->operators[1].options.axis, 3);
  EXPECT_EQ(found->operators[1].inputs, model.operators[1].inputs);
  EXPECT_EQ(found->outputs, model.outputs);
}

TEST(Tflite, ConstantsAreAligned) {
  const auto file = file_of(small_model());
  const std::vector<std::byte> weights(54, std::byte{3});
  const auto at = std::search(file.begin(), file.end(), weights.begin(), weights.end()) - file.begin();
  EXPECT_EQ(at % 16, 0);
}

TEST(Tflite, CutFilesAreRefused) {
  const auto file = file_of(small_model());
  for (size_t n = 0; n < file.size(); ++n) {
    const std::vector<std::byte> part(file.begin(), file.begin() + static_cast<long>(n));
    const auto found = decode(part, "m.tflite");
    if (found) continue;  // nothing may refer to the last bytes
    EXPECT_EQ(found.error().code, ErrorCode::kNotAKerasFile) << n;
  }
  EXPECT_FALSE(decode({}, "m.tflite"));
}

// Every byte, changed in several ways: read or refused, and what is read can be written again.
TEST(Tflite, ChangedBytesAreReadOrRefused) {
  const auto file = file_of(small_model());
  for (size_t i = 0; i < file.size(); ++i)
    for (const int flip : {0x01, 0x80, 0xFF}) {
      auto changed = file;
      changed[i] ^= static_cast<std::byte>(flip);
      const auto found = decode(changed, "m.tflite");
      if (found) {
        EXPECT_TRUE(encode(*found));
      } else {
        EXPECT_TRUE(found.error().code == ErrorCode::kNotAKerasFile || found.error().code == ErrorCode::kUnsupported);
      }
    }
}

void expect_damaged(const Model& model, const std::string& says) {
  const auto found = decode(file_of(model), "m.tflite");
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::kNotAKerasFile);
  EXPECT_NE(to_text(found.error()).find(says), std::string::npos) << to_text(found.error());
}

TEST(Tflite, HostileValuesAreRefused) {
  Model m = small_model();
  m.operators[0].inputs[1] = 77;
  expect_damaged(m, "tensor 77 of 5");
  m = small_model();
  std::swap(m.operators[0], m.operators[1]);
  expect_damaged(m, "read before it is written");
  m = small_model();
  m.tensors[3].shape[1] = -2;
  expect_damaged(m, "dimension 1 is -2");
  m = small_model();
  m.tensors[3].shape = {1 << 30, 1 << 30, 1 << 30, 3};
  expect_damaged(m, "too large");
  m = small_model();
  m.tensors[0].quantization.scales[0] = 0;
  expect_damaged(m, "a scale is 0");
  m = small_model();
  m.tensors[0].quantization.zeros[0] = 4000;
  expect_damaged(m, "a zero point is 4000");
  m = small_model();
  m.tensors[1].quantization.scales.push_back(1);
  m.tensors[1].quantization.zeros.push_back(0);
  expect_damaged(m, "it has 4 scales");
  m = small_model();
  m.tensors[1].data.pop_back();
  expect_damaged(m, "53 bytes for 54");
  m = small_model();
  m.operators[0].options.stride = {0, 1};
  expect_damaged(m, "its window is impossible");
  m = small_model();
  m.operators[1].outputs = {3};
  expect_damaged(m, "is written twice");
}

TEST(Tflite, UnknownOperatorsAreListedTogether) {
  Model m = small_model();
  m.operators[0].op = static_cast<Op>(300);
  m.operators[1].op = static_cast<Op>(126 + 200);
  const auto found = decode(file_of(m), "m.tflite");
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(found.error().facts.size(), 2U);
}

}  // namespace
}  // namespace plimsoll::engine::lite
