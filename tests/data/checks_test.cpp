#include "data/checks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace plimsoll::engine {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <typename T>
void expect_found_everywhere(DType dtype, const std::vector<T>& bad_values, const std::vector<T>& good_values) {
  for (const int64_t count : {1, 7, 2047, 2048, 2049, 5000}) {
    std::vector<T> data(static_cast<size_t>(count));
    for (size_t i = 0; i < data.size(); ++i) data[i] = good_values[i % good_values.size()];
    EXPECT_EQ(first_not_finite(dtype, data.data(), count), std::nullopt);
    for (const int64_t at : {int64_t{0}, count / 2, count - 1})
      for (const T bad : bad_values) {
        auto broken = data;
        broken[static_cast<size_t>(at)] = bad;
        broken.back() = bad;
        EXPECT_EQ(first_not_finite(dtype, broken.data(), count), at);
      }
  }
}

TEST(Checks, FindTheFirstElementThatIsNotFinite) {
  using F = std::numeric_limits<float>;
  using D = std::numeric_limits<double>;
  expect_found_everywhere<float>(DType::kFloat32, {F::quiet_NaN(), -F::quiet_NaN(), F::infinity(), -F::infinity()},
                                 {0.0f, -0.0f, F::max(), F::lowest(), F::denorm_min(), -1.5f});
  expect_found_everywhere<double>(DType::kFloat64, {D::quiet_NaN(), D::signaling_NaN(), kInfinity, -kInfinity},
                                  {0.0, -0.0, D::max(), D::lowest(), D::denorm_min(), 3.0});
  expect_found_everywhere<uint16_t>(DType::kFloat16, {0x7C00, 0xFC00, 0x7E01}, {0, 0x8000, 0x7BFF, 0xFBFF, 1});
  expect_found_everywhere<uint16_t>(DType::kBFloat16, {0x7F80, 0xFF80, 0x7FC0}, {0, 0x8000, 0x7F7F, 0xFF7F, 1});
}

TEST(Checks, FindNothingWrongWithIntegers) {
  const std::vector<int32_t> ones(100, -1);
  EXPECT_EQ(first_not_finite(DType::kInt32, ones.data(), 100), std::nullopt);
}

TEST(Checks, ReadUnalignedMemory) {
  std::vector<char> memory(4 * 100 + 1);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(memory.data() + 1 + 4 * 57, &nan, 4);
  EXPECT_EQ(first_not_finite(DType::kFloat32, memory.data() + 1, 100), 57);
}

template <typename T>
std::optional<int64_t> bad_label(DType dtype, std::vector<T> labels, int64_t classes) {
  return first_bad_label(dtype, labels.data(), static_cast<int64_t>(labels.size()), classes);
}

TEST(Checks, FindTheFirstLabelThatNamesNoClass) {
  EXPECT_EQ(bad_label<int32_t>(DType::kInt32, {0, 9, 3}, 10), std::nullopt);
  EXPECT_EQ(bad_label<int32_t>(DType::kInt32, {0, 9, 10}, 10), 2);
  EXPECT_EQ(bad_label<int32_t>(DType::kInt32, {0, -1, 10}, 10), 1);
  EXPECT_EQ(bad_label<int8_t>(DType::kInt8, {127, 0, -128}, 1000), 2);
  EXPECT_EQ(bad_label<uint8_t>(DType::kUInt8, {255, 0, 128}, 1000), std::nullopt);
  EXPECT_EQ(bad_label<uint8_t>(DType::kUInt8, {255, 0, 128}, 255), 0);
  EXPECT_EQ(bad_label<uint16_t>(DType::kUInt16, {65535, 65534}, 65535), 0);
  EXPECT_EQ(bad_label<int64_t>(DType::kInt64, {1, int64_t{1} << 32}, 2), 1);
  EXPECT_EQ(bad_label<uint64_t>(DType::kUInt64, {1, ~uint64_t{0}}, 2), 1);
  EXPECT_EQ(bad_label<uint8_t>(DType::kBool, {1, 0}, 1), 0);
  EXPECT_EQ(bad_label<int64_t>(DType::kInt64, {5, (int64_t{1} << 31) - 1, int64_t{1} << 31}, 0), 2);
}

TEST(Checks, TakeFloatingLabelsThatAreWhole) {
  EXPECT_EQ(bad_label<float>(DType::kFloat32, {0, 2, 1}, 3), std::nullopt);
  EXPECT_EQ(bad_label<float>(DType::kFloat32, {0, 2, 1.5f}, 3), 2);
  EXPECT_EQ(bad_label<double>(DType::kFloat64, {0, 3}, 3), 1);
  EXPECT_EQ(bad_label<double>(DType::kFloat64, {-0.5, 0}, 3), 0);
  EXPECT_EQ(bad_label<uint16_t>(DType::kFloat16, {0x4000, 0x4200}, 3), 1);   // 2, 3
  EXPECT_EQ(bad_label<uint16_t>(DType::kBFloat16, {0x4000, 0x4040}, 3), 1);  // 2, 3
}

TEST(Checks, ReadElementsOfEveryType) {
  const uint16_t halves[] = {0x3C00, 0xC000, 0x0001, 0x7BFF, 0xFC00, 0x3555};
  EXPECT_EQ(element(DType::kFloat16, halves, 0), 1);
  EXPECT_EQ(element(DType::kFloat16, halves, 1), -2);
  EXPECT_EQ(element(DType::kFloat16, halves, 2), std::ldexp(1, -24));
  EXPECT_EQ(element(DType::kFloat16, halves, 3), 65504);
  EXPECT_EQ(element(DType::kFloat16, halves, 4), -kInfinity);
  EXPECT_EQ(element(DType::kFloat16, halves, 5), 0.333251953125);  // np.float16(1/3)
  const int64_t large[] = {-((int64_t{1} << 53) + 1)};
  EXPECT_EQ(element_text(DType::kInt64, large, 0), "-9007199254740993");
  const float values[] = {7, 0.5f, -std::numeric_limits<float>::infinity()};
  EXPECT_EQ(element_text(DType::kFloat32, values, 0), "7");
  EXPECT_EQ(element_text(DType::kFloat32, values, 1), "0.5");
  EXPECT_EQ(element_text(DType::kFloat32, values, 2), "-inf");
}

}  // namespace
}  // namespace plimsoll::engine
