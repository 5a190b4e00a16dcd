#include "data/identity.h"

#include <gtest/gtest.h>

namespace plimsoll::engine {
namespace {

DataSet set_of(const std::vector<float>& x, const std::vector<int32_t>& y, int64_t width) {
  DataSpec spec;
  spec.inputs = {{"x", {width}, false, 0, {}}};
  spec.outputs = {{"y", {4}, true, 4, {}}};
  const auto samples = static_cast<int64_t>(y.size());
  MemoryArrays arrays;
  arrays.inputs = {{"x", x.data(), DType::kFloat32, {samples, width}}};
  arrays.targets = {{"y", y.data(), DType::kInt32, {samples}}};
  return *wrap_data(arrays, spec);
}

TEST(DataIdentity, IsOfTheContentsNotOfTheirPlace) {
  const std::vector<float> x(60, 0.5F), copy = x;
  const std::vector<int32_t> y(20, 1);
  const auto one = *data_identity(set_of(x, y, 3)), other = *data_identity(set_of(copy, y, 3));
  EXPECT_EQ(one, other);
  EXPECT_EQ(one.at("input 1"), "20 samples of [3] float32, 240 bytes");
  EXPECT_TRUE(one.contains("contents of target 1"));
}

TEST(DataIdentity, NoticesEveryNumberOfASmallArray) {
  std::vector<float> x(60, 0.5F);
  const std::vector<int32_t> y(20, 1);
  const auto before = *data_identity(set_of(x, y, 3));
  for (float& number : x) {
    number = 0.25F;
    EXPECT_NE(*data_identity(set_of(x, y, 3)), before);
    number = 0.5F;
  }
  EXPECT_EQ(*data_identity(set_of(x, y, 3)), before);
}

TEST(DataIdentity, NoticesTheEndsOfALargeArray) {
  const std::vector<int32_t> y(1000, 1);
  std::vector<float> x(1000 * 1000, 0.5F);
  const auto before = *data_identity(set_of(x, y, 1000));
  for (const size_t at : {size_t{0}, x.size() - 1, size_t{4095}, x.size() - 4096}) {
    x[at] = 0.25F;
    EXPECT_NE(*data_identity(set_of(x, y, 1000)), before) << at;
    x[at] = 0.5F;
  }
}

TEST(DataIdentity, TellsShapesApart) {
  const std::vector<float> x(60, 0.5F);
  EXPECT_NE(*data_identity(set_of(x, std::vector<int32_t>(20, 1), 3)),
            *data_identity(set_of(x, std::vector<int32_t>(10, 1), 6)));
}

}  // namespace
}  // namespace plimsoll::engine
